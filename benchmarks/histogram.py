"""Histogram and sliding frames on one thread, each as a ratio against a reference in the same run: `python -m benchmarks.histogram`."""

import os

for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when the libraries load
    os.environ[name] = "1"

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numba  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from saccade.events.prophesee import DatReader  # noqa: E402
from saccade.representation.canvas import Canvas  # noqa: E402
from saccade.representation.frames import frames  # noqa: E402
from saccade.representation.histogram import stacked_histogram  # noqa: E402
from saccade.types import Events, Window  # noqa: E402

CLIP = Path(__file__).parents[2] / "shared/data/gen1/clip_td.dat"
COUNT = 10_000_000
BINS = 10


def random_window(width: int, height: int) -> Window:
    draw = np.random.default_rng(0)
    t = np.sort(draw.integers(0, 50_000, COUNT))
    x, y = draw.integers(0, width, COUNT, np.uint16), draw.integers(0, height, COUNT, np.uint16)
    return Window(t, x, y, draw.integers(0, 2, COUNT, np.uint8).astype(np.bool_), width, height, 0, 50_000)


@numba.njit(boundscheck=False)
def only_add(x, y, p, counts):
    """The plainest loop: no clip, no check, no time; it is handed the events of one bin."""
    for i in range(len(x)):
        counts[int(p[i]), y[i], x[i]] += 1


def plain(window: Window) -> np.ndarray:
    counts = np.zeros((2, BINS, window.height, window.width), np.int32)
    borders = np.searchsorted(window.t, np.arange(BINS + 1) * 50_000 // BINS)
    for j in range(BINS):
        part = slice(borders[j], borders[j + 1])
        only_add(window.x[part], window.y[part], window.p[part], counts[:, j])
    return counts


def published(t: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """Rewritten from the description in FIELD.md, section 2: put_ with accumulate into a byte counter."""
    counts = torch.zeros(2 * BINS * height * width, dtype=torch.uint8)
    bin_index = ((t - t[0]) / max(int(t[-1] - t[0]), 1) * BINS).floor().clamp(max=BINS - 1).long()
    cell = x + width * y + width * height * (bin_index + BINS * p)
    counts.put_(cell, torch.ones_like(cell, dtype=torch.uint8), accumulate=True)
    return counts.clamp(max=10).reshape(2 * BINS, height, width)


def best(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Shortest processor seconds of each call; interleaved, so that a busy moment of the machine hits all of them."""
    for call in calls.values():
        call()  # compile, touch the memory
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            seconds[name] = min(seconds[name], time.process_time() - begin)
    return seconds


def histogram_rows(width: int, height: int, rounds: int) -> list[str]:
    window = random_window(width, height)
    tensors = [torch.from_numpy(column.astype(np.int64)) for column in (window.t, window.x, window.y, window.p)]
    canvas = Canvas.half(width, height)
    assert np.array_equal(stacked_histogram(window), np.minimum(plain(window), BINS).reshape(2 * BINS, height, width))
    assert np.array_equal(stacked_histogram(window, mode="published"), published(*tensors, width, height).numpy())
    seconds = best(
        {
            "ours": lambda: stacked_histogram(window),
            "plain": lambda: plain(window),
            "half": lambda: stacked_histogram(window, canvas=canvas),
        },
        rounds,
    )
    seconds |= best(
        {"published": lambda: published(*tensors, width, height), "ours again": lambda: stacked_histogram(window)}, max(rounds // 4, 3)
    )
    speed = {name: COUNT / value / 1e6 for name, value in seconds.items()}
    size = f"histogram, 10 M random events, {width} x {height}"
    return [
        f"| {size} | {speed['ours again']:.0f} M/s | published method, {speed['published']:.0f} M/s "
        f"| {speed['ours again'] / speed['published']:.1f} x as fast | at least 10 x |",
        f"| {size} | {speed['ours']:.0f} M/s | plainest loop, int32, {speed['plain']:.0f} M/s "
        f"| {100 * speed['ours'] / speed['plain']:.0f} % of its speed | at least 80 % |",
        f"| {size}, onto half the canvas | {speed['half']:.0f} M/s | plainest loop, int32, {speed['plain']:.0f} M/s "
        f"| {100 * speed['half'] / speed['plain']:.0f} % of its speed | - |",
    ]


def made_recording() -> list[Events]:
    """Two seconds of edges that sweep over the sensor, at the rate of the Gen1 clip."""
    draw = np.random.default_rng(0)
    count, width, height = 2_600_000, 304, 240
    t = np.sort(draw.integers(0, 2_000_000, count))
    x = (t // 2_000 + 60 * draw.integers(0, 5, count) + draw.integers(0, 6, count)) % width
    y = draw.integers(0, height, count)
    events = Events(t, x.astype(np.uint16), y.astype(np.uint16), draw.random(count) < 0.5, width, height)
    return [events[i : i + (1 << 18)] for i in range(0, count, 1 << 18)]


def sliding_rows(name: str, chunks: list[Events], rounds: int) -> list[str]:
    def walk(rate_hz: float, kind: str, reuse: bool) -> Callable[[], object]:
        return lambda: sum(1 for _ in frames(chunks, rate_hz, kind, reuse=reuse))  # type: ignore[arg-type]

    calls = {
        (rate_hz, reuse): walk(rate_hz, kind, reuse) for rate_hz, kind in ((20, "disjoint"), (200, "sliding")) for reuse in (True, False)
    }
    seconds = best({str(key): call for key, call in calls.items()}, rounds)
    rows = []
    for reuse, words, target in ((True, "as a stream takes them", "at most 2.5 x"), (False, "each frame copied", "-")):
        slow, fast = seconds[str((20, reuse))] * 1e3, seconds[str((200, reuse))] * 1e3
        rows.append(
            f"| sliding at 200 Hz, {name}, {words} | {fast:.1f} ms | disjoint at 20 Hz, {slow:.1f} ms | {fast / slow:.2f} x | {target} |"
        )
    return rows


def main(rounds: int = 20) -> None:
    torch.set_num_threads(1)
    print("| what | ours | reference | ratio | target |\n|---|--:|--:|--:|--:|")
    for width, height in ((304, 240), (1280, 720)):
        print("\n".join(histogram_rows(width, height, rounds)), flush=True)
    print("\n".join(sliding_rows("made recording, 1.3 M events/s", made_recording(), rounds)), flush=True)
    if CLIP.exists():
        with DatReader(CLIP) as reader:
            print("\n".join(sliding_rows("Gen1 clip, 1.3 M events/s", list(reader), 2 * rounds)))
    else:
        print(f"\nThe Gen1 clip was skipped: {CLIP} (third-party data) is not on this machine.")


if __name__ == "__main__":
    main()
