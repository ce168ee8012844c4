"""A stream is what an evaluation of the same recording is, in whatever portions its events come."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.config import presets
from saccade.detection.track import Tracker
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.levels import steps_of
from saccade.evaluation.run.passes import Decoding, Pass, run
from saccade.evaluation.run.timeline import timeline
from saccade.representation.windows import Grid, WindowKind
from saccade.simulate.plan import make_scene
from saccade.simulate.simulation import simulate
from saccade.stream.adaptive import Adaptive
from saccade.stream.intake import Timing
from saccade.stream.live import LiveSettings
from saccade.stream.stream import Stream
from saccade.types import Counts, Events, InputError, Stepping
from tests.evaluation.squares import recording
from tests.stream.streams import EVERYTHING, Idle, Slow, assert_same, detector, events, portions


@pytest.mark.parametrize("stepping", ["direct", "interleaved"])
@pytest.mark.parametrize(("name", "window", "counts"), [
    ("s5-vit-nano", "sliding", "plain"), ("gs5-vit-nano", "sliding", "plain"), ("rvt-nano", "sliding", "plain"),
    ("s5-vit-nano", "disjoint", "plain"), ("gs5-vit-nano", "disjoint", "held"),
    ("red-nano", "sliding", "plain"), ("get-nano", "disjoint", "held"),
])  # fmt: skip
def test_a_stream_in_any_portions_is_the_evaluation(
    tmp_path: Path, name: str, window: WindowKind, counts: Counts, stepping: Stepping
) -> None:
    part, built = recording(tmp_path, 1, seconds=0.2, events_per_s=20_000), detector(name)
    with saccade.open_events(part.path) as reader:
        whole = Events.join(list(reader))
    for rate_hz in (20, 100, 200):
        condition = Condition(rate_hz=rate_hz, window=window, counts=counts, stepping=stepping)
        phase = timeline(part, condition, built.config).phases[0]
        steps = steps_of(phase.ends_us, built.config.window_us, stepping)
        what = Pass(part, phase, steps, np.ones(len(phase.ends_us), np.bool_))
        expected = [one for found in run(built, [what], Decoding(threshold=0, nms_iou=1, maximum=1000)) for one in found.detections]
        origin_us = part.truth.clock.grid(rate_hz).origin_us
        stream = Stream(built, rate_hz, window=window, counts=counts, stepping=stepping, timing=Timing(origin_us=origin_us), **EVERYTHING)
        live = [one for portion in portions(whole, 40, seed=rate_hz) for one in stream.push(portion)] + stream.finish()
        assert_same(live, expected)
        assert stream.counters.steps == len(expected) == stream.counters.windows
        assert stream.counters.events == len(whole)


@pytest.mark.parametrize(
    ("window", "stepping"), [("sliding", "direct"), ("sliding", "interleaved"), ("disjoint", "direct"), ("disjoint", "interleaved")]
)
@pytest.mark.parametrize("events_per_s", [2_000, 20_000])
def test_an_adaptive_stream_is_the_evaluation(tmp_path: Path, window: WindowKind, stepping: Stepping, events_per_s: int) -> None:
    """It steps at the same ends, whether activity or the lowest rate makes them due, on the same events."""
    part, built = recording(tmp_path, 1, seconds=0.4, events_per_s=events_per_s), detector("gs5-vit-nano")
    condition = Condition(rate_hz=200, min_rate_hz=15, window=window, stepping=stepping, counts="held")
    line = timeline(part, condition, built.config)
    (phase,) = line.phases
    what = Pass(part, phase, steps_of(phase.ends_us, 50_000, stepping), np.ones(len(phase.ends_us), np.bool_))
    expected = [one for found in run(built, [what], Decoding(threshold=0, nms_iou=1, maximum=1000)) for one in found.detections]
    origin_us = part.truth.clock.grid(200).origin_us
    stream = Stream(
        built,
        adaptive=Adaptive(min_rate_hz=15, max_rate_hz=200),
        window=window,
        stepping=stepping,
        timing=Timing(origin_us=origin_us),
        **EVERYTHING,
    )
    live = list(stream.run(part.path))
    assert_same(live, expected)
    assert (6 if events_per_s == 2_000 else 30) <= len(live) < 80
    assert (line.frame >= 0).all()


@pytest.mark.parametrize("window", ["sliding", "disjoint"])
def test_portions_change_nothing(window: str) -> None:
    whole = events(span_us=300_000)
    results = []
    for count in (1, 7, 300):
        stream = Stream(detector(), 60, window=window, tracker=True, **EVERYTHING)
        results.append([one for portion in portions(whole, count) for one in stream.push(portion)] + stream.finish())
    for other in results[1:]:
        assert_same(results[0], other, 0)
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one.tracks, two.tracks)


def test_run_takes_paths_readers_simulations_and_events(tmp_path: Path) -> None:
    part = recording(tmp_path, 0, seconds=0.2)
    expected = list(Stream(detector(), 20, **EVERYTHING).run(part.path))
    assert len(expected) >= 4
    assert_same(list(Stream(detector(), 20, **EVERYTHING).run(str(part.path))), expected, 0)
    with saccade.open_events(part.path) as reader:
        assert_same(list(Stream(detector(), 20, **EVERYTHING).run(reader)), expected, 0)
        assert_same(list(Stream(detector(), 20, **EVERYTHING).run(Events.join(list(reader)))), expected, 0)
    simulation = simulate(make_scene(3, 64, 64, seconds=0.2))
    assert len(list(saccade.Stream(Idle(), 20).run(simulation))) >= 3


@pytest.mark.parametrize("window", ["sliding", "disjoint"])
def test_the_rate_may_change_while_it_runs(window: str) -> None:
    """Ends are on the grid of the rate that held, every event is in one disjoint window, and the memory steps by the true time."""
    runtime = Slow(detector(), 0)
    stream = Stream(runtime, 20, window=window, counts="plain")
    whole = events(3000, span_us=400_000)
    ends, changes = [], {100_000: 200, 200_000: 30.0, 300_000: 100}
    for portion in portions(whole, 200):
        ends += [one.time_us for one in stream.push(portion)]
        for when_us in [when_us for when_us in changes if len(portion) and portion.t[-1] >= when_us]:
            stream.rate_hz = changes.pop(when_us)
            assert stream.rate_hz in (200, 30.0, 100)
    ends += [one.time_us for one in stream.finish()]
    assert ends == sorted(set(ends))
    assert ends[:2] == [50_000, 100_000]
    assert all(one in {grid.end(grid.index(one)) for grid in (Grid.of_rate(rate, 0) for rate in (20, 200, 30, 100))} for one in ends)
    assert set(np.diff([one for one in ends if 110_000 <= one <= 200_000])) == {5_000}
    assert set(np.diff([one for one in ends if one > 320_000])) == {10_000}
    np.testing.assert_allclose(np.array(runtime.dt[1:]) * 50_000, np.diff(ends))
    assert stream.counters.late_events == stream.counters.unseen_events == 0
    if window == "disjoint":
        assert runtime.seen == len(whole)


def test_a_changed_rate_sees_the_whole_window_at_once() -> None:
    """From 20 to 200 Hz: the first new window reaches back to events that the old rate was done with."""
    whole, seen = events(3000, span_us=200_000), []
    for first_hz in (20, 200):
        runtime = Slow(detector(), 0)
        stream = Stream(runtime, first_hz)
        stream.push(whole[whole.t < 101_000])
        before, stream.rate_hz = runtime.seen, 200
        assert [one.time_us for one in stream.push(whole[(whole.t >= 101_000) & (whole.t < 108_000)])] == [105_000]
        seen.append(runtime.seen - before)
    assert seen[0] == seen[1] > 0


def test_silence_is_answered_at_the_same_rate() -> None:
    stream = Stream(detector(), 100)
    assert stream.advance_to(1_000_000) == []
    stream.push(events(span_us=50_000))
    silent = stream.advance_to(500_000)
    assert [one.time_us for one in silent] == list(range(60_000 if silent[0].time_us > 50_000 else 50_000, 500_001, 10_000))
    sparse = Stream(detector(), 100)
    two = Events.join([events(10, span_us=1000), events(10, start_us=400_000, span_us=1000)])
    assert len(sparse.push(two)) == 40


def test_an_adaptive_rate_answers_more_often_when_more_happens() -> None:
    quiet, busy = events(50, span_us=1_000_000), events(20_000, start_us=1_000_000, span_us=500_000)
    whole = Events.join([quiet, busy])
    found = []
    for count in (1, 100):
        runtime = Slow(detector(), 0)
        stream = Stream(runtime, adaptive=Adaptive(min_rate_hz=5, max_rate_hz=100), window="disjoint", counts="plain")
        found.append(
            [one.time_us for portion in portions(whole, count) for one in stream.push(portion)] + [one.time_us for one in stream.finish()]
        )
    ends = np.array(found[0])
    assert found[0] == found[1]
    assert (ends % 10_000 == 0).all()
    np.testing.assert_array_equal(np.diff(ends[ends <= 1_000_000]), 200_000)
    assert set(np.diff(ends[ends > 1_010_000])) == {10_000}
    np.testing.assert_allclose(np.array(runtime.dt[1:]) * 50_000, np.diff(ends))
    assert runtime.seen == len(whole)
    assert stream.counters.skipped_windows + stream.counters.steps == stream.counters.windows
    with pytest.raises(InputError, match="adaptive"):
        stream.rate_hz = 10


def test_memory_is_what_the_docstring_says() -> None:
    direct, interleaved = (Stream(detector(), 200, stepping=stepping) for stepping in ("direct", "interleaved"))
    for stream in (direct, interleaved):
        stream.push(events(span_us=300_000))
    one = direct.memory_bytes
    assert one > 0
    assert 10 * one <= interleaved.memory_bytes <= 11 * one


def test_reset_forgets_everything() -> None:
    whole = events(span_us=200_000)
    stream = Stream(detector(), 50, tracker=Tracker(), **EVERYTHING)
    first = stream.push(whole)
    stream.reset()
    assert stream.counters.events == 0
    assert_same(stream.push(whole), first, 0)
    stream.reset()
    assert stream.push(events(width=32, height=32))  # another sensor


def test_events_that_are_in_no_frame_are_counted() -> None:
    late = Stream(detector(), 20)
    late.push(events(span_us=100_000))
    late.push(events(7, span_us=10_000))
    late.push(events(10, start_us=200_000, span_us=10_000))
    assert late.counters.late_events == 7
    slow = Stream(detector(), 5)
    slow.push(events(1000, span_us=1_000_000))
    slow.finish()
    assert 650 < slow.counters.unseen_events < 850  # three quarters fall between frames of 50 ms each 200 ms
    outside = Stream(detector(), 20, width=32, height=32)
    whole = events(100, span_us=100_000)
    outside.push(Events(whole.t, whole.x, whole.y, whole.p, 32, 32))
    assert outside.counters.outside_events == int((whole.x >= 32).sum()) > 0


def test_wrong_settings_are_named() -> None:
    built = detector()
    for match, options in {
        "rate_hz": {"rate_hz": 0}, "both or none": {"width": 5}, "in this order": {"adaptive": Adaptive(min_rate_hz=20, max_rate_hz=10)},
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=match):
            Stream(built, **options)
    for kind, options in ((Adaptive, {"events_per_step": 0}), (LiveSettings, {"most_waiting": 0}), (LiveSettings, {"queue": 0})):
        with pytest.raises(InputError, match=next(iter(options))):
            kind(**options)
    with pytest.raises(InputError, match="rate_hz"):
        Stream(built).rate_hz = -1
    with pytest.raises(InputError, match="no such file"):
        Stream("nowhere.safetensors")


PROGRAM = """
import sys, saccade
assert "torch" not in sys.modules and "Stream" in saccade.__all__
from tests.stream.streams import Idle
for source, options in (
    (Idle(), {"stepping": "diagonal"}), (Idle(), {"faults": "ignore"}), (Idle(), {"window": "round"}), ("a.onnx", {"runtime": "tensorrt"})
):
    try:
        saccade.Stream(source, **options)
    except saccade.InputError as error:
        print(error)
