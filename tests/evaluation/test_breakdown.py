"""Parts ignore all other labels as COCO ignores those of another size, and the parts make up the whole."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from saccade.evaluation.score.average_precision import average_precision, curves, parts_by_speed, parts_by_still
from saccade.evaluation.score.coco import FlatAnswers, flatten
from saccade.evaluation.score.protocol import PROTOCOLS, Protocol
from saccade.types import Detections, InputError, Labels
from tests.evaluation.make import CLASSES, answers_of, by_pycocotools, labels_of, random_frames

EDGES_S = (0.0, 0.4, 1.0, 2.0, 3.5)


def table(labels: list[Labels], detections: list[Detections], protocol: Protocol | None = None) -> FlatAnswers:
    return flatten(answers_of(labels, detections), len(CLASSES), protocol)


@pytest.mark.parametrize("seed", range(8))
def test_parts_equal_pycocotools_that_ignores_by_area(seed: int) -> None:
    labels, detections = random_frames(seed, grid=8.0 * (seed % 2), crowded=seed == 3, doubled=seed > 3, classes=3)
    for part in parts_by_still(table(labels, detections), EDGES_S):
        counted = [(truth.still_us >= part.low * 1e6) & (truth.still_us < part.high * 1e6) for truth in labels]
        precision = by_pycocotools(labels, detections, counted).eval["precision"][:, :, :, 0, -1]
        assert part.labels == sum(map(np.sum, counted)) > 0
        assert part.ap == pytest.approx(100 * precision[precision > -1].mean(), abs=1e-9)


def test_the_whole_is_a_part() -> None:
    labels, detections = random_frames(0)
    scores = average_precision(labels, detections, CLASSES)
    (whole,) = parts_by_still(table(labels, detections), (0, inf))
    assert (whole.ap, whole.recall, whole.labels) == (scores.mAP, scores.recall, scores.labels)


def test_recalls_of_the_parts_add_up() -> None:
    labels, detections = random_frames(5, grid=20.0)
    found = parts_by_still(table(labels, detections), EDGES_S)
    scores = average_precision(labels, detections, CLASSES)
    assert sum(part.labels for part in found) == scores.labels
    assert sum(part.recall * part.labels for part in found) == pytest.approx(scores.recall * scores.labels)


def test_what_finds_an_ignored_label_is_neither_right_nor_wrong() -> None:
    boxes = np.array([[0, 0, 20, 20], [100, 100, 140, 140]], np.float32)
    labels = labels_of(boxes, np.zeros(2), np.array([0, 300_000]))
    both = Detections(boxes, np.array([0.5, 0.9], np.float32), np.zeros(2, np.int64), 0)
    moving, still = parts_by_still(table([labels], [both]), (0, 0.25, inf))
    assert (moving.ap, still.ap) == (pytest.approx(100), pytest.approx(100))
    wrong = replace(both, boxes=boxes + np.array([[0], [50]], np.float32))  # the better one finds nothing: wrong in every part
    moving, still = parts_by_still(table([labels], [wrong]), (0, 0.25, inf))
    assert (moving.ap, moving.recall, still.ap, still.recall) == (pytest.approx(50), 100, 0, 0)


def test_speed_and_limits() -> None:
    boxes = np.array([[0, 0, 20, 20], [100, 100, 140, 140], [50, 0, 90, 40]], np.float32)
    labels = replace(labels_of(boxes, np.zeros(3)), speed_px_s=np.array([0, 10, 300], np.float32))
    guess = Detections(boxes[1:2], np.ones(1, np.float32), np.zeros(1, np.int64), 0)
    found = parts_by_speed(table([labels], [guess]), (0, 10, 200, inf))
    assert [(part.labels, part.recall) for part in found] == [(1, 0), (1, 100), (1, 0)]
    assert np.isnan(parts_by_speed(table([labels], [guess]), (1, 2))[0].ap)
    assert parts_by_still(table([labels], [guess])) == ()  # nobody knows
    with pytest.raises(InputError, match="must rise"):
        parts_by_speed(table([labels], [guess]), (10, 0))


def test_parts_heed_the_protocol() -> None:
    labels, detections = random_frames(3)
    protocol = replace(PROTOCOLS["prophesee"], least_side=30)
    small = sum(int((truth.boxes[:, 2:] - truth.boxes[:, :2] < 30).any(axis=1).sum()) for truth in labels)
    (part,) = parts_by_still(table(labels, detections, protocol), (0, inf))
    assert part.labels == sum(map(len, labels)) - small


@pytest.mark.parametrize("seed", range(3))
def test_curves_are_pycocotools_precisions(seed: int) -> None:
    labels, detections = random_frames(seed)
    found = curves(table(labels, detections), CLASSES)
    precision = by_pycocotools(labels, detections).eval["precision"][0, :, :, 0, -1]
    assert list(found) == ["car", "pedestrian"]  # the tram has no labels
    for index, values in enumerate(found.values()):
        assert values == pytest.approx(precision[:, index].tolist(), abs=1e-12)
        assert all(a >= b for a, b in pairwise(values))
