"""Windows: an exact grid, half-open limits, and no event that is neither in a window nor counted as late."""

import logging
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.representation.windows import Cutter, Grid, windows
from saccade.types import Events, InputError


def make_events(times, width=8, height=6) -> Events:
    t = np.array(times, np.int64)
    number = np.arange(len(t))  # x and y number the events, so that each can be told from the others
    return Events(t, (number % 251).astype(np.uint16), (number // 251).astype(np.uint16), number % 2 == 0, width, height)


def cut_anywhere(events: Events, cuts) -> list[Events]:
    borders = [0, *sorted(cut % (len(events) + 1) for cut in cuts), len(events)]
    return [events[a:b] for a, b in pairwise(borders)]


def identity(events: Events) -> list[tuple[int, int, int]]:
    return sorted(zip(events.t.tolist(), events.x.tolist(), events.y.tolist(), strict=True))


def slow_windows(events: Events, rate: Fraction, kind: str, window_us: int, origin_us: int, slack_us: int):
    """The obvious twin: one event after the other, every end tried. Returns (start, end, late, events) of each window."""

    def end(k):
        return origin_us + k * 1_000_000 // rate

    def passed(time_us):  # ends at or before
        k = (time_us - origin_us) * rate // 1_000_000 - 2
        while end(k + 1) <= time_us:
            k += 1
        return k

    newest, kept, late = None, [], []
    for i, t in enumerate(events.t.tolist()):
        if newest is not None and passed(t) < passed(newest - slack_us):
            late.append(newest)
        else:
            kept.append(i)
        newest = t if newest is None else max(newest, t)
    result, reported, times = [], 0, events.t[kept]
    for k in range(passed(int(times.min())) + 1, passed(int(times.max())) + 2):
        start = end(k) - window_us if kind == "sliding" else end(k - 1)
        seen = sum(mark < end(k) + slack_us for mark in late)
        inside = np.array(kept)[(times >= start) & (times < end(k))].astype(np.int64)
        result.append((start, end(k), seen - reported, identity(events[inside])))
        reported = seen
    return result


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-300, 700), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=12),
    st.sampled_from([Fraction(10_000), Fraction(30_000), Fraction(333_333, 10), Fraction(1_000_000), Fraction(5_994)]),
    st.sampled_from(["sliding", "disjoint"]),
    st.sampled_from([1, 50, 170]),
    st.sampled_from([0, -13, 1_700_000_000_000_000]),
    st.sampled_from([0, 1, 40, 400]),
    st.booleans(),
)
def test_equal_to_one_event_after_the_other_with_chunks_cut_anywhere(times, cuts, rate, kind, window_us, origin_us, slack_us, ordered):
    events = make_events(np.array(sorted(times) if ordered else times) + origin_us)
    chunks = cut_anywhere(events, cuts)
    got = list(windows(chunks, rate, kind, window_us, origin_us=origin_us, slack_us=slack_us))
    assert [(w.start_us, w.end_us, w.late, identity(w)) for w in got] == slow_windows(events, rate, kind, window_us, origin_us, slack_us)


