"""WHAT IS WATCHED -> FILES, from a press of the button to the next: the events (.h5), and each detector's boxes (.jsonl) and video (.mp4).

In threads of its own: neither the source nor a detector waits for the disk. What the disk is too slow for is counted.
"""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saccade.events.write import write_events
from saccade.live.panel import Panel
from saccade.machine import check_extra
from saccade.outputs.outputs import Outputs, RunInfo, open_outputs
from saccade.representation.histogram import Histogram
from saccade.types import Detections, Events, InputError

log = logging.getLogger("saccade")

PICTURE_S = 1 / 30  # between pictures of a video
MOST_WAITING = 20_000_000  # events that the disk may be behind
PIECE = 1 << 16  # events that are written at once
BINS = 10  # ages that a picture tells apart


@dataclass
class PanelFiles:
    """Of one detector: its boxes and its video, answers that are still to be written."""

    panel: Panel
    lines: Outputs
    video: Outputs | None
    answers: "queue.SimpleQueue[Detections]"
    pictures: int = 0


class Saving:
    """`events` and `answer` take what comes; `stop` ends it. `files` are complete when `done`; `problem` says why one isn't."""

    def __init__(
        self,
        folder: Path,
        name: str,
        panels: list[Panel],
        sensor: tuple[int, int],
        look: Callable[[], Histogram],
        score: float,
        now_us: int,
    ) -> None:
        self.width, self.height = sensor
        self.score, self.look, self.problem, self.lost = score, look, "", 0
        self._stopped = threading.Event()
        self._portions: queue.SimpleQueue[Events | None] = queue.SimpleQueue()
        self._put = self._written = 0  # events
        stem = free_stem(folder, name)
        stems = {panel.name: stem if number == 0 else f"{stem}-{safe(panel.name)}" for number, panel in enumerate(panels)}
        self.files = [folder / f"{stem}.h5"]
        self._panels: dict[str, PanelFiles] = {}
        try:
            for panel in panels:
                paths = [folder / f"{stems[panel.name]}{suffix}" for suffix in (".jsonl", ".mp4")[: 2 if has_video() else 1]]
                run = RunInfo(
                    recording=name, width=self.width, height=self.height, classes=panel.stream.classes,
                    rate_hz=float(panel.stream.rate_hz), start_us=now_us, end_us=None,
                )  # fmt: skip
                outputs = [open_outputs([path], run) for path in paths]
                self._panels[panel.name] = PanelFiles(panel, outputs[0], outputs[1] if len(outputs) > 1 else None, queue.SimpleQueue())
                self.files += paths
        except InputError:
            for waiting in self._panels.values():
                waiting.lines.discard()
            raise
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write_events, self._write_answers)]
        for thread in self._threads:
            thread.start()

    def events(self, events: Events) -> None:
        if (events.width, events.height) != (self.width, self.height):
            self._fail("the sensor has another size now")
        elif self._put - self._written > MOST_WAITING:
            self.lost += len(events)
        elif not self._stopped.is_set():
            self._put += len(events)
            self._portions.put(events)

    def answer(self, panel: Panel, found: Detections) -> None:
        if not self._stopped.is_set():
            self._panels[panel.name].answers.put(found)

    def stop(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._portions.put(None)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def about(self) -> dict[str, Any]:
        """What pages show."""
        state = "saved" if self.done else "finishing" if self._stopped.is_set() else "saving"
        return {"state": state, "files": [path.name for path in self.files], "problem": self.problem, "lost": self.lost}

    def _fail(self, problem: str) -> None:
        if not self.problem:
            log.warning("%s: saving ended: %s", self.files[0], problem)
        self.problem = self.problem or problem
        self.stop()

    def _write_events(self) -> None:
        def portions() -> Iterator[Events]:
            """Of some size: a file of compressed pieces is slow to grow by a few events at a time."""
            held: list[Events] = []
            going = True
            while going:
                going = (events := self._portions.get()) is not None
                held += [] if events is None else [events]
                if held and (not going or sum(map(len, held)) >= PIECE):
                    yield Events.join(held)
                    self._written += sum(map(len, held))
                    held = []

        try:
            write_events(portions(), self.files[0], width=self.width, height=self.height)
        except (InputError, OSError) as error:
            self._fail(str(error))

    def _write_answers(self) -> None:
        """Every answer becomes a line; a picture shows the newest one."""
        try:
            while not self._stopped.wait(PICTURE_S):
                self._drain()
            self._drain()
        except (InputError, OSError) as error:
            self._fail(str(error))
        for waiting in self._panels.values():
            for outputs in (waiting.lines, waiting.video):
                try:
                    if outputs is not None and outputs is waiting.video and not waiting.pictures:  # a video of nothing can't be played
                        outputs.discard()
                        self.files = [path for path in self.files if path != outputs.outputs[0].path]
                    elif outputs is not None:
                        outputs.__exit__(None, None, None)
                except (InputError, OSError) as error:
                    self._fail(str(error))

    def _drain(self) -> None:
        for waiting in self._panels.values():
            newest = None
            for _ in range(waiting.answers.qsize()):
                found = waiting.answers.get()
                newest = found.shown(self.score)
                waiting.lines.write(newest)
            if newest is not None and waiting.video is not None:
                waiting.video.write(newest, self.look)
                waiting.pictures += 1


def histogram_of(shades: np.ndarray) -> Histogram:
    """A picture of the page (see `saccade.live.surface`) as counts per polarity and age, as videos are drawn from."""
    age = (shades & 127).astype(np.int64)
    rows, columns = age.nonzero()
    strength, brighter = age[rows, columns], shades[rows, columns] >= 128
    frame = np.zeros((2 * BINS, *shades.shape), np.uint8)
    frame[np.minimum((strength - 1) * BINS // 126, BINS - 1) + BINS * brighter, rows, columns] = 2
    return frame


def has_video() -> bool:
    try:
        check_extra("a video", "av", "video")
    except InputError as error:
        log.warning("%s; without it no video is saved", error)
        return False
    return True


def safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "live"


def free_stem(folder: Path, name: str) -> str:
    """A name with the time of day that no file in FOLDER has."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make it first, or choose another with --save-into")
    began = f"{safe(Path(name).stem if '://' not in name else name)}-{time.strftime('%Y%m%d-%H%M%S')}"
    stems = (began if number == 0 else f"{began}-{number}" for number in range(10_000))
    return next(stem for stem in stems if not list(folder.glob(f"{stem}*")))
