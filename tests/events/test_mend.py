"""Mending equals what numpy does to the whole recording, in any chunks; doing it twice changes nothing more."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.events.mend import Mended, clip_to_sensor, drop_duplicates, sort, start_at_zero
from saccade.types import Events, InputError
from tests.make.events import assert_equal, events, random_events

law = settings(deadline=None, max_examples=60)
unordered = events(ordered=False, latest_us=60, width=5, height=4, most=120)


def cut(recording: Events, length: int) -> list[Events]:
    return [recording[i : i + length] for i in range(0, len(recording), length)]


def join(chunks, like: Events) -> Events:
    parts = list(chunks)
    return Events.join(parts) if parts else Events.empty(like.width, like.height)


@law
@given(recording=unordered, length=st.integers(1, 50), run=st.integers(1, 60))
def test_sort_is_numpys_stable_sort_of_the_whole(recording, length, run):
    mended = Mended()
    result = join(sort(cut(recording, length), mended, run=run), recording)
    assert_equal(result, recording[np.argsort(recording.t, kind="stable")])
    assert mended.late == sum(bool((recording.t[:i] > time).any()) for i, time in enumerate(recording.t))
    again = Mended()
    assert_equal(join(sort([result], again, run=run), recording), result)
    assert again == Mended()


@law
@given(recording=events(latest_us=20, width=3, height=3, most=120), length=st.integers(1, 50))
def test_of_equal_events_the_first_stays(recording, length):
    mended = Mended()
    result = join(drop_duplicates(cut(recording, length), mended), recording)
    rows = np.stack([recording.t, recording.x, recording.y, recording.p], 1)
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    assert_equal(result, recording[first])
    assert mended.duplicates == len(recording) - len(first)
    assert_equal(join(drop_duplicates([result], Mended()), recording), result)


@law
@given(recording=unordered, length=st.integers(1, 50), width=st.integers(1, 6), height=st.integers(1, 5))
def test_what_is_outside_the_sensor_goes_and_the_rest_stays(recording, length, width, height):
    smaller = Events(recording.t, recording.x, recording.y, recording.p, width, height)
    mended = Mended()
    result = join(clip_to_sensor(cut(smaller, length), mended), smaller)
    inside = (recording.x < width) & (recording.y < height)
    assert_equal(result, smaller[inside])
    assert mended.outside == np.count_nonzero(~inside)
    assert_equal(join(clip_to_sensor([result], Mended()), smaller), result)
    assert len(join(drop_duplicates([smaller], Mended()), smaller)) >= np.count_nonzero(~inside)  # outside: passed on, no crash


@law
@given(recording=events(), length=st.integers(1, 50))
def test_the_first_event_comes_at_zero(recording, length):
    mended = Mended()
    result = join(start_at_zero(cut(recording, length), mended), recording)
    np.testing.assert_array_equal(result.t + mended.shift_us, recording.t)
    assert len(recording) == 0 or result.t[0] == 0
    assert_equal(join(start_at_zero([result], Mended()), recording), result)


def test_the_steps_compose_and_the_input_stays_as_it_was():
    recording = random_events(5000, width=20, height=10, span_us=300)[::-1]
    before = recording.t.copy()
    mended = Mended()
    chunks = start_at_zero(drop_duplicates(sort(clip_to_sensor(cut(recording, 700), mended), mended, run=900), mended), mended)
    result = join(chunks, recording)
    assert (np.diff(result.t) >= 0).all()
    assert len(result) == 5000 - mended.duplicates
    np.testing.assert_array_equal(recording.t, before)


def test_sort_leaves_nothing_behind_when_it_is_stopped(tmp_path):
    chunks = sort(cut(random_events(1000)[::-1], 10), Mended(), run=50, folder=tmp_path)
    next(chunks)
    chunks.close()
    assert os.listdir(tmp_path) == []


def test_a_sensor_that_no_memory_holds_is_refused():
    huge = Events(np.zeros(1, np.int64), np.zeros(1, np.uint16), np.zeros(1, np.uint16), np.zeros(1, np.bool_), 65535, 65535)
    with pytest.raises(InputError, match="65535 x 65535"):
        list(drop_duplicates([huge], Mended()))
