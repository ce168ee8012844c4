"""ANSWERS -> COLUMNS: the labels and detections of all frames one below the other, in the order in which they are matched."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from saccade.evaluation.run.answers import Answer
from saccade.evaluation.score.protocol import Judged, Protocol, judge
from saccade.types import InputError


@dataclass(frozen=True, eq=False)
class Columns:
    """Arrays instead of objects: an hour at 20 Hz has millions of detections.

    A group is a frame and a class, frame * classes + class: only within it can a detection find a label. Labels are in the order of
    groups; detections in that of classes, then best first, equal scores in the order of frames, as COCO ranks them.
    """

    frames: int
    classes: int
    labels: Float32[np.ndarray, "labels 4"]
    label_groups: Int64[np.ndarray, "labels"]
    ignored: Bool[np.ndarray, "labels"]  # neither found nor missed
    still_us: Float64[np.ndarray, "labels"]  # NaN where nobody knows
    speed_px_s: Float64[np.ndarray, "labels"]
    boxes: Float32[np.ndarray, "detections 4"]
    scores: Float32[np.ndarray, "detections"]
    groups: Int64[np.ndarray, "detections"]
    uncertain: Bool[np.ndarray, "detections"]  # not wrong if they find nothing

    @property
    def label_classes(self) -> Int64[np.ndarray, "labels"]:
        return self.label_groups % self.classes

    @property
    def detection_classes(self) -> Int64[np.ndarray, "detections"]:
        return self.groups % self.classes


def columns_of(answers: Iterable[Answer], classes: int, protocol: Protocol | None = None) -> Columns:
    """All that counts under PROTOCOL; None = everything as it is."""
    frames = [judged for answer in answers if (judged := judge(answer, protocol)) is not None]
    truths = [labels for frame in frames for labels in (frame.labels, frame.ignored)]
    sizes = np.array([len(labels) for labels in truths], np.int64)
    place = np.repeat(np.arange(len(truths)), sizes)
    label_groups = place // 2 * classes + _classes(_joined([labels.classes for labels in truths], np.int64), classes, "labels")
    order = np.argsort(label_groups, kind="stable")
    still_us, speed_px_s = (_known([getattr(labels, name) for labels in truths], sizes)[order] for name in ("still_us", "speed_px_s"))
    detections = [frame.detections for frame in frames]
    kinds = _classes(_joined([found.classes for found in detections], np.int64), classes, "detections")
    scores = _joined([found.scores for found in detections], np.float32)
    if not np.isfinite(scores).all():
        raise InputError("scores: a detection's score isn't finite; look for NaN or infinities in what the detector says")
    groups = np.repeat(np.arange(len(frames)), [len(found) for found in detections]) * classes + kinds
    ranked = np.lexsort((-scores, kinds))  # stable
    return Columns(
        frames=len(frames),
        classes=classes,
        labels=_boxes([labels.boxes for labels in truths], "labels")[order],
        label_groups=label_groups[order],
        ignored=(place % 2 == 1)[order],
        still_us=still_us,
        speed_px_s=speed_px_s,
        boxes=_boxes([found.boxes for found in detections], "detections")[ranked],
        scores=scores[ranked],
        groups=groups[ranked],
        uncertain=_uncertain(frames)[ranked],
    )


def areas(boxes: Float32[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n"]:
    """In float64, as COCO's."""
    corners = boxes.astype(np.float64)
    return (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts])


def _boxes(parts: list[np.ndarray], what: str) -> np.ndarray:
    boxes = np.concatenate([np.zeros((0, 4), np.float32), *parts])
    wrong = ~(np.isfinite(boxes).all(axis=1) & (boxes[:, 2:] >= boxes[:, :2]).all(axis=1))
    if wrong.any():
        box = boxes[np.argmax(wrong)].tolist()
        raise InputError(f"scores: {what} have a box {box}; expected finite left <= right, top <= bottom; COCO would ignore it silently")
    return boxes


def _uncertain(frames: list[Judged]) -> np.ndarray:
    return _joined([frame.uncertain for frame in frames], np.bool_)


def _known(parts: list[np.ndarray | None], sizes: np.ndarray) -> np.ndarray:
    return _joined([np.full(size, np.nan) if part is None else part for part, size in zip(parts, sizes.tolist(), strict=True)], np.float64)


def _classes(ids: np.ndarray, classes: int, what: str) -> np.ndarray:
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < classes:
        raise InputError(f"scores: {what} have classes from {ids.min()} to {ids.max()}, but there are {classes}: 0 to {classes - 1}")
    return ids
