"""What a detector finds in real recordings, with the options that `saccade detect` has by default, and pictures of it:

    python -m examples.real_events nano FOLDER --out pictures

FOLDER holds recordings with labels beside them: drive.raw and drive_bbox.npy, or drive_td.dat and drive_bbox_hand.npy. Times of labels are
those of the recording's clock or, where that can't be, since its first event. A label is found if the newest answer by then has a box of
its class that overlaps it by more than a half; a box is right if it finds a label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

import saccade
from saccade.datasets.labels import RawLabels, read_boxes
from saccade.detection.matching import best_pairs, iou
from saccade.events.reader import Reader
from saccade.outputs.sheet import BoxedFrame, write_boxed_sheet
from saccade.representation.histogram import stacked_histogram
from saccade.types import Detections, InputError, Window

SHOWN = 6  # frames of each recording and rate in its picture
OVERLAP = 0.5
WINDOW_US = 50_000
SUFFIXES = (".aedat4", ".raw", ".dat", ".h5", ".hdf5", ".bag", ".mcap", ".npz", ".csv")
NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0)


@dataclass
class Count:
    """Of one recording at one rate."""

    labels: int = 0
    found: int = 0
    boxes: int = 0
    frames: int = 0

    def row(self, name: str, rate_hz: float) -> str:
        right = f"{self.found / self.boxes:.0%}" if self.boxes else "-"
        return f"| {name} | {rate_hz:g} Hz | {self.found} of {self.labels} | {self.boxes / max(self.frames, 1):.1f} | {right} |"


def main(
    weights: Annotated[str, tyro.conf.Positional],
    folder: Annotated[Path, tyro.conf.Positional],
    *,
    rates: tuple[float, ...] = (20.0, 200.0),
    score: float | None = None,
    classes: tuple[str, ...] = ("car", "pedestrian", "two-wheeler"),
    out: Path | None = None,
) -> None:
    """Count and draw.

    Args:
        weights: A name or a weights file.
        folder: Of recordings with NAME_bbox*.npy beside them, in it or below it.
        rates: To detect at.
        score: Boxes of lower scores don't count; the weights' own default if not given.
        classes: What the numbers 0, 1, ... in the label files mean.
        out: Folder for a picture of each recording and rate.
    """
    pairs = labelled(folder)
    print("| recording | rate | found | boxes a frame | of which right |\n|---|--:|--:|--:|--:|")
    for recording, labels in pairs:
        for rate_hz in rates:
            stream = saccade.Stream(weights, rate_hz=rate_hz, score=score)
            with saccade.open_events(recording) as reader:
                truth, origin_us = read_boxes(labels), 0
                answers = list(stream.run(reader.stream(None, None)))
                if not reader.start_us <= truth.instants_us[0] <= reader.end_us:
                    origin_us = reader.start_us
                count, shown = judge(answers, truth, origin_us, [number_of(name, stream.classes) for name in classes])
                print(count.row(recording.name, rate_hz), flush=True)
                if out is not None:
                    out.mkdir(parents=True, exist_ok=True)
                    frames = [
                        BoxedFrame(f"{(one.time_us - reader.start_us) / 1e6:.2f} s", frame_at(reader, one.time_us), one.boxes, one.classes)
                        for one in shown
                    ]
                    title = f"{recording.name}, {rate_hz:g} Hz"
                    write_boxed_sheet(out / f"{recording.stem}_{rate_hz:g}hz.png", frames, stream.classes, title)


def labelled(folder: Path) -> list[tuple[Path, Path]]:
    """Recordings and their label files."""
    pairs = []
    for labels in sorted(folder.rglob("*_bbox*.npy")):
        stem = labels.name[: labels.name.index("_bbox")]
        names = [f"{stem}{ending}{suffix}" for suffix in SUFFIXES for ending in ("", "_td")]
        recording = next((labels.with_name(name) for name in names if labels.with_name(name).is_file()), None)
        if recording is not None:
            pairs.append((recording, labels))
    if not pairs:
        raise InputError(f"{folder}: no NAME_bbox*.npy with a recording NAME or NAME_td beside it; expected those of Gen1's layout")
    return pairs


def number_of(name: str, known: Sequence[str]) -> int:
    """Of a class among those of the detector; -1 if it doesn't know it."""
    return list(known).index(name) if name in known else -1


def judge(answers: list[Detections], truth: RawLabels, origin_us: int, numbers: Sequence[int]) -> tuple[Count, list[Detections]]:
    """What was found at the labelled instants from the first answer on, and some of the answers, spread over the recording."""
    instants = [int(instant) for instant in truth.instants_us if answers and instant + origin_us >= answers[0].time_us]
    chosen = set(np.linspace(0, len(instants) - 1, SHOWN).astype(int).tolist())
    count, shown = Count(frames=len(instants)), []
    for place, instant_us in enumerate(instants):
        answer = next((one for one in reversed(answers) if one.time_us <= instant_us + origin_us), NOTHING)
        own = truth.t == instant_us
        classes = np.array([numbers[number] if number < len(numbers) else -1 for number in truth.classes[own]])
        overlap = iou(answer.boxes, truth.boxes[own])
        overlap = np.where((overlap > OVERLAP) & (answer.classes[:, None] == classes), overlap, 0.0)
        count.labels += int(own.sum())
        count.found += int((best_pairs(overlap) >= 0).sum())
        count.boxes += len(answer)
        shown += [answer] if place in chosen else []
    return count, shown


def frame_at(reader: Reader, end_us: int) -> np.ndarray:
    """The window that ends there."""
    events = reader.between(max(reader.start_us, end_us - WINDOW_US), end_us)
    return stacked_histogram(Window(events.t, events.x, events.y, events.p, events.width, events.height, end_us - WINDOW_US, end_us))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except InputError as error:
        raise SystemExit(f"real_events: {error}") from None
