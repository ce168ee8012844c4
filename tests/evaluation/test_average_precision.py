"""Average precision is COCO's: equal to pycocotools, and what is plain to see holds."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.evaluation.result import Metrics
from saccade.evaluation.score.average_precision import average_precision, found_labels, score, score_late
from saccade.evaluation.score.protocol import PROTOCOLS
from saccade.types import Detections, InputError, Labels
from tests.evaluation.make import (
    CLASSES,
    NOTHING,
    answers_of,
    boxes_of,
    by_faster_coco_eval,
    by_pycocotools,
    itself,
    labels_of,
    random_frames,
)

STATS = ("mAP", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar1", "ar10", "ar100")


def assert_close(scores: Metrics, expected: Metrics) -> None:
    for name, value in asdict(expected).items():
        assert getattr(scores, name) == pytest.approx(value, abs=1e-9, nan_ok=True), name


@pytest.mark.parametrize("block", range(8))
def test_equals_pycocotools(block: int) -> None:
    """200 sets: equal scores, equal overlaps, empty frames, absent classes, and more detections than are counted."""
    for seed in range(25 * block, 25 * block + 25):
        options = {
            "frames": 1 + seed % 13,
            "grid": (0.0, 8.0, 20.0)[seed % 3],
            "tied": seed % 4 > 0,
            "crowded": seed % 5 == 0,
            "doubled": seed % 7 == 0,
        }
        labels, detections = random_frames(seed, **options, classes=1 + seed % 3, most=1 + seed % 7)
        expected = by_pycocotools(labels, detections)
        scores = average_precision(labels, detections, CLASSES)
        stats = [100 * value if value > -1 else np.nan for value in expected.stats[:9]]
        assert [getattr(scores, name) for name in STATS] == pytest.approx(stats, abs=1e-9, nan_ok=True), seed
        precision = expected.eval["precision"][:, :, :, 0, -1]
        for index, name in enumerate(CLASSES):
            own = precision[:, :, index]
            assert scores.classes[name] == pytest.approx(100 * own.mean() if (own > -1).all() else np.nan, abs=1e-9, nan_ok=True), seed


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_library(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ignored labels, too: our matcher and the library see the same."""
    labels, detections = random_frames(seed, grid=8.0 * (seed % 2))
    answers = [
        replace(answer, labels=truth[::2], ignored=truth[1::2]) if seed % 3 else answer
        for answer, truth in zip(answers_of(labels, detections), labels, strict=True)
    ]
    protocol = replace(PROTOCOLS["saccade"], least_side=30.0 * (seed % 2))
    ours = score(answers, CLASSES, protocol)
    monkeypatch.setattr("saccade.evaluation.score.average_precision.precision_recall", by_faster_coco_eval)
    library = score(answers, CLASSES, protocol)
    assert ours.labels > 20
    assert 2 < ours.mAP < 98
    assert_close(ours, library)


def test_the_cases_are_neither_trivial_nor_hopeless() -> None:
    labels, detections = random_frames(0)
    assert 5 < average_precision(labels, detections, CLASSES).mAP < 95


