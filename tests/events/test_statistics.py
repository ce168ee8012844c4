"""One streaming pass equals the obvious computation on the whole recording, in any chunks."""

import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.events.open import open_events
from saccade.events.statistics import Hole, measure, sparkline
from saccade.samples import STREET
from saccade.types import Events, InputError
from tests.make.events import events, random_events


def at(times: np.ndarray, **columns) -> Events:
    zeros = np.zeros(len(times), np.uint16)
    return Events(np.asarray(times, np.int64), columns.get("x", zeros), columns.get("y", zeros), zeros.astype(np.bool_), 16, 12)


@pytest.mark.parametrize("compiled_from", [0, 20, 10**9], ids=["compiled", "both", "numpy"])
@settings(deadline=None, max_examples=80)
@given(
    recording=st.one_of(events(ordered=False, width=5, height=4), events(width=5, height=4)),
    length=st.integers(1, 50),
    size=st.tuples(st.integers(1, 6), st.integers(1, 5)),
)
def test_equals_the_obvious_computation(compiled_from, recording, length, size):
    width, height = size
    chunks = [recording[i : i + length] for i in range(0, len(recording), length)]
    with patch("saccade.events.statistics.compiler_pays", lambda count: count >= compiled_from):
        found = measure(chunks, width=width, height=height)
    assert found == measure(chunks, width=width, height=height)
    t, x, y, p = recording.t, recording.x, recording.y, recording.p
    assert found.count == len(t)
    assert found.positive == p.sum()
    inside = (x < width) & (y < height)
    assert found.outside == (~inside).sum()
    assert found.active_pixels == len(set(zip(x[inside].tolist(), y[inside].tolist(), strict=True)))
    late = np.flatnonzero(t < np.maximum.accumulate(t)) if len(t) else np.array([], int)
    assert (found.backwards, found.first_backwards) == (len(late), late[0] if len(late) else -1)
    last: dict[tuple, int] = {}
    duplicates = 0
    for i in np.flatnonzero(inside).tolist():
        place = (int(x[i]), int(y[i]), bool(p[i]))
        duplicates += last.get(place) == int(t[i])
        last[place] = int(t[i])
    assert found.duplicates == duplicates
    if len(t):
        assert (found.start_us, found.end_us) == (t.min(), t.max() + 1)
        assert found.largest_step_us == max(0, (np.maximum.accumulate(t) - t).max())
        assert len(found.rates) <= 60
        spans = [min(found.bar_us, found.end_us - (found.start_us + i * found.bar_us)) for i in range(len(found.rates))]
        if not len(late):
            counts = np.histogram(t, found.start_us + np.arange(len(spans) + 1) * found.bar_us)[0]
            np.testing.assert_allclose(np.array(found.rates) * spans / 1e6, counts)
        assert found.peak_rate >= found.mean_rate * 0.3


@given(times=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=50), length=st.integers(1, 20))
@settings(deadline=None, max_examples=80)
def test_every_event_is_in_some_bar_however_times_jump(times, length):
    recording = at(np.array(times))
    found = measure([recording[i : i + length] for i in range(0, len(times), length)])
    first_us = found.end_us - len(found.rates) * found.bar_us
    assert first_us <= found.start_us
    assert 1 <= len(found.rates) <= 60
    assert min(found.rates) >= 0


def test_a_short_recording_is_described_without_the_compiler(shared):
    """numba takes longer to load than numpy takes to count: half of the time of `saccade info`."""
    code = "import sys; from saccade.cli import info; info(sys.argv[1]); assert 'numba' not in sys.modules and 'torch' not in sys.modules"
    for path in (shared / "data/gen1/clip_td.dat", STREET):
        ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr


def test_numpy_counts_the_gen1_clip_as_compiled_loops_do(shared):
    found = []
    for pays in (True, False):
        with (
            patch("saccade.events.statistics.compiler_pays", lambda _, pays=pays: pays),
            patch("saccade.events.prophesee.compiler_pays", lambda _, pays=pays: pays),
            open_events(shared / "data/gen1/clip_td.dat") as reader,
        ):
            found.append(measure(reader))
    assert found[0] == found[1]


def test_the_gen1_clip_has_two_holes_and_many_duplicates(shared):
    with open_events(shared / "data/gen1/clip_td.dat") as reader:
        found = measure(reader)
        whole = reader.between(0, 10**9)
    assert [(round(hole.start_us, -4), round(hole.length_us, -3)) for hole in found.holes] == [(21_000_000, 20_000), (21_500_000, 20_000)]
    rows = (whole.t - whole.t[0]) << 32 | whole.x.astype(np.int64) << 16 | whole.y.astype(np.int64) << 1 | whole.p
    assert found.duplicates == len(rows) - len(np.unique(rows))
    text = "\n".join(found.warnings(reader.path))
    assert f"saccade convert {reader.path} OUT --drop-duplicates" in text
    assert "20.0 ms at 20.999999 s" in text


def test_sparse_and_bursty_recordings_have_no_holes():
    random = np.random.default_rng(0)
    sparse = at(np.cumsum(random.exponential(20_000, 20_000)))  # 50 events a second
    frames = at(np.repeat(np.arange(0, 10_000_000, 20_000), 50))  # a simulator at 50 Hz
    bursts = at((np.arange(200)[:, None] * 500_000 + np.arange(1000) * 10).ravel())  # 10 ms of events twice a second
    for recording in (sparse, frames, bursts):
        assert measure([recording]).hole_count == 0


def test_a_hole_in_a_sparse_recording_is_found():
    times = np.arange(0, 10_000_000, 1000)
    times[5000:] += 400_000
    found = measure([at(times)])
    assert (found.hole_count, found.holes) == (1, (Hole(4_999_000, 401_000),))


def test_warnings_name_the_repair():
    recording = at(np.array([10, 20, 15, 15, 30]), x=np.array([1, 2, 3, 3, 99], np.uint16))
    text = "\n".join(measure([recording]).warnings("a.dat"))
    for repair in ("--sort", "--drop-duplicates", "--clip-to-sensor"):
        assert f"`saccade convert a.dat OUT {repair}`" in text
    assert "first at event 2, by up to 5 us" in text
    assert measure([random_events(50, width=300, height=200)]).warnings() == []


def test_a_hot_pixel_is_counted():
    background = random_events(5000, width=100, height=100, span_us=10**6)
    hot = random_events(3000, width=1, height=1, span_us=10**6, seed=1)
    joined = Events.join([background, Events(hot.t, hot.x, hot.y, hot.p, 100, 100)])
    found = measure([joined[np.argsort(joined.t, kind="stable")]])
    assert found.hot_pixels == 1
    assert found.hot_events >= 3000


def test_nothing_and_one_event():
    none = measure([], width=16, height=12)
    assert (none.count, none.duration_us, none.mean_rate, none.peak_rate, none.rates) == (0, 0, 0.0, 0.0, ())
    assert none.warnings() == ["no events"]
    one = measure([at(np.array([7]))])
    assert (one.count, one.start_us, one.end_us, len(one.rates)) == (1, 7, 8, 1)
    with pytest.raises(InputError, match="width"):
        measure([])


def test_sparkline():
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([0.001, 8]) == "▁█"  # little isn't nothing
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
