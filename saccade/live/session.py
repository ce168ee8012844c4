"""ONE SOURCE, READ ONCE -> one detector or two on the same events, in threads of their own, and what a page sees of them.

Nothing here waits for a page: whoever looks takes what is newest.
"""

import json
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np

from saccade.live import FASTEST_HZ, SLOWEST_HZ
from saccade.live.panel import RECENT_S, Branch, Panel
from saccade.live.playback import SHOWN_US, Limits, Playback
from saccade.live.saving import Saving, histogram_of
from saccade.live.surface import Surface
from saccade.machine import resident_bytes
from saccade.representation.windows import KINDS
from saccade.sources.source import Source
from saccade.stream.stream import Stream
from saccade.types import Detections, Events, InputError, Stepping

log = logging.getLogger("saccade")

SILENT_S = 2.0  # without events, after which the page says so
BEHIND_S = 2.0  # since the last merged window


class Session:
    """`start` it, look at it with `message`, change it with `playback`, `rate_hz` and `choose`, `close` it.

    streams: by the name that the page shows. A recording (`Replay`) begins again at its end if it REPEATS.
    measure: finds the limits of a recording on disk, for those who seek. folder: where `save` writes.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        streams: dict[str, Stream],
        *,
        repeats: bool = False,
        measure: Callable[[], Limits] | None = None,
        folder: Path = Path(),
    ) -> None:
        self.name, self.source, self.repeats, self.folder = name, source, repeats, folder
        self.panels = [Panel(label, stream, Branch(name)) for label, stream in streams.items()]
        self.playback = Playback(name, source, [panel.branch for panel in self.panels], measure)
        self.surface: Surface | None = None
        self.saving: Saving | None = None
        self.saved: list[Path] = []  # files of earlier savings and of this one
        self.score = self.panels[0].stream.runtime.config.least_score  # of boxes that are sent elsewhere; every page has its own
        self.ended, self.problem, self.rounds = False, "", 1
        self._passes = 1  # rounds, and places that were sought
        self._closed = False
        self._events, self._newest_us, self._heard_s = 0, 0, time.monotonic()
        self._heard: deque[tuple[float, int, int]] = deque(maxlen=200)  # when, how many events by then, up to which time of theirs
        self._figures: tuple[float, dict[str, Any]] = (-1.0, {})
        self._merged, self._merged_s = 0, -BEHIND_S  # windows that were merged, and when the last ones were
        self._threads = [threading.Thread(target=self._read, name="saccade-source", daemon=True)]
        self._threads += [
            threading.Thread(target=self._detect, args=(panel,), name=f"saccade-{panel.name}", daemon=True) for panel in self.panels
        ]

    def start(self) -> None:
        self.playback.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed = True
        self.stop_saving()
        self.source.close()
        for panel in self.panels:
            panel.branch.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2)
        if self.saving is not None:
            self.saving.wait()

    def listen(self, hear: Callable[[Panel, Detections], None], name: str) -> None:
        """HEAR every answer of every detector; if it fails that is said and it is left out from then on."""

        def safely(panel: Panel, found: Detections) -> None:
            try:
                hear(panel, found)
            except Exception as error:
                panel.heard.remove(safely)
                self.problem = f"{name}: ended: {error}"
                log.warning("%s", self.problem)

        for panel in self.panels:
            panel.heard.append(safely)

    @property
    def rate_hz(self) -> float:
        return float(self.panels[0].stream.rate_hz)

    @rate_hz.setter
    def rate_hz(self, rate_hz: float) -> None:
        if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
            raise InputError(f"rate: {rate_hz:g} Hz, expected {SLOWEST_HZ:g} to {FASTEST_HZ:g}")
        for panel in self.panels if rate_hz != self.rate_hz else ():
            panel.stream.rate_hz = rate_hz
            panel.measure_anew()

    def choose(self, *, window: Any = None, stepping: Any = None) -> None:
        """Other windows or another stepping from the next window on, with an empty memory."""
        for value, known in ((window, KINDS), (stepping, get_args(Stepping))):
            if value is not None and value not in known:
                raise InputError(f"{value!r:.40}: expected {' or '.join(known)}")
        for panel in self.panels:
            before = panel.stream.ways
            panel.stream.ways = (window or before[0], stepping or before[1])

    def step(self) -> None:
        """Pause, and go on by one window."""
        self.playback.step(1e6 / self.rate_hz)

    def seek(self, seconds: float) -> None:
        if self.ended:
            raise InputError(f"{self.name}: has ended; start `saccade live` again, without --no-repeat")
        self.playback.seek(seconds)

    def save(self, score: float) -> None:
        """Write what comes from now on, boxes from SCORE on, until `stop_saving`, the end of the recording, or another place in it."""
        surface = self.surface
        if self.saving is not None and not self.saving.done:
            raise InputError(f"save: {self.saving.files[0].name} is still being written; stop that first")
        if surface is None or self.ended:
            raise InputError("save: there are no events to save; wait for the first")
        if not 0 <= score <= 1:
            raise InputError(f"save: a least score of {score:g}, expected 0 to 1")
        look = lambda: histogram_of(surface.shades(self.now_us(), SHOWN_US, factor=1))  # noqa: E731
        sensor = (surface.width, surface.height)
        saving = Saving(self.folder, self.name, self.panels, sensor, look, score, self.now_us())
        self.saved += saving.files
        self.saving = saving
        for panel in self.panels:
            panel.heard.append(saving.answer)

    def stop_saving(self) -> None:
        saving = self.saving
        if saving is not None:
            saving.stop()
            for panel in self.panels:
                if saving.answer in panel.heard:
                    panel.heard.remove(saving.answer)

    def _read(self) -> None:
        try:
            while not self._closed:
                before = self._events
                for events in self.source:
                    self._take(events)
                playable = self.playback.playable
                sought = playable is not None and playable.sought
                if self._closed or not (sought or (self.repeats and self._events > before)):
                    break
                self.rounds += not sought
                self._begin_pass()
        except InputError as error:
            self._end(str(error))
        except Exception as error:  # of a driver; the page must not show a source that is gone
            log.exception("%s: ended", self.name)
            self._end(f"{type(error).__name__}: {error}")
        self.ended = True
        self.stop_saving()
        for panel in self.panels:
            panel.branch.put(None)

    def _begin_pass(self) -> None:
        """Time begins anew: so do memory and tracks, and a file holds one pass."""
        self.stop_saving()
        self._passes += 1
        self._heard.clear()
        for panel in self.panels:
            panel.branch.put(None)
        if self.surface is not None:
            self.surface.clear()

    def _take(self, events: Events) -> None:
        if len(events):
            if self.surface is None or (self.surface.width, self.surface.height) != (events.width, events.height):
                self.surface = Surface(events.width, events.height)
            self.surface.add(events)
            self._newest_us = int(events.t[-1])
            self._events, self._heard_s = self._events + len(events), time.monotonic()
            if not self._heard or self._heard_s - self._heard[-1][0] > RECENT_S / 50:
                self._heard.append((self._heard_s, self._events, self._newest_us))
        saving = self.saving
        if saving is not None and len(events):
            saving.events(events)
        for panel in self.panels:
            for count in ("lost", "bad", "foreign"):
                setattr(panel.branch, count, getattr(self.source, count))
            if not panel.problem:
                panel.branch.put(events)

    def _detect(self, panel: Panel) -> None:
        passes = 1
        try:
            while not self._closed:
                panel.run()
                if passes == self._passes:
                    break
                passes += 1
                panel.begin_again()
        except InputError as error:
            panel.problem = str(error)
        except Exception as error:
            panel.problem = f"{type(error).__name__}: {error}"
            log.exception("%s: ended", panel.name)

    def _end(self, problem: str) -> None:
        self.problem = problem
        log.warning("%s: ended: %s", self.name, problem)

    @property
    def behind(self) -> bool:
        """Whether a detector couldn't keep up of late."""
        return time.monotonic() - self._merged_s < BEHIND_S

    @property
    def version(self) -> tuple[Any, ...]:
        """Differs when there is something new to see."""
        return (self._events, self.ended, self.playback.paused, *(id(panel.found) for panel in self.panels))

    def state(self) -> str:
        if self.ended:
            return "ended"
        if self.playback.paused:
            return "paused"
        if not self._events:
            return "waiting"
        return "silent" if time.monotonic() - max(self._heard_s, self.playback.changed_s) > SILENT_S else "playing"

    def event_rate(self) -> float:
        """Events per second of event time, of late."""
        now_s, speed = time.monotonic(), self.source.speed
        recent = [heard for heard in list(self._heard) if heard[0] > now_s - RECENT_S]
        if len(recent) < 2 or not speed:
            return 0.0
        (began_s, before, began_us), (_, events, newest_us) = recent[0], recent[-1]
        passed_s = max((newest_us - began_us) / 1e6, (recent[-1][0] - began_s) * speed)  # what was held up comes at once
        return (events - before) / passed_s

    def figures(self) -> dict[str, Any]:
        """What changes slowly, measured four times a second at the most."""
        now_s = time.monotonic()
        if now_s - self._figures[0] > 0.25:
            panels = [
                {"name": panel.name, "classes": panel.stream.classes, "problem": panel.problem, **panel.figures()} for panel in self.panels
            ]
            before, self._merged = self._merged, sum(panel["merged_windows"] for panel in panels)
            self._merged_s = now_s if self._merged > before else self._merged_s
            shown: dict[str, Any] = {
                "events_per_s": round(self.event_rate()),
                "silent_s": round(now_s - self._heard_s, 1),
                "memory_mb": round(resident_bytes() / 1e6),
                "saving": None if self.saving is None else self.saving.about(),
                "panels": panels,
            }
            self._figures = (now_s, shown)
        return self._figures[1]

    def now_us(self) -> int:
        """In silence the detectors' clock goes on; one that has stopped, or is still in the round before, has none."""
        clocks_us = [found.time_us for panel in self.panels if (found := panel.found) is not None and not panel.problem]
        return max([self._newest_us, *clocks_us])

    def message(self) -> bytes:
        """A picture with all that belongs to it: length of the JSON (uint32, little-endian), JSON, one byte a pixel (see `surface`)."""
        surface, now_us, limits = self.surface, self.now_us(), self.playback.limits_us
        window, stepping = self.panels[0].stream.ways
        shades = np.zeros((0, 0), np.uint8) if surface is None else surface.shades(now_us, SHOWN_US)
        header = {
            "source": self.name, "state": self.state(), "problem": self.problem, "time_us": now_us, "round": self.rounds,
            "rate_hz": self.rate_hz, "speed": self.playback.speed, "playable": self.playback.playable is not None,
            "start_us": None if limits is None else limits[0], "end_us": None if limits is None else limits[1],
            "window": window, "stepping": stepping, "score": self.panels[0].stream.runtime.config.least_score,
            "width": 0 if surface is None else surface.width, "height": 0 if surface is None else surface.height,
            "rows": shades.shape[0], "columns": shades.shape[1],
            "events": self._events, "arrived_s": [panel.arrived_s for panel in self.panels],
            "boxes": [panel.boxes() for panel in self.panels], **self.figures(),
        }  # fmt: skip
        text = json.dumps(header, allow_nan=False).encode()
        return struct.pack("<I", len(text)) + text + shades.tobytes()
