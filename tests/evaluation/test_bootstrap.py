"""A draw's score is the score of its recordings, each as often as it was drawn; an interval is of paired draws, or isn't there."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from saccade.evaluation.interval import UNKNOWN, interval_of, packed, unpacked
from saccade.evaluation.result import Answer
from saccade.evaluation.score.average_precision import metrics_of
from saccade.evaluation.score.bootstrap import draws_of, weights_of
from saccade.evaluation.score.coco import flatten
from saccade.evaluation.score.protocol import PROTOCOLS
from saccade.types import InputError, Labels
from tests.evaluation.make import CLASSES, by_pycocotools, random_frames

SCORES = ("mAP", "ap50", "recall_still")


def recordings_of(seed: int, recordings: int = 5, frames: int = 6, **options: object) -> list[list[Answer]]:
    """Random frames, no two scores equal: copies of a recording then rank side by side in any order."""
    labels, detections = random_frames(seed, recordings * frames, tied=False, **options)  # type: ignore[arg-type]
    answers = [Answer(f"r{i // frames}", i * 50_000, *pair) for i, pair in enumerate(zip(labels, detections, strict=True))]
    return [answers[i : i + frames] for i in range(0, len(answers), frames)]


def repeated(recordings: list[list[Answer]], times: np.ndarray) -> list[Answer]:
    return [answer for own, often in zip(recordings, times.tolist(), strict=True) for _ in range(often) for answer in own]


@pytest.mark.parametrize("seed", range(6))
def test_every_recording_once_is_the_plain_score(seed: int) -> None:
    answers = flatten(chain(*recordings_of(seed, classes=3, crowded=seed == 0, doubled=seed == 1)), len(CLASSES))
    plain, drawn = metrics_of(answers, CLASSES), draws_of(answers, np.ones((5, 1), np.int32))
    for score in SCORES:
        assert drawn[score][0] == pytest.approx(getattr(plain, score), abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_draw_is_the_score_of_recordings_repeated_that_often(seed: int) -> None:
    recordings = recordings_of(seed, classes=3, crowded=seed == 0, doubled=seed == 1)
    if seed % 2:  # ignored labels, and a least size
        recordings = [
            [replace(a, labels=a.labels[::2], ignored=a.labels[1::2]) if a.instant_us % 3 else a for a in own] for own in recordings
        ]
    protocol = replace(PROTOCOLS["saccade"], least_side=30.0 * (seed % 2))
    weights = weights_of(5, 4, seed)
    drawn = draws_of(flatten(chain(*recordings), len(CLASSES), protocol), weights)
    for place, times in enumerate(weights.T):
        expected = metrics_of(flatten(repeated(recordings, times), len(CLASSES), protocol), CLASSES)
        for score in SCORES:
            assert drawn[score][place] == pytest.approx(getattr(expected, score), abs=1e-9), score


@pytest.mark.parametrize("seed", range(3))
def test_a_draw_equals_pycocotools_on_the_resampled_set(seed: int) -> None:
    recordings = recordings_of(seed, frames=4, classes=2)
    weights = weights_of(5, 3, seed)
    drawn = draws_of(flatten(chain(*recordings), len(CLASSES)), weights)
    for place, times in enumerate(weights.T):
        answers = repeated(recordings, times)
        stats = by_pycocotools([answer.labels for answer in answers], [answer.detections for answer in answers]).stats
        assert (drawn["mAP"][place], drawn["ap50"][place]) == pytest.approx((100 * stats[0], 100 * stats[1]), abs=1e-9)


def test_recordings_of_which_nothing_counts_are_drawn_all_the_same() -> None:
    """Else another protocol would number them anew, and its draws wouldn't be paired."""
    first, *others = recordings_of(0)
    silent = [replace(answer, labels=Labels.empty()) for answer in first]
    answers = flatten([*silent, *chain(*others)], len(CLASSES), PROTOCOLS["prophesee"])
    assert answers.recordings == 5
    assert answers.frame_recordings.min() == 1
    weights = weights_of(5, 4)
    expected = flatten(chain(*others), len(CLASSES), PROTOCOLS["prophesee"])
    np.testing.assert_allclose(draws_of(answers, weights)["mAP"], draws_of(expected, weights[1:])["mAP"])


def test_the_same_recordings_meet_the_same_draws() -> None:
    np.testing.assert_array_equal(weights_of(40), weights_of(40))
    assert weights_of(40).shape == (40, 1000)
    assert (weights_of(40).sum(axis=0) == 40).all()
    answers = flatten(chain(*recordings_of(0)), len(CLASSES))
    assert interval_of(draws_of(answers)["mAP"]) == interval_of(draws_of(answers)["mAP"])


def test_the_interval_holds_the_score_and_narrows_with_recordings() -> None:
    few, many = (flatten(chain(*recordings_of(0, count)), len(CLASSES)) for count in (6, 60))
    widths = []
    for answers in (few, many):
        low, high = interval_of(draws_of(answers)["mAP"])
        assert low < metrics_of(answers, CLASSES).mAP < high
        widths.append(high - low)
    assert widths[1] < 0.6 * widths[0]


def test_one_recording_has_no_interval() -> None:
    (own,) = recordings_of(0, 1)
    assert draws_of(flatten(own, len(CLASSES))) == {}
    assert interval_of(unpacked("")) is UNKNOWN


def test_hidden_objects_of_one_recording_alone_have_no_interval() -> None:
    """It would be of no width: every draw that has them finds the same share."""
    first, *others = recordings_of(0)
    moving = [replace(answer, labels=replace(answer.labels, still_us=np.zeros_like(answer.labels.still_us))) for answer in chain(*others)]
    assert set(draws_of(flatten([*first, *moving], len(CLASSES)))) == {"mAP", "ap50"}


def test_a_draw_without_labels_counts_for_nothing() -> None:
    recordings = recordings_of(0)
    empty = [replace(answer, labels=Labels.empty()) for answer in recordings[0]]
    weights = np.array([[5, 1], [0, 1], [0, 1], [0, 1], [0, 1]], np.int32)
    drawn = draws_of(flatten([*empty, *chain(*recordings[1:])], len(CLASSES)), weights)
    for score in SCORES:
        assert np.isnan(drawn[score]).tolist() == [True, False]
        assert interval_of(drawn[score]) == (drawn[score][1], drawn[score][1])


def test_draws_survive_as_text_to_a_hundredth() -> None:
    drawn = np.append(np.random.default_rng(0).uniform(0, 100, 1000), [0.0, 100.0, np.nan])
    np.testing.assert_allclose(unpacked(packed(drawn)), drawn, atol=0.0051)
    assert packed(unpacked(packed(drawn))) == packed(drawn)
    for wrong in ("no base64!", "AAA", "AAAA"):
        with pytest.raises(InputError, match="base64 of two bytes"):
            unpacked(wrong)
