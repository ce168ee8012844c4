"""The kernel against a slow twin that counts in int64, and against what the published code computed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saccade.representation.canvas import Canvas
from saccade.representation.histogram import held, stacked_histogram
from saccade.types import InputError, Window

SHARED = Path(__file__).parents[3] / "shared"


def make_window(t, x, y, p, size, start_us, end_us) -> Window:
    return Window(
        np.asarray(t, np.int64), np.asarray(x, np.uint16), np.asarray(y, np.uint16), np.asarray(p, np.bool_), *size, start_us, end_us
    )


def slow_histogram(window: Window, bins: int, clip: int, canvas: Canvas) -> np.ndarray:
    """The obvious twin: one event after the other, counted in int64, clipped at the end."""
    counts = np.zeros((2 * bins, canvas.height, canvas.width), np.int64)
    for t, x, y, p in zip(window.t.tolist(), window.x.tolist(), window.y.tolist(), window.p.tolist(), strict=True):
        if x < window.width and y < window.height and canvas.columns[x] >= 0 and canvas.rows[y] >= 0:
            bin_index = (t - window.start_us) * bins // (window.end_us - window.start_us)
            counts[p * bins + bin_index, canvas.rows[y], canvas.columns[x]] += 1
    return np.minimum(counts, clip).astype(np.uint8)


CANVASES = [
    Canvas.scale_to(7, 5, (4, 4), 2),
    Canvas.pad(7, 5, 1),
    Canvas.pad(7, 5, (4, 8)),
    Canvas.half(7, 5, "events", 2),
    Canvas.half(7, 5, "published", 1),
]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 4_000),
    st.integers(1, 12),
    st.sampled_from([1, 2, 10, 254, 255]),
    st.sampled_from(CANVASES),
    st.booleans(),
    st.sampled_from([0, 3]),
    st.sampled_from([12, 13, 100, 50_000, 1 << 40]),
)
def test_saturating_bytes_equal_a_wide_counter(seed, count, bins, clip, canvas, ordered, beyond, duration_us):
    draw = np.random.default_rng(seed)
    t = draw.integers(-17, duration_us - 17, count)
    # few pixels, so that counts pass the clip and would wrap at 256
    x, y = draw.integers(0, draw.integers(1, 8) + beyond, count), draw.integers(0, draw.integers(1, 6) + beyond, count)
    window = make_window(np.sort(t) if ordered else t, x, y, draw.integers(0, 2, count), (7, 5), -17, duration_us - 17)
    assert np.array_equal(stacked_histogram(window, bins, clip, canvas=canvas), slow_histogram(window, bins, clip, canvas))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]), st.sampled_from([10, 255]))
def test_held_counts_are_those_of_events_that_go_on_and_on(seed, parts, clip):
    """PARTS bins of 5 ms each, which the 50 ms before have seen again and again: the long window's own counts."""
    draw = np.random.default_rng(seed)
    length_us, count = 5_000 * parts, draw.integers(0, 200)
    t, x, y, p = (
        np.sort(draw.integers(0, length_us, count)),
        draw.integers(0, 7, count),
        draw.integers(0, 5, count),
        draw.integers(0, 2, count),
    )
    again = np.concatenate([t + start for start in range(0, 50_000, length_us)])
    times = 10 // parts
    whole = make_window(again, np.tile(x, times), np.tile(y, times), np.tile(p, times), (7, 5), 0, 50_000)
    short = stacked_histogram(make_window(t, x, y, p, (7, 5), 0, length_us), clip=255)
    assert np.array_equal(held(short, length_us, 50_000, clip), stacked_histogram(whole, clip=clip))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(100, 200_000), st.sampled_from([1, 3, 10]))
@example(0, 21_174, 3)
def test_held_counts_keep_the_rate_of_events(seed, length_us, bins):
    counts = np.random.default_rng(seed).integers(0, 256, (2 * bins, 3, 5)).astype(np.uint8)
    found = held(counts, length_us, 50_000, 255)
    assert found.dtype == np.uint8
    if length_us >= 50_000:
        assert found is counts
        return
    total = counts.reshape(2, bins, 3, 5).sum(1)
    expected = total * 50_000 / length_us / bins  # of a bin, on average over the window
    average = found.reshape(2, bins, 3, 5).mean(1)
    parts = max(1, round(bins * length_us / 50_000))  # halves apart
    least, most = (np.minimum(expected * share, 255) for share in (0.5, 1.5))
    assert parts > 1 or (np.abs(average - np.minimum(expected, 255)) <= 0.5 + total / 32).all()  # factors are of sixteenths
    assert (average[expected < 100] >= least[expected < 100] - 1).all()
    assert (average <= most + 1).all()


