"""Law: frames at any rate, from chunks cut anywhere, equal the histograms of their windows, each built from nothing."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.events.open import open_events
from saccade.representation.canvas import Canvas
from saccade.representation.frames import Framer, frames
from saccade.representation.histogram import stacked_histogram
from saccade.representation.windows import windows
from saccade.types import Events, InputError

RATES = [20, 40, 80, 100, 200, 333, 1000]
SIZE = (12, 10)


def make_events(seed: int, count: int, duration_us: int, disorder_us: int = 0, beyond: int = 0, pauses: int = 0) -> Events:
    draw = np.random.default_rng(seed)
    t = np.sort(draw.integers(0, duration_us, count))
    for pause in draw.integers(0, max(count, 1), pauses):
        t[pause:] += draw.integers(0, 2_000_000)
    t += draw.integers(-disorder_us, 1, count) * (draw.random(count) < 0.1)
    x, y = draw.integers(0, SIZE[0] + beyond, count), draw.integers(0, SIZE[1] + beyond, count)
    return Events(t.astype(np.int64), x.astype(np.uint16), y.astype(np.uint16), draw.random(count) < 0.5, *SIZE)


def assert_equal_to_windows(events: Events, cuts: list[int], rate: float, *, slack_us: int = 0, canvas=None, reuse: bool = True, **options):
    borders = [0, *sorted(cut % (len(events) + 1) for cut in cuts), len(events)]
    chunks = [events[a:b] for a, b in pairwise(borders)]
    bins, clip, mode = options.get("bins", 10), options.get("clip", 10), options.get("mode", "exact")
    cut = {name: options[name] for name in ("kind", "window_us") if name in options}
    made = frames(chunks, rate, slack_us=slack_us, canvas=canvas, reuse=reuse, **options)
    for frame, window in zip(made, windows([events], rate, slack_us=slack_us, **cut), strict=True):
        assert (frame.start_us, frame.end_us, frame.events, frame.late) == (window.start_us, window.end_us, len(window), window.late)
        assert frame.outside == ((window.x >= SIZE[0]) | (window.y >= SIZE[1])).sum()
        assert np.array_equal(frame.data, stacked_histogram(window, bins, clip, canvas=canvas, mode=mode))


@pytest.mark.parametrize("rate", RATES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 3_000),
    duration_us=st.sampled_from([1, 60_000, 700_000]),
    disorder_us=st.sampled_from([0, 0, 4_000, 80_000]),
    slack_us=st.sampled_from([0, 3_000]),
    pauses=st.sampled_from([0, 0, 1]),
    cuts=st.lists(st.integers(0, 3_000), max_size=20),
    reuse=st.booleans(),
)
def test_frames_equal_their_windows(rate, seed, count, duration_us, disorder_us, slack_us, pauses, cuts, reuse):
    events = make_events(seed, count, duration_us, disorder_us, beyond=seed % 3, pauses=pauses)
    assert_equal_to_windows(events, cuts, rate, slack_us=slack_us, reuse=reuse)


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 125, "bins": 10},  # the window is no multiple of the step
        {"rate": 200, "bins": 3},  # bins of unequal length
        {"rate": 200, "bins": 1},
        {"rate": 160, "window_us": 100_000, "bins": 5, "clip": 255},
        {"rate": 10},  # windows with holes between them
        {"rate": 30, "kind": "disjoint"},
        {"rate": 200, "kind": "disjoint", "reuse": False},
        {"rate": 200, "mode": "published"},
        {"rate": 200, "canvas": Canvas.pad(*SIZE, 8)},
        {"rate": 80, "canvas": Canvas.half(*SIZE, "events", 4)},
        {"rate": 200, "canvas": Canvas.half(*SIZE, "published", 4)},
    ],
    ids=str,
)
def test_frames_equal_their_windows_with_other_settings(options):
    options = dict(options)
    assert_equal_to_windows(make_events(1, 4_000, 900_000, 2_000, 1, 1), [5, 700, 2_500], options.pop("rate"), **options)


@pytest.mark.parametrize(("rate", "rings"), [(20, 0), (40, 1), (80, 2), (100, 1), (200, 1), (333, 0), (1000, 5)])
def test_how_often_an_event_is_counted(rate, rings):
    framer = Framer(rate)
    list(framer.push(make_events(0, 100, 10**6)))
    assert framer.buffer is not None
    assert len(framer.buffer.rings) == rings


@pytest.mark.parametrize("rate", RATES)
def test_frames_of_a_real_recording_equal_their_windows(rate, shared):
    """The Gen1 clip around its first hole, in its own chunks and sizes."""
    with open_events(shared / "data" / "gen1" / "clip_td.dat") as reader:
        piece = list(reader.stream(20_900_000, 21_100_000))
    built = 0
    for frame, window in zip(frames(piece, rate, reuse=True), windows(piece, rate), strict=True):
        if built % max(1, rate // 100) == 0:
            np.testing.assert_array_equal(frame.data, stacked_histogram(window))
        assert (frame.start_us, frame.end_us, frame.events) == (window.start_us, window.end_us, len(window))
        built += 1
    assert built == pytest.approx(0.2 * rate, abs=2)


def test_copies_stay_valid():
    events = make_events(0, 5_000, 500_000)
    kept = list(frames([events], 200))
    for frame, window in zip(kept, windows([events], 200), strict=True):
        assert np.array_equal(frame.data, stacked_histogram(window))


def test_a_pause_in_a_live_stream_and_its_end():
    framer = Framer(200, reuse=True)
    before = [frame.data.sum() for frame in framer.push(make_events(0, 2_000, 100_000))]
    pause = [frame.data.sum() for frame in framer.advance_to(60_000_000)]
    late = make_events(1, 1_000, 20_000)
    after = Events(late.t + 60_000_000, late.x, late.y, late.p, *SIZE)
    again = [(frame.data.sum(), frame.events) for frame in [*framer.push(after), *framer.finish()]]
    assert before[-1] > 0
    assert pause[-1] == 0
    assert len(pause) == 12_000 - len(before)
    assert again[-1][0] <= again[-1][1] == 1_000


@pytest.mark.parametrize(
    "options",
    [{"bins": 0}, {"clip": 256}, {"window_us": 9}, {"rate_hz": -1}, {"rate_hz": 200_000, "kind": "disjoint"}, {"window_us": 0}],
    ids=str,
)
def test_bad_settings(options):
    with pytest.raises(InputError, match=r"bins|clip|window|rate"):
        frames([], **{"rate_hz": 200, **options})


def test_unknown_words_without_the_shape_checks_of_the_tests():
    """The checks refuse a wrong word before our code sees it, so this one runs without them, as users do."""
    calls = [
        'windows([], 20, "slidng")',
        'Framer(20, mode="publshed")',
        'Canvas.half(8, 6, "nearest")',
        'windows([], "fast")',
    ]
    program = f"""
from saccade.representation.canvas import Canvas
from saccade.representation.frames import Framer
from saccade.representation.windows import windows
from saccade.types import InputError
for call in {calls!r}:
    try:
        eval(call)
    except InputError as error:
        print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert [line.split(";")[0] for line in told.splitlines()[:3]] == [
        "windows: unknown kind='slidng'",
        "histogram: unknown mode='publshed'",
        "Canvas.half: unknown how='nearest'",
    ]
    assert "rate_hz='fast'" in told
