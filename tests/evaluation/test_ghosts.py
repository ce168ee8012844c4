"""Boxes that outlive their object, in answers made by hand at 20 Hz."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from saccade.evaluation.result import Answer, Ghosts
from saccade.evaluation.score.ghosts import ghosts
from saccade.types import Labels
from tests.evaluation.samples import detections

Box = tuple[float, float, float, float]
HERE: Box = (100, 100, 140, 130)
THERE: Box = (200, 100, 240, 130)


def labels(*objects: tuple[int, Box], t: int = 0, kind: int = 0) -> Labels:
    """(track, box) of each."""
    count = len(objects)
    boxes = np.array([box for _, box in objects], np.float32).reshape(count, 4)
    return Labels(np.full(count, t), boxes, np.full(count, kind), np.array([track for track, _ in objects], np.int64))


def answers(
    truth: Sequence[Sequence[tuple[int, Box]]],
    found: Sequence[Sequence[Box]],
    *,
    score: float = 0.9,
    kind: int = 0,
    ignored: Sequence[Sequence[tuple[int, Box]]] | None = None,
    recording: str = "a",
) -> list[Answer]:
    """An instant every 50 ms."""
    result = []
    for number, (objects, boxes) in enumerate(zip(truth, found, strict=True)):
        t = number * 50_000
        left_out = None if ignored is None else labels(*ignored[number], t=t)
        guess = detections(boxes, [kind] * len(boxes), [score] * len(boxes), t=t)
        result.append(Answer(recording, t, labels(*objects, t=t), guess, None, left_out))
    return result


CAR, GONE = [(1, HERE)], []


def test_a_ghost_lasts_from_the_last_label_to_the_last_box_in_a_row() -> None:
    truth = [CAR, CAR, GONE, GONE, GONE, GONE, GONE]
    found = ghosts(answers(truth, [[HERE], [HERE], [HERE], [HERE], [HERE], [], [HERE]]))  # the last box is no ghost any more
    assert (found.ended, found.share, found.median_s, found.p95_s) == (1, 100, pytest.approx(0.15), pytest.approx(0.15))


def test_a_box_that_goes_with_its_object_leaves_none() -> None:
    found = ghosts(answers([CAR, CAR, GONE, GONE], [[HERE], [HERE], [], [HERE]]))
    assert (found.ended, found.share, found.median_s, found.p95_s) == (1, 0, 0, 0)


def test_median_and_percentile_are_of_all_that_ended() -> None:
    truth = [[(track, (100.0 * track, 0, 100.0 * track + 40, 30)) for track in range(4)], *[GONE] * 5]
    last = [[box for track, (_, box) in enumerate(truth[0]) if number <= track] for number in range(6)]  # track n lasts n instants
    found = ghosts(answers(truth, last))
    assert (found.ended, found.share, found.median_s) == (4, 75, pytest.approx(0.075))
    assert found.p95_s == pytest.approx(np.percentile([0, 0.05, 0.1, 0.15], 95))


@pytest.mark.parametrize(
    ("what", "truth", "found", "options"),
    [
        ("unsure", [CAR, GONE], [[HERE], [HERE]], {"score": 0.29}),
        ("of another class", [CAR, GONE], [[HERE], [HERE]], {"kind": 1}),
        ("elsewhere", [CAR, GONE], [[HERE], [THERE]], {}),
        ("on another object", [[(1, HERE), (2, THERE)], [(2, HERE)]], [[HERE], [HERE]], {}),
        ("on an object that is ignored", [CAR, GONE], [[HERE], [HERE]], {"ignored": [[], [(2, HERE)]]}),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_no_ghost_is_a_box(what: str, truth: list, found: list, options: dict) -> None:
    assert ghosts(answers(truth, found, **options)).share == 0, what


def test_a_track_that_comes_back_or_is_only_ignored_has_not_ended() -> None:
    boxes = [[HERE]] * 3
    assert ghosts(answers([CAR, GONE, CAR], boxes)).ended == 0
    assert ghosts(answers([CAR, GONE, GONE], boxes, ignored=[[], CAR, CAR])).ended == 0
    assert ghosts(answers([CAR, CAR, CAR], boxes)) == Ghosts()


def test_what_leaves_the_picture_is_followed_by_its_boxes_of_the_last_half_second() -> None:
    """The last label of a car that drives out is a sliver at the edge, which no ghost of the whole car overlaps by much."""
    leaving = [[(1, (0, 100, float(width), 130))] for width in (40, 30, 20, 10, 3)]
    whole: Box = (0, 100, 35, 130)
    found = ghosts(answers([*leaving, GONE, GONE], [[whole]] * 7))
    assert (found.share, found.median_s) == (100, pytest.approx(0.1))


def test_recordings_end_on_their_own_and_tracks_are_of_one() -> None:
    first = answers([CAR, GONE, GONE], [[HERE]] * 3)
    second = answers([CAR, CAR], [[HERE]] * 2, recording="b")
    found = ghosts([*first, *second])
    assert (found.ended, found.median_s) == (1, pytest.approx(0.1))


def test_labels_without_tracks_tell_nothing() -> None:
    found = ghosts(answers([[(-1, HERE)], GONE], [[HERE], [HERE]]))
    assert found.ended == 0
    assert all(map(math.isnan, (found.share, found.median_s, found.p95_s)))


def test_boxes_where_nothing_is_are_seconds_per_minute_whatever_the_rate_of_labels() -> None:
    truth = [CAR, GONE, GONE, GONE, GONE]
    assert ghosts(answers(truth, [[HERE], [], [THERE], [HERE, THERE], []])).empty_box_s == pytest.approx(60 * 3 / 4)
    assert ghosts(answers(truth, [[HERE], [], [], [], []])).empty_box_s == 0
    assert math.isnan(ghosts(answers([CAR], [[HERE]])).empty_box_s)
    assert math.isnan(ghosts(answers([GONE], [[HERE]], ignored=[CAR])).empty_box_s)  # something is there