def test_a_microsecond_more_or_less_is_held_alike():
    """At 30 Hz windows are 33,333 or 33,334 us long."""
    counts = np.random.default_rng(0).integers(0, 3, (20, 4, 4)).astype(np.uint8)
    for rate_hz in (30, 40, 60, 80, 150, 200, 300, 700):
        shorter, longer = (held(counts, 1_000_000 // rate_hz + more, 50_000) for more in (0, 1))
        assert np.array_equal(shorter, longer), rate_hz


def test_hundreds_of_events_in_one_cell_never_wrap():
    window = make_window(np.zeros(1_000), np.zeros(1_000), np.zeros(1_000), np.ones(1_000), (7, 5), 0, 50_000)
    for clip in (1, 10, 255):
        assert stacked_histogram(window, clip=clip)[10, 0, 0] == clip


def test_events_outside_the_sensor_are_reported(caplog):
    window = make_window([0, 1, 2], [7, 0, 65_535], [0, 0, 65_535], [0, 0, 1], (7, 5), 0, 50_000)
    assert stacked_histogram(window).sum() == 1
    assert "2 of 3 events lie outside the sensor 7 x 5" in caplog.text


@pytest.mark.parametrize("mode", ["exact", "published"])
def test_empty_window_and_one_event(mode):
    assert not stacked_histogram(make_window([], [], [], [], (7, 5), 0, 50_000), mode=mode).any()
    one = stacked_histogram(make_window([0], [3], [2], [1], (7, 5), 0, 50_000), mode=mode)
    assert one[10, 2, 3] == one.sum() == 1


def published_cases() -> list[str]:
    return ["gen1_random", "gen1_dense", "single_event", "same_timestamp", "hot_pixel"]


@pytest.mark.parametrize("case", published_cases())
def test_published_mode_is_the_published_code(case):
    path = SHARED / "published/histograms.npz"
    if not path.exists():
        pytest.skip(f"{path} (numbers of the published code) is not on this machine")
    stored = np.load(path)
    assert {name.rsplit("_", 1)[0] for name in stored.files} == set(published_cases())
    t, x, y, p, expected = (stored[f"{case}_{name}"] for name in ("t", "x", "y", "p", "out"))
    height, width = expected.shape[1:]
    window = make_window(t, x, y, p, (width, height), int(t[0]), int(t[-1]) + 50_000)
    assert np.array_equal(stacked_histogram(window, mode="published"), expected)


def read_dat(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data, begin = path.read_bytes(), 0
    while data[begin : begin + 1] == b"%":
        begin = data.index(b"\n", begin) + 1
    t, word = np.frombuffer(data[begin + 2 :], "<u4").reshape(-1, 2).T
    return t.astype(np.int64), word & 0x3FFF, word >> 14 & 0x3FFF, word >> 28 & 1


def test_published_mode_on_real_gen1_windows():
    folder = SHARED / "data/gen1"
    if not (folder / "clip_td.dat").exists():
        pytest.skip(f"{folder} (third-party Gen1 clip) is not on this machine")
    stored = np.load(folder / "published_histograms_50ms.npz")
    t, x, y, p = read_dat(folder / "clip_td.dat")
    for end_us, expected in zip(stored["end_us"].tolist(), stored["repr"], strict=True):
        part = slice(*np.searchsorted(t, (end_us - 50_000, end_us)))  # half-open, as ../shared/data/README.md says
        window = make_window(t[part], x[part], y[part], p[part], (304, 240), end_us - 50_000, end_us)
        assert np.array_equal(stacked_histogram(window, mode="published"), expected)


@pytest.mark.parametrize("mode", ["exact", "published"])
def test_published_half_is_every_odd_pixel_of_the_whole(mode):
    draw = np.random.default_rng(0)
    t, x, y, p = (
        np.sort(draw.integers(0, 50_000, 50_000)),
        draw.integers(0, 64, 50_000),
        draw.integers(0, 48, 50_000),
        draw.integers(0, 2, 50_000),
    )
    window = make_window(t, x, y, p, (64, 48), 0, 50_000)
    whole, half = stacked_histogram(window, mode=mode), stacked_histogram(window, mode=mode, canvas=Canvas.half(64, 48, "published", 1))
    assert np.array_equal(half, whole[:, 1::2, 1::2])


@pytest.mark.parametrize("option", [{"bins": 0}, {"bins": 2_000}, {"clip": 0}, {"clip": 256}, {"canvas": Canvas.pad(8, 5)}])
def test_bad_settings(option):
    with pytest.raises(InputError, match="histogram"):
        stacked_histogram(make_window([0], [3], [2], [1], (7, 5), 0, 50_000), **option)


@pytest.mark.parametrize(("start_us", "end_us"), [(0, 9), (5, 5), (9, 0), (1, 50_000), (-50_000, 0), (0, 1 << 41)])
def test_windows_that_cannot_be(start_us, end_us):
    with pytest.raises(InputError, match="window"):
        stacked_histogram(make_window([0], [3], [2], [1], (7, 5), start_us, end_us))