"""


def test_stream_is_found_lazily_and_names_wrong_choices() -> None:
    """In a process without the tests' type checker, as users have it."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    for line, word in zip(result.stdout.splitlines(), ("diagonal", "ignore", "round", "tensorrt"), strict=True):
        assert word in line
        assert "expected" in line
    assert saccade.Stream is Stream


def long_run(*arguments: object) -> dict[str, float]:
    """In a process of its own: the tests' type checker takes longer than the stream."""
    command = [sys.executable, "-m", "tests.stream.streams", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "seconds", "rate_hz", "stepping"), [
    ("idle", 120, 200, "direct"), ("idle", 120, 200, "interleaved"), ("idle", 3600, 7, "direct"), ("nano", 5, 200, "interleaved"),
])  # fmt: skip
def test_long_runs_keep_the_grid_and_the_memory(runtime: str, seconds: int, rate_hz: int, stepping: Stepping) -> None:
    """Two minutes at 200 Hz, an hour at a rate whose step is no whole microseconds; `python -m tests.stream.streams` runs longer."""
    result = long_run(runtime, seconds, rate_hz, stepping)
    assert result["growth_mb"] < 8
    assert result["steps"] >= (seconds - 1) * rate_hz
    assert result["off_grid"] == 0


def test_presets_name_no_runtime() -> None:
    """A Runtime, a Detector or a file: what Stream takes is told apart."""
    assert Stream(Idle()).runtime.config == presets["s5-vit-nano"]()
