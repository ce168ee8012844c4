"""One worker that takes the newest frame: what it can't do in time is never answered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.evaluation.run.work import NEVER_US, newest_ready, ready_frames
from saccade.types import InputError

TIMES = st.lists(st.integers(0, 2000), max_size=40, unique=True).map(lambda values: np.array(sorted(values), np.int64))


@given(ends_us=TIMES, instants_us=TIMES)
def test_without_delay_the_newest_that_ended(ends_us: np.ndarray, instants_us: np.ndarray) -> None:
    np.testing.assert_array_equal(newest_ready(ends_us, instants_us, 0), np.searchsorted(ends_us, instants_us, side="right") - 1)
    np.testing.assert_array_equal(ready_frames(ends_us, 0), ends_us)


@given(ends_us=TIMES, instants_us=TIMES, step_us=st.integers(0, 500))
def test_answers_only_get_newer_never_early_nor_more_than_two_steps_late(
    ends_us: np.ndarray, instants_us: np.ndarray, step_us: int
) -> None:
    chosen = newest_ready(ends_us, instants_us, step_us)
    assert (np.diff(chosen) >= 0).all()
    answered = chosen >= 0
    assert (ends_us[chosen[answered]] + step_us <= instants_us[answered]).all()
    # What had ended two steps ago is answered, or overtaken: the step under way then ends within one, the next takes the newest.
    assert (chosen >= np.searchsorted(ends_us, instants_us - 2 * step_us, side="right") - 1).all()


@given(ends_us=TIMES, step_us=st.integers(0, 500))
def test_one_worker_that_takes_the_newest(ends_us: np.ndarray, step_us: int) -> None:
    """Microsecond by microsecond, as a clock would run."""
    expected, free_us, waiting = np.full(len(ends_us), NEVER_US), 0, -1
    for now_us in range(0, 2001 + 40 * 500):
        arrived = np.searchsorted(ends_us, now_us, side="right") - 1
        if now_us >= free_us and arrived > waiting:
            expected[arrived], free_us, waiting = now_us + step_us, now_us + step_us, arrived
        if waiting == len(ends_us) - 1:
            break
    np.testing.assert_array_equal(ready_frames(ends_us, step_us), expected)


def test_a_step_longer_than_the_period_skips_frames() -> None:
    ends_us = np.arange(10) * 10
    assert ready_frames(ends_us, 10).tolist() == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]  # just in time: none is lost
    ready_us = ready_frames(ends_us, 25)
    assert np.flatnonzero(ready_us != NEVER_US).tolist() == [0, 2, 5, 7, 9]
    assert ready_us[[0, 2, 5, 7, 9]].tolist() == [25, 50, 75, 100, 125]
    assert newest_ready(ends_us, np.array([0, 24, 25, 60, 1000]), 25).tolist() == [-1, -1, 0, 2, 9]


def test_no_time_goes_through_float32() -> None:
    """Hours, in microseconds: beyond 24 bits, and beyond 32."""
    hours_us = 5 * 3_600_000_000
    ends_us = hours_us + np.array([1, 3, 5])
    assert newest_ready(ends_us, hours_us + np.arange(7), 1).tolist() == [-1, -1, 0, 0, 1, 1, 2]
    assert ready_frames(ends_us, 1).tolist() == [hours_us + 2, hours_us + 4, hours_us + 6]


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="order of time"):
        ready_frames(np.array([2, 1]), 0)
    with pytest.raises(InputError, match="0 or more"):
        ready_frames(np.array([1, 2]), -1)
