"""How many labelled objects of a real recording a detector finds, and a picture of it:

    python examples/real_events.py nano cars.aedat4 cars_bbox.npy cars.png --rates 20 200 --since-first-event

A label is found if the newest answer by then has a box of its class with a score over --score that overlaps it by more than a half.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

import saccade
from saccade.datasets.labels import RawLabels, read_boxes
from saccade.detection.matching import best_pairs, iou
from saccade.events.reader import Reader
from saccade.export.runtime import open_runtime
from saccade.outputs.sheet import BoxedFrame, write_boxed_sheet
from saccade.representation.histogram import stacked_histogram
from saccade.stream.tiles import open_stream
from saccade.types import Detections, InputError, Window
from saccade.weights.load import find_weights

SHOWN = 3  # frames of each rate in the picture
OVERLAP = 0.5
WINDOW_US = 50_000
NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0)


def main(
    weights: Annotated[str, tyro.conf.Positional],
    recording: Annotated[Path, tyro.conf.Positional],
    labels: Annotated[Path, tyro.conf.Positional],
    picture: Annotated[Path, tyro.conf.Positional],
    *,
    rates: tuple[float, ...] = (20.0, 200.0),
    score: float = 0.2,
    label: str = "car",
    fit: Literal["auto", "pad", "scale", "tile"] = "auto",
    since_first_event: bool = False,
    title: str = "",
) -> None:
    """Count and draw.

    Args:
        rates: To detect at.
        score: Boxes of lower scores don't count.
        label: Class of the labels, whatever their numbers are.
        fit: How the sensor is shown to the network, as of `saccade detect`.
        since_first_event: Times of the labels begin with the recording; else they are those of its clock.
        title: Of the picture.
    """
    truth = read_boxes(labels)
    frames: list[BoxedFrame] = []
    print("| rate | found | labels | boxes a frame | of which right |\n|--:|--:|--:|--:|--:|")
    with saccade.open_events(recording) as reader:
        runtime = open_runtime(find_weights(weights), threads=1)
        if label not in runtime.config.classes:
            raise InputError(f"{weights} knows {', '.join(runtime.config.classes)}, not {label}; name one of them with --label")
        origin_us = reader.start_us if since_first_event else 0
        for rate_hz in rates:
            stream = open_stream(runtime, rate_hz, reader.width, reader.height, fit, score=score)
            answers = list(stream.run(reader.stream(None, None)))
            found, given = 0, 0
            instants = [int(instant) for instant in truth.instants_us if answers and instant + origin_us >= answers[0].time_us]
            for number, instant_us in enumerate(instants):
                answer = newest(answers, instant_us + origin_us)
                right = matched(answer, boxes_at(truth, instant_us), runtime.config.classes.index(label))
                found, given = found + right, given + len(answer.boxes)
                if number in np.linspace(len(instants) // 4, len(instants) - 1, SHOWN).astype(int):
                    said = f"{rate_hz:g} Hz, {(answer.time_us - reader.start_us) / 1e6:.2f} s after the beginning"
                    frames.append(BoxedFrame(said, frame_at(reader, answer.time_us), answer.boxes, answer.classes))
            count = sum(len(boxes_at(truth, instant_us)) for instant_us in instants)
            print(f"| {rate_hz:g} Hz | {found} | {count} | {given / max(len(instants), 1):.1f} | {found / max(given, 1):.0%} |")
        write_boxed_sheet(picture, frames, runtime.config.classes, title)


def newest(answers: list[Detections], time_us: int) -> Detections:
    return next((answer for answer in reversed(answers) if answer.time_us <= time_us), NOTHING)


def boxes_at(truth: RawLabels, instant_us: int) -> np.ndarray:
    return truth.boxes[truth.t == instant_us]


def matched(answer: Detections, boxes: np.ndarray, index: int) -> int:
    """How many of the boxes are found, each by another detection."""
    own = answer.boxes[answer.classes == index]
    overlap = iou(own, boxes)
    return int((best_pairs(np.where(overlap > OVERLAP, overlap, 0.0)) >= 0).sum())


def frame_at(reader: Reader, end_us: int) -> np.ndarray:
    """The window that ends there."""
    events = reader.between(max(reader.start_us, end_us - WINDOW_US), end_us)
    return stacked_histogram(Window(events.t, events.x, events.y, events.p, events.width, events.height, end_us - WINDOW_US, end_us))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except InputError as error:
        raise SystemExit(f"real_events: {error}") from None
