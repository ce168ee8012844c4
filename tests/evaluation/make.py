"""Random labels and detections, and what pycocotools and faster-coco-eval make of them."""

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from saccade.evaluation.result import Answer
from saccade.evaluation.score.coco import FlatAnswers, PrecisionRecall
from saccade.types import Detections, Labels

CLASSES = ("car", "pedestrian", "tram")
NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0)


def boxes_of(random: np.random.Generator, count: int, grid: float = 0.0) -> np.ndarray:
    """Somewhere; on a coarse GRID equal boxes and equal overlaps are common."""
    corner, size = random.uniform(0, 200, (count, 2)), random.uniform(4, 120, (count, 2))
    boxes = np.concatenate([corner, corner + size], 1)
    return ((boxes / grid).round() * grid if grid else boxes).astype(np.float32)


def labels_of(boxes: np.ndarray, classes: np.ndarray, still_us: np.ndarray | None = None, t: int = 0) -> Labels:
    none = np.full(len(boxes), -1, np.int64)
    return Labels(np.full(len(boxes), t, np.int64), boxes.astype(np.float32), classes.astype(np.int64), none, still_us)


def itself(labels: Labels, time_us: int = 0) -> Detections:
    """A detector that says what is true."""
    return Detections(labels.boxes, np.ones(len(labels), np.float32), labels.classes, time_us)


def random_frames(
    seed: int,
    frames: int = 30,
    *,
    grid: float = 0.0,
    tied: bool = True,
    crowded: bool = False,
    doubled: bool = False,
    classes: int = 2,
    most: int = 6,
) -> tuple[list[Labels], list[Detections]]:
    """Frames with up to MOST labels, a detection near each and some elsewhere; a CROWDED frame has more of them than COCO counts.

    DOUBLED: objects that nearly hide one another, so that a detection has a choice.
    """
    random = np.random.default_rng(seed)
    truths, guesses = [], []
    for frame in range(frames):
        boxes, kinds = boxes_of(random, random.integers(0, most + 1), grid), random.integers(0, classes, most)
        kinds = kinds[: len(boxes)]
        if doubled:
            boxes, kinds = np.concatenate([boxes, boxes + np.float32(2)]), np.concatenate([kinds, kinds])
        truth = labels_of(boxes, kinds, random.integers(0, 3_000_000, len(boxes)), t=frame)
        near = boxes + random.normal(0, 6, boxes.shape)
        if grid:
            near = (near / grid).round() * grid
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        other = boxes_of(random, 130 if crowded and frame % 3 == 0 else random.integers(0, 4), grid)
        both = np.concatenate([near, other]).astype(np.float32)
        kinds = np.concatenate([truth.classes, random.integers(0, classes, len(other)) * (not crowded)])
        scores = random.uniform(0, 1, len(both))
        scores = np.sort((scores.round(1) if tied else scores).astype(np.float32))[::-1].copy()
        truths.append(truth)
        guesses.append(Detections(both, scores, kinds, frame))
    return truths, guesses


def answers_of(labels: list[Labels], detections: list[Detections]) -> list[Answer]:
    return [Answer("one", number, *pair) for number, pair in enumerate(zip(labels, detections, strict=True))]


def by_pycocotools(labels: list[Labels], detections: list[Detections], counted: list[np.ndarray] | None = None):
    """Its evaluation, with `stats`. COUNTED says of every label whether it counts; then sizes play no role."""
    coco, evaluate = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")

    def rows(frames: list) -> list[dict]:
        found = []
        for number, frame in enumerate(frames):
            for index, box in enumerate(frame.boxes.astype(float)):
                width, height = box[2] - box[0], box[3] - box[1]
                row = {"image_id": number + 1, "category_id": int(frame.classes[index]) + 1, "bbox": [box[0], box[1], width, height]}
                score = {"score": float(frame.scores[index])} if isinstance(frame, Detections) else {"iscrowd": 0}
                found.append({**row, **score, "area": width * height, "id": len(found) + 1})
        return found

    annotations = rows(labels)
    if counted is not None:
        for row, counts in zip(annotations, np.concatenate(counted).tolist(), strict=True):
            row["area"] = 1.0 if counts else 3.0
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": number + 1} for number in range(len(labels))],
            "categories": [{"id": number + 1} for number in range(len(CLASSES))],
            "annotations": annotations,
        }
        truth.createIndex()
        guesses = rows(detections)
        if not guesses:
            guesses = [{"image_id": 1, "category_id": len(CLASSES) + 1, "bbox": [0.0, 0.0, 1.0, 1.0], "score": 1.0}]  # refuses none at all
        results = truth.loadRes(guesses)
        if counted is not None:
            for row in results.anns.values():
                row["area"] = 1.0
        evaluation = evaluate.COCOeval(truth, results, "bbox")
        if counted is not None:
            evaluation.params.areaRng = [[0, 2]]
        evaluation.evaluate()
        evaluation.accumulate()
        if counted is None:
            evaluation.summarize()
    return evaluation


def by_faster_coco_eval(answers: FlatAnswers, counted: np.ndarray, judged: np.ndarray) -> PrecisionRecall:
    """The library's `precision_recall`. It ignores labels, and detections that find none, by the stated area, which says what to ignore."""
    faster = pytest.importorskip("faster_coco_eval")
    truth = faster.COCO(
        {
            "images": [{"id": frame + 1} for frame in range(answers.frames)],
            "categories": [{"id": index + 1, "name": str(index)} for index in range(answers.classes)],
            "annotations": _rows(answers.labels, answers.label_groups, answers.classes, counted),
        }
    )
    guesses = _rows(answers.boxes, answers.groups, answers.classes, judged)
    for row, score in zip(guesses, answers.scores.tolist(), strict=True):
        row["score"] = score
    results = truth.loadRes([dict(row) for row in guesses])
    for row in guesses:  # loading works the areas out from the boxes
        results.anns[row["id"]]["area"] = row["area"]
    evaluation = faster.COCOeval_faster(truth, results, "bbox")
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 2.0]], ["all"]
    evaluation.evaluate()
    evaluation.accumulate()
    precision = np.asarray(evaluation.eval["precision"])[:, :, :, 0, -1]
    recall = np.moveaxis(np.asarray(evaluation.eval["recall"])[:, :, 0, :], -1, 0)
    return PrecisionRecall(np.where(precision < 0, np.nan, precision), np.where(recall < 0, np.nan, recall))


def _rows(boxes: np.ndarray, groups: np.ndarray, classes: int, counted: np.ndarray) -> list[dict[str, Any]]:
    corners = boxes.astype(np.float64)
    corners[:, 2:] -= corners[:, :2]
    return [
        {
            "id": number + 1,  # 0 would count as not matched
            "image_id": group // classes + 1,
            "category_id": group % classes + 1,
            "bbox": box,
            "area": 1.0 if counts else 3.0,
            "iscrowd": 0,
        }
        for number, (box, group, counts) in enumerate(zip(corners.tolist(), groups.tolist(), counted.tolist(), strict=True))
    ]
