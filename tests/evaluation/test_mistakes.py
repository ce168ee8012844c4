"""The worst mistakes are those that a person would call the worst: sure of nothing, blind to what is plain."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.evaluation.score.mistakes import worst_mistakes
from saccade.evaluation.score.protocol import PROTOCOLS
from tests.evaluation.samples import answer, detections, labels

CAR, PEDESTRIAN = 0, 1
BOX, NEAR, ELSEWHERE = (10, 10, 50, 40), (12, 11, 51, 41), (100, 60, 140, 90)


def test_what_is_found_is_no_mistake() -> None:
    found = answer(labels([BOX], [CAR]), detections([NEAR, BOX], [CAR, CAR], [0.9, 0.5]))
    assert worst_mistakes([found]) == ([], [])


def test_a_detection_where_nothing_is_and_a_label_that_nothing_found() -> None:
    (false,), (missed,) = worst_mistakes([answer(labels([BOX], [CAR]), detections([ELSEWHERE], [CAR], [0.9]))])
    assert (false.kind, false.index, false.weight) == ("false", 0, np.float32(0.9))
    assert (missed.kind, missed.index, missed.weight) == ("missed", 0, 40 * 30)


def test_the_wrong_class_is_both() -> None:
    false, missed = worst_mistakes([answer(labels([BOX], [CAR]), detections([BOX], [PEDESTRIAN], [0.9]))])
    assert [one.class_index for one in (*false, *missed)] == [PEDESTRIAN, CAR]


def test_an_unsure_detection_is_neither_an_error_nor_a_find() -> None:
    false, missed = worst_mistakes([answer(labels([BOX], [CAR]), detections([ELSEWHERE, BOX], [CAR, CAR], [0.29, 0.2]))])
    assert not false
    assert len(missed) == 1
    assert len(missed[0].detections) == 0


def test_hidden_objects_weigh_by_what_is_visible() -> None:
    truth = labels([(0, 0, 100, 100), (0, 0, 20, 20)], [CAR, CAR], visible=np.array([0.01, 1.0], np.float32))
    _, (missed,) = worst_mistakes([answer(truth, detections([], [], []))])
    assert missed.index == 1


@pytest.mark.parametrize("small", ["dropped", "ignored"])
def test_what_the_protocol_ignores_is_no_mistake(small: str) -> None:
    protocol = replace(PROTOCOLS["prophesee"], small=small, least_side=20.0, least_diagonal=30.0, after_us=500_000)
    tiny = answer(labels([(0, 0, 10, 10)], [CAR]), detections([(30, 30, 40, 40)], [CAR], [0.9]), t=1_000_000)
    early = answer(labels([BOX], [CAR]), detections([ELSEWHERE], [CAR], [0.9]), t=400_000)
    assert worst_mistakes([tiny, early], protocol=protocol) == ([], [])


def test_one_per_recording_and_second_the_worst_of_it() -> None:
    empty = labels([], [])
    answers = [
        answer(empty, detections([BOX], [CAR], [score]), recording=name, t=t)
        for name, t, score in (("a", 0, 0.5), ("a", 900_000, 0.8), ("a", 1_000_000, 0.6), ("b", 0, 0.7))
    ]
    false, _ = worst_mistakes(answers)
    assert [(one.recording, one.instant_us) for one in false] == [("a", 900_000), ("b", 0), ("a", 1_000_000)]


def test_an_object_is_missed_once_when_it_is_plainest() -> None:
    """A car that stands unseen for a minute is one mistake, and doesn't hide the pedestrian beside it."""
    nothing = detections([], [], [])
    answers = [
        answer(replace(labels([(0, 0, 50 + t, 50), (70, 0, 80, 30)], [CAR, PEDESTRIAN]), tracks=np.array([3, 4])), nothing, t=t * 1_000_000)
        for t in (0, 10, 5)
    ]
    _, missed = worst_mistakes(answers)
    assert [(one.instant_us, one.class_index) for one in missed] == [(10_000_000, CAR), (0, PEDESTRIAN)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(30, 100)), max_size=80), st.integers(1, 4))
@settings(max_examples=40)
def test_keeping_few_gives_the_same_as_keeping_all(said: list[tuple[str, int, int]], number: int) -> None:
    """Answers of any number of recordings pass through in bounded memory."""
    answers = [answer(labels([], []), detections([BOX], [CAR], [score / 100]), recording=name, t=t * 300_000) for name, t, score in said]
    few, _ = worst_mistakes(answers, number)
    every, _ = worst_mistakes(answers, 1000)
    assert [one.weight for one in few] == [one.weight for one in every[:number]]
