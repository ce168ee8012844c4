"""LABELS + DETECTIONS -> SCORES: COCO's average precision, and the recall of objects that stand still."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from saccade.types import Detections, InputError, Labels

STILL_US = 250_000  # objects without events of their own for longer than this are seen by memory alone
FOUND_IOU = 0.5


@dataclass(frozen=True)
class Scores:
    """In percent; NaN where there is nothing to count."""

    mAP: float  # COCO's: mean over IoU 0.50 to 0.95 and over the classes that have labels
    ap50: float
    ap75: float
    classes: dict[str, float]  # mAP of each
    recall: float  # of all labels: a detection of their class overlaps by at least half
    recall_still: float  # of labels that have been still for more than a quarter of a second
    frames: int
    labels: int
    still: int


def average_precision(labels: Sequence[Labels], detections: Sequence[Detections], classes: Sequence[str]) -> Scores:
    """Of labelled frames, each with its labels (maybe none) and its detections."""
    if len(labels) != len(detections):
        raise InputError(f"average_precision: {len(labels)} labelled frames, but detections of {len(detections)}")
    precision = _coco(labels, detections, classes)  # thresholds, recalls, classes; -1 = no label of the class

    def mean(values: np.ndarray) -> float:
        return 100 * float(values[values > -1].mean()) if (values > -1).any() else float("nan")

    found = [found_labels(truth, guess) for truth, guess in zip(labels, detections, strict=True)]
    every = np.concatenate([np.zeros(0, np.bool_), *found])
    still = np.concatenate([np.zeros(0, np.bool_), *(_still(truth) for truth in labels)])
    return Scores(
        mAP=mean(precision),
        ap50=mean(precision[0]),
        ap75=mean(precision[5]),
        classes={name: mean(precision[:, :, index]) for index, name in enumerate(classes)},
        recall=100 * float(every.mean()) if len(every) else float("nan"),
        recall_still=100 * float(every[still].mean()) if still.any() else float("nan"),
        frames=len(labels),
        labels=len(every),
        still=int(still.sum()),
    )


def found_labels(labels: Labels, detections: Detections, iou: float = FOUND_IOU) -> np.ndarray:
    """For every label of a frame whether a detection of its class is its own; the best detection chooses first, its best overlap."""
    found = np.zeros(len(labels), np.bool_)
    if not len(labels):
        return found
    overlaps = _iou(detections.boxes, labels.boxes)
    overlaps[detections.classes[:, None] != labels.classes] = 0
    for row in np.argsort(-detections.scores, kind="stable"):
        free = np.where(found, 0, overlaps[row])
        best = int(free.argmax())
        found[best] |= free[best] >= iou
    return found


def _still(labels: Labels) -> np.ndarray:
    return np.zeros(len(labels), np.bool_) if labels.still_us is None else labels.still_us > STILL_US


def _iou(a: Float32[np.ndarray, "n 4"], b: Float32[np.ndarray, "m 4"]) -> np.ndarray:
    first, second = a.astype(np.float64)[:, None], b.astype(np.float64)[None]
    sides = np.clip(np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2]), 0, None)
    common = sides.prod(-1)
    return common / np.maximum((first[..., 2:] - first[..., :2]).prod(-1) + (second[..., 2:] - second[..., :2]).prod(-1) - common, 1e-12)


def _coco(labels: Sequence[Labels], detections: Sequence[Detections], classes: Sequence[str]) -> np.ndarray:
    """Precision at (10 overlaps, 101 recalls, classes), of all sizes, 100 detections per frame."""
    from faster_coco_eval import COCO, COCOeval_faster  # type: ignore[import-untyped]

    truth = COCO(
        {
            "images": [{"id": frame + 1} for frame in range(len(labels))],
            "categories": [{"id": index + 1, "name": name} for index, name in enumerate(classes)],
            "annotations": [
                {**row, "id": number + 1, "iscrowd": 0}
                for number, row in enumerate(_rows(labels))  # id 0 would count as not matched
            ],
        }
    )
    guesses = list(_rows(detections))
    for row, score in zip(guesses, np.concatenate([np.zeros(0, np.float32), *(found.scores for found in detections)]), strict=True):
        row["score"] = float(score)
    evaluation = COCOeval_faster(truth, truth.loadRes(guesses), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    return np.asarray(evaluation.eval["precision"])[:, :, :, 0, -1]


def _rows(frames: Sequence[Labels | Detections]) -> list[dict[str, Any]]:
    rows = []
    for number, frame in enumerate(frames):
        for box, index in zip(frame.boxes.astype(np.float64), frame.classes, strict=True):
            left, top, right, bottom = box.tolist()
            width, height = right - left, bottom - top
            rows.append({"image_id": number + 1, "category_id": int(index) + 1, "bbox": [left, top, width, height], "area": width * height})
    return rows
