"""A live stream under load and in silence: windows are merged by the true time, nothing is lost silently, latency is what it is."""

import time

import numpy as np
import pytest

from saccade.sources.source import Replay
from saccade.stream.counters import Latencies
from saccade.stream.live import Feed, LiveSettings, Overload, Silence
from saccade.stream.stream import Stream
from saccade.types import Events, InputError
from tests.stream.streams import Idle, Script, Slow, detector, events

PERIOD_US = 5_000


@pytest.fixture(scope="module")
def warm() -> Slow:
    """Compiled and loaded: the first step of a process takes seconds."""
    runtime = Slow(detector(), 0)
    Stream(runtime, 200).push(events(span_us=60_000))
    return runtime


def again(runtime: Slow, seconds: float) -> Slow:
    runtime.seconds, runtime.seen, runtime.dt = seconds, 0, []
    return runtime


@pytest.mark.parametrize("window", ["disjoint", "sliding"])
def test_when_steps_take_longer_than_the_period_windows_are_merged(warm: Slow, window: str) -> None:
    runtime, whole = again(warm, 0.02), events(1500, span_us=800_000)
    stream = Stream(runtime, 200, window=window, counts="plain")
    ends = np.array([one.time_us for one in stream.run(Replay(whole))])
    counters = stream.counters
    assert (np.diff(ends) > 0).all()
    assert (ends % PERIOD_US == 0).all()
    assert ends[-1] == (int(whole.t[-1]) // PERIOD_US + 1) * PERIOD_US
    assert counters.steps == len(ends)
    assert counters.merged_windows > counters.steps
    assert (
        counters.merged_windows + counters.steps == counters.windows == (ends[-1] - int(whole.t[0]) // PERIOD_US * PERIOD_US) // PERIOD_US
    )
    np.testing.assert_allclose(np.array(runtime.dt[1:]) * 50_000, np.diff(ends))
    assert counters.events == len(whole)
    assert counters.late_events == counters.dropped_events == 0
    if window == "disjoint":
        assert runtime.seen == len(whole)


def test_latency_counts_from_the_arrival_of_the_last_event(warm: Slow) -> None:
    stream = Stream(again(warm, 0.05), 100)
    list(stream.run(Replay(events(800, span_us=700_000))))
    counters = stream.counters
    assert 50 <= counters.latency_p50_ms <= counters.latency_p95_ms <= counters.latency_p99_ms
    assert counters.latency_p50_ms < 400, "the queue doesn't grow"


def test_a_fast_enough_runtime_answers_every_window() -> None:
    stream = Stream(Idle(), 10)
    found = list(stream.run(Replay(events(500, span_us=800_000))))
    assert stream.counters.merged_windows == 0
    assert [one.time_us for one in found] == list(range(100_000, 800_001, 100_000))


def test_a_source_that_stalls_is_answered_by_the_clock() -> None:
    """The output goes on at its rate, memory decaying, and what comes after the pause isn't late."""
    before, after = events(200, span_us=100_000), events(200, start_us=1_200_000, span_us=50_000)
    stream = Stream(Idle(), 10, live=LiveSettings(patience_us=100_000))
    began_s = time.perf_counter()
    times = [(one.time_us, time.perf_counter() - began_s) for one in stream.run(Script(before, 1.0, after))]
    assert [time_us for time_us, _ in times] == list(range(100_000, 1_300_001, 100_000))
    assert next(came_s for time_us, came_s in times if time_us == 500_000) < 0.9, "answered during the pause, not after it"
    assert stream.counters.late_events == 0


def test_a_fast_replay_that_falters_is_waited_for() -> None:
    """A tenth of a second by the wall clock is ten seconds of its own: the clock must not run ahead of what is still to come."""

    class Hurried(Script):
        speed = 100.0

    before, after = events(200, span_us=100_000), events(200, start_us=100_000, span_us=100_000)
    stream = Stream(Idle(), 10, live=LiveSettings(patience_us=2_000_000))
    assert [one.time_us for one in stream.run(Hurried(before, 0.1, after))] == [100_000, 200_000]
    assert stream.counters.late_events == 0


def test_a_full_queue_drops_the_oldest_and_says_so() -> None:
    whole = events(1000, span_us=100_000)
    with Feed(Script(*(whole[i : i + 100] for i in range(0, 1000, 100))), 250) as feed:
        while not feed.ended:
            time.sleep(0.01)
        taken = feed.take(0)
    assert sum(len(one.events) for one in taken) == 200
    assert feed.dropped == 800
    assert taken[-1].events.t[-1] == whole.t[-1]


def test_a_source_that_can_wait_loses_nothing() -> None:
    class Patient(Script):
        patient = True

    whole, taken = events(1000, span_us=100_000), []
    with Feed(Patient(*(whole[i : i + 100] for i in range(0, 1000, 100))), 250) as feed:
        while not feed.over:
            time.sleep(0.01)
            assert feed._events <= 250
            taken += feed.take(1)
    assert feed.dropped == 0
    np.testing.assert_array_equal(Events.join([one.events for one in taken]).t, whole.t)


def test_overload_is_a_slow_machine_or_a_long_queue() -> None:
    overload = Overload(4)
    assert not overload.merges(1, 0.005)
    assert not overload.merges(4, 0.005)
    assert overload.merges(5, 0.005)
    overload.stepped(0.5)
    assert not overload.merges(2, 0.005), "one hiccup is caught up with"
    for _ in range(5):
        overload.stepped(0.006)
    assert overload.merges(2, 0.005)
    assert not overload.merges(1, 0.005)
    overload.speed = 0.5
    assert not overload.merges(2, 0.005), "slow motion leaves twice the time"
    overload.speed = 0.0
    assert not overload.merges(9, 0.005), "a pause leaves all of it"


def test_the_clock_of_a_paused_source_stands_still() -> None:
    source = Replay(events())
    silence = Silence(source)
    silence.heard(10.0, True)
    assert silence.lasts(10.1, 1.0) == pytest.approx(100_000)
    source.play(0)
    assert silence.lasts(20.0, 1.0) == silence.lasts(30.0, 1.0) == pytest.approx(100_000), "and a pause is no silence"
    source.play(0.5)
    assert silence.lasts(30.2, 1.0) == pytest.approx(100_000), "when it went on isn't known: never ahead of it"
    assert silence.lasts(30.4, 1.0) == pytest.approx(200_000)
    with pytest.raises(InputError, match="nothing came"):
        silence.lasts(32.0, 1.0)


def test_percentiles_are_those_of_all_durations() -> None:
    latencies, random = Latencies(), np.random.default_rng(0)
    durations = random.exponential(0.01, 5000)
    for duration in durations:
        latencies.add(duration)
    for percent in (50, 95, 99):
        assert latencies.percentile_ms(percent) == pytest.approx(1000 * np.percentile(durations, percent), rel=0.02)
    assert np.isnan(Latencies().percentile_ms(50))
