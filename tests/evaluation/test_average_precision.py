"""Average precision is COCO's: equal to pycocotools, and what is plain to see holds."""

import contextlib
import io
from dataclasses import replace

import numpy as np
import pytest

from saccade.evaluation.average_precision import average_precision, found_labels
from saccade.types import Detections, InputError, Labels

CLASSES = ("car", "pedestrian", "tram")


def boxes_of(random: np.random.Generator, count: int) -> np.ndarray:
    corner, size = random.uniform(0, 200, (count, 2)), random.uniform(4, 120, (count, 2))
    return np.concatenate([corner, corner + size], 1).astype(np.float32)


def labels_of(boxes: np.ndarray, classes: np.ndarray, still_us: np.ndarray | None = None) -> Labels:
    zeros = np.zeros(len(boxes), np.int64)
    return Labels(zeros, boxes.astype(np.float32), classes.astype(np.int64), zeros, still_us)


def random_frames(seed: int, frames: int = 30) -> tuple[list[Labels], list[Detections]]:
    random = np.random.default_rng(seed)
    truths, guesses = [], []
    for frame in range(frames):
        boxes, classes = boxes_of(random, random.integers(0, 6)), random.integers(0, 2, 6)
        truth = labels_of(boxes, classes[: len(boxes)])
        near = boxes + random.normal(0, 6, boxes.shape).astype(np.float32)
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        other = boxes_of(random, random.integers(0, 4))
        both = np.concatenate([near, other])
        kinds = np.concatenate([truth.classes, random.integers(0, 2, len(other))])
        scores = np.sort(random.uniform(0, 1, len(both)).round(1).astype(np.float32))[::-1].copy()  # rounded: equal scores are common
        truths.append(truth)
        guesses.append(Detections(both, scores, kinds, frame))
    return truths, guesses


def by_pycocotools(labels: list[Labels], detections: list[Detections]) -> np.ndarray:
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

    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": number + 1} for number in range(len(labels))],
            "categories": [{"id": number + 1} for number in range(len(CLASSES))],
            "annotations": rows(labels),
        }
        truth.createIndex()
        evaluation = evaluate.COCOeval(truth, truth.loadRes(rows(detections)), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


@pytest.mark.parametrize("seed", range(4))
def test_equals_pycocotools(seed: int) -> None:
    labels, detections = random_frames(seed)
    expected = by_pycocotools(labels, detections)
    scores = average_precision(labels, detections, CLASSES)
    assert 5 < scores.mAP < 95
    assert [scores.mAP, scores.ap50, scores.ap75] == pytest.approx(list(100 * expected[:3]), abs=1e-9)


def test_labels_scored_against_themselves_are_perfect() -> None:
    labels, _ = random_frames(0)
    itself = [Detections(truth.boxes, np.ones(len(truth), np.float32), truth.classes, 0) for truth in labels]
    scores = average_precision(labels, itself, CLASSES)
    assert (scores.mAP, scores.ap50, scores.recall) == (pytest.approx(100), pytest.approx(100), 100)
    assert np.isnan(scores.classes["tram"])  # without labels a class doesn't count


def test_nothing_found_is_zero_and_nothing_there_is_nan() -> None:
    none = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), 0)
    labels, _ = random_frames(1)
    assert average_precision(labels, [none] * len(labels), CLASSES).mAP == 0
    assert np.isnan(average_precision([Labels.empty()], [none], CLASSES).mAP)
    assert np.isnan(average_precision([], [], CLASSES).mAP)


def test_false_positives_in_frames_without_objects_cost() -> None:
    labels, detections = random_frames(2)
    extra = Detections(boxes_of(np.random.default_rng(0), 5), np.ones(5, np.float32), np.zeros(5, np.int64), 0)
    more = average_precision([*labels, Labels.empty()], [*detections, extra], CLASSES)
    assert more.mAP < average_precision(labels, detections, CLASSES).mAP


def test_recall_of_still_objects_counts_only_them() -> None:
    boxes = np.array([[0, 0, 20, 20], [100, 100, 140, 140], [50, 0, 70, 20]], np.float32)
    labels = labels_of(boxes, np.zeros(3), np.array([0, 300_000, 300_000], np.int64))
    guess = Detections(boxes[:2] + 1, np.array([0.9, 0.8], np.float32), np.zeros(2, np.int64), 0)
    scores = average_precision([labels], [guess], CLASSES)
    assert (scores.recall, scores.recall_still, scores.still) == (pytest.approx(200 / 3), 50, 2)


def test_a_detection_finds_one_label_of_its_class() -> None:
    box = np.array([[0, 0, 20, 20]], np.float32)
    twice = labels_of(np.concatenate([box, box]), np.zeros(2))
    guess = Detections(box, np.ones(1, np.float32), np.zeros(1, np.int64), 0)
    assert found_labels(twice, guess).sum() == 1
    assert not found_labels(replace(twice, classes=np.ones(2, np.int64)), guess).any()


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="1 labelled frames, but detections of 0"):
        average_precision([Labels.empty()], [], CLASSES)