@pytest.mark.parametrize("name", ["saccade", "prophesee"])
@pytest.mark.parametrize("rate_hz", [5, 20, 30, 200, 1000])
def test_labels_scored_against_themselves_are_perfect_at_any_rate(name: str, rate_hz: int) -> None:
    """The field's tool takes detections of 50 ms around a label, and so gives 0 above 20 Hz."""
    labels, _ = random_frames(0)
    answers = [
        replace(answer, instant_us=1_000_000 + number * 1_000_000 // rate_hz, detections=itself(answer.labels), late=itself(answer.labels))
        for number, answer in enumerate(answers_of(labels, [NOTHING] * len(labels)))
    ]
    scores = score(answers, CLASSES, PROTOCOLS[name])
    assert (scores.mAP, scores.ap50, scores.recall) == (pytest.approx(100), pytest.approx(100), 100)
    assert np.isnan(scores.classes["tram"])  # without labels a class doesn't count
    assert score_late(answers, CLASSES, PROTOCOLS[name]) == scores


def test_nothing_found_is_zero_and_nothing_there_is_nan() -> None:
    labels, detections = random_frames(1)
    assert average_precision(labels, [NOTHING] * len(labels), CLASSES).mAP == 0
    for empty in (
        average_precision([Labels.empty()] * len(labels), detections, CLASSES),
        average_precision([], [], CLASSES),
        score([], CLASSES, PROTOCOLS["prophesee"]),
    ):
        percents = [value for value in asdict(empty).values() if isinstance(value, float)]
        assert np.isnan([*percents, *empty.classes.values()]).all()
        assert empty.labels == 0


def test_equal_scores_compare_equal_though_some_are_nan_and_survive_json() -> None:
    labels, detections = random_frames(1)
    scores = average_precision(labels, detections, CLASSES)
    assert scores == average_precision(labels, detections, CLASSES)
    assert_close(Metrics(**json.loads(json.dumps(asdict(scores)))), scores)


@given(seed=st.integers(0, 1000), order=st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_frames_and_their_recordings_change_nothing(seed: int, order) -> None:
    """Of unequal scores; equal ones rank in the order of frames, as COCO has it."""
    labels, detections = random_frames(seed, 12, tied=False)
    answers = answers_of(labels, detections)
    shuffled = [replace(answer, recording=f"recording {number % 3}") for number, answer in enumerate(answers)]
    order.shuffle(shuffled)
    protocol = PROTOCOLS["saccade"]
    assert_close(score(shuffled, CLASSES, protocol), score(answers, CLASSES, protocol))


@given(seed=st.integers(0, 1000), certainty=st.floats(0, 1, width=32), frame=st.integers(0, 9), kind=st.integers(0, 1))
@settings(max_examples=40)
def test_a_false_positive_never_helps_nor_does_a_higher_threshold(seed: int, certainty: float, frame: int, kind: int) -> None:
    labels, detections = random_frames(seed, 10)
    before = average_precision(labels, detections, CLASSES)
    there = detections[frame]
    more = Detections(
        np.concatenate([there.boxes, np.array([[5000, 0, 5040, 40]], np.float32)]),
        np.append(there.scores, np.float32(certainty)),
        np.append(there.classes, kind),
        there.time_us,
    )
    after = average_precision(labels, [*detections[:frame], more, *detections[frame + 1 :]], CLASSES)
    cut = average_precision(labels, [found[found.scores >= certainty] for found in detections], CLASSES)
    for worse in (after, cut):
        assert not worse.mAP > before.mAP + 1e-9
        assert not worse.ap50 > before.ap50 + 1e-9


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
    assert found_labels(
        labels_of(np.concatenate([box, box + 50]), np.array([2, 0])), itself(labels_of(box + 50, np.zeros(1)))
    ).tolist() == [
        False,
        True,
    ]


def test_late_detections_are_scored_where_there_are_any() -> None:
    labels, detections = random_frames(0)
    answers, protocol = answers_of(labels, detections), PROTOCOLS["saccade"]
    assert score_late(answers, CLASSES, protocol) is None
    late = [replace(answer, late=found) for answer, found in zip(answers, [NOTHING, *detections[:-1]], strict=True)]
    expected = average_precision(labels, [NOTHING, *detections[:-1]], CLASSES)
    assert score_late(late, CLASSES, protocol) == expected
    with pytest.raises(InputError, match="1 of 30 answers have late=None"):
        score_late([*late[:-1], answers[-1]], CLASSES, protocol)


def test_wrong_input_is_refused() -> None:
    labels, detections = random_frames(0, 3)
    with pytest.raises(InputError, match="1 labelled frames, but detections of 0"):
        average_precision([Labels.empty()], [], CLASSES)
    with pytest.raises(InputError, match="labels have classes from 0 to 1, but there are 1"):
        average_precision(labels, detections, ("car",))
    with pytest.raises(InputError, match="isn't finite"):
        average_precision(labels, [replace(found, scores=found.scores * np.float32(np.nan)) for found in detections], CLASSES)
    with pytest.raises(InputError, match="expected finite left <= right"):
        average_precision(labels, [replace(found, boxes=-found.boxes) for found in detections], CLASSES)