@pytest.mark.parametrize("rate", [30, 29.97, 333, Fraction(60_000, 1_001)])
def test_the_grid_does_not_drift_in_an_hour(rate):
    hour = 3_600_000_000
    exact = Fraction(rate).limit_denominator(1_001)
    ends = [window.end_us for window in windows([make_events([hour - 10**6, hour])], rate)]
    count = hour * exact // 1_000_000
    assert ends[-2:] == [(count + k) * 1_000_000 // exact for k in (0, 1)]
    assert len(ends) == count + 1 - (hour - 10**6) * exact // 1_000_000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(10**16), 10**16), max_size=20), st.fractions(Fraction(1, 100), 10**6, max_denominator=10**6))
def test_grid_index_is_the_newest_end_at_or_before(times, rate):
    grid = Grid.of_rate(rate, 17)
    for time_us, k in zip(times, grid.indices(np.array(times, np.int64)), strict=True):
        assert grid.index(time_us) == k
        assert grid.end(int(k)) <= time_us < grid.end(int(k) + 1)


def test_windows_are_half_open_and_empty_ones_come_out():
    got = list(windows([make_events([0, 49_999, 50_000, 260_000])], 20, "disjoint"))
    assert [(w.start_us, w.end_us, w.t.tolist()) for w in got] == [
        (0, 50_000, [0, 49_999]),
        (50_000, 100_000, [50_000]),
        (100_000, 150_000, []),
        (150_000, 200_000, []),
        (200_000, 250_000, []),
        (250_000, 300_000, [260_000]),
    ]


def test_sliding_equals_disjoint_at_the_training_rate():
    events = make_events(np.sort(np.random.default_rng(0).integers(0, 10**6, 500)))
    for a, b in zip(windows([events], 20), windows([events], 20, "disjoint"), strict=True):
        assert (a.start_us, a.end_us, identity(a)) == (b.start_us, b.end_us, identity(b))


def test_late_events_are_counted_and_reported_once(caplog):
    chunks = [make_events([10, 60_000, 20, 30, 61_000, 120_000]), make_events([40, 130_000])]
    with caplog.at_level(logging.WARNING, "saccade"):
        got = list(windows(chunks, 20, "disjoint"))
    assert [w.late for w in got] == [0, 2, 1]
    assert [len(w) for w in got] == [1, 2, 2]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == ["windows: 3 events came too late for any window"]


def test_slack_waits_for_disorder():
    chunks = [make_events([10, 60_000, 49_000, 90_000])]
    assert [w.t.tolist() for w in windows(chunks, 20, "disjoint", slack_us=11_000)] == [[10, 49_000], [60_000, 90_000]]


def test_a_silent_live_source_is_moved_by_its_clock():
    cutter = Cutter(100)
    assert list(cutter.advance_to(10**9)) == []  # nothing came yet
    assert list(cutter.push(make_events([1_000]))) == []
    assert [(w.end_us, len(w)) for w in cutter.advance_to(30_500)] == [(10_000, 1), (20_000, 0), (30_000, 0)]
    assert list(cutter.push(make_events([29_999, 30_001]))) == []
    assert [(w.end_us, len(w), w.late) for w in cutter.finish()] == [(40_000, 1, 1)]
    assert cutter.late == 1


def test_time_that_stands_still_holds_no_memory():
    cutter = Cutter(20)
    list(cutter.push(make_events([10**9])))
    for _ in range(100):
        assert list(cutter.push(make_events(range(1_000)))) == []
    assert len(cutter._late) == 1
    assert [w.late for w in cutter.finish()] == [100_000]
    assert cutter.late == 100_000


def test_what_is_held_stays_bounded_by_window_and_chunk():
    cutter, held = Cutter(200), []
    for k in range(2_000):
        chunk = make_events(np.arange(100) * 10 + k * 1_000)
        held.extend(sum(len(piece.events) for piece in cutter._chunks) for _ in cutter.push(chunk))
    assert len(held) > 300
    assert max(held) <= 2 * 5_000 + 1_000  # window of 50 ms at 100,000 events per second, some of it seen already


def test_a_jump_is_lazy_and_one_beyond_reason_is_an_error():
    cutter = Cutter(1_000)
    found = cutter.push(make_events([0, 3_600_000_000]))
    assert next(found).end_us == 1_000
    with pytest.raises(InputError, match=r"jumps from 0 to 3600000001 us.*max_gap_us"):
        list(windows([make_events([0]), make_events([3_600_000_001])], 20))


def test_nothing_in_nothing_out():
    assert list(windows([], 20)) == []
    assert list(windows([Events.empty(8, 6)], 20)) == []


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e-9, 2e6, Fraction(0)])
def test_bad_rates(rate):
    with pytest.raises(InputError, match="rate_hz"):
        windows([], rate)


@pytest.mark.parametrize("option", [{"window_us": 0}, {"slack_us": -1}, {"max_gap_us": 0}])
def test_bad_options(option):
    with pytest.raises(InputError, match=next(iter(option))):
        windows([], 20, **option)


def test_bad_sources():
    with pytest.raises(InputError, match="sensor changed"):
        list(windows([make_events([0]), make_events([1], width=9)], 20))


@given(
    st.lists(st.integers(0, 400_000), min_size=1, max_size=80),
    st.lists(st.tuples(st.integers(0, 80), st.sampled_from([3, 20, 30, 60, 200])), max_size=4),
    st.integers(0, 20_000),
)
def test_a_changed_rate_leaves_no_event_out(times, changes, slack_us) -> None:
    """Disjoint windows still follow one another without a gap, and each event is in one of them or late; also through a saved state."""
    events, cutter, found = make_events(times), Cutter(20, slack_us=slack_us), []
    for i in range(len(events)):
        found += cutter.push(events[i : i + 1])
        for _, rate_hz in [change for change in changes if change[0] == i]:
            cutter.change_rate(rate_hz)
            other = Cutter(rate_hz, slack_us=slack_us)
            other.restore(cutter.state())
            cutter = other
            found += cutter.complete()
    found += cutter.finish()
    for before, after in pairwise(found):
        assert before.end_us == after.start_us < after.end_us
    for window in found:
        assert ((window.t >= window.start_us) & (window.t < window.end_us)).all()
    assert sum(len(window) for window in found) + cutter.late == len(events)
    assert sum(window.late for window in found) <= cutter.late
