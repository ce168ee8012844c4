"""HDF5 reading against h5py, in the same run, one core: `taskset -c 0 python -m benchmarks.hdf5`.

Two references: whole columns as they are stored, and the same columns made into events (int64 microseconds with t_offset, bool
polarity), which is what saccade gives, chunk by chunk.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401
import numpy as np

from saccade.events.hdf5 import Hdf5Reader
from saccade.types import Events
from tests.make.hdf5 import write

EVENTS = 20_000_000
KINDS = {"blosc-zstd, chunks of 65,536": (True, 1 << 16), "blosc-zstd, chunks of 10,000": (True, 10_000), "uncompressed": (False, 0)}


def driving(count: int, seed: int = 0) -> Events:
    """Events that compress about as real ones do: short bursts along edges, in order of time."""
    generator = np.random.default_rng(seed)
    t = np.cumsum(generator.integers(0, 2, count))
    x = (np.cumsum(generator.integers(-3, 4, count)) % 640).astype(np.uint16)
    y = np.repeat(generator.integers(0, 480, count // 4 + 1), 4)[:count].astype(np.uint16)
    return Events(t, x, y, generator.random(count) < 0.5, 640, 480)


def plain(path: Path) -> int:
    with h5py.File(path) as file:
        columns = [file["events"][name][:] for name in "txyp"]
    return len(columns[0])


def plain_events(path: Path) -> int:
    with h5py.File(path) as file:
        t, x, y, p = (file["events"][name][:] for name in "txyp")
        offset = file["t_offset"][()]
    return len(Events(t.astype(np.int64) + offset, x, y, p.astype(np.bool_), 640, 480))


def ours(path: Path) -> int:
    with Hdf5Reader(path) as reader:
        return sum(len(events) for events in reader)


def seconds(function: Callable[[Path], int], path: Path) -> float:
    start = time.process_time()
    function(path)
    return time.process_time() - start


def main() -> None:
    events = driving(EVENTS)
    print(f"| {EVENTS / 1e6:.0f} M events, M events/s | h5py columns | h5py events | saccade | to columns | to events |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, (blosc, chunk) in KINDS.items():
            path = Path(folder) / "events.h5"
            write(path, events, blosc=blosc, chunk=chunk)
            # In turn, and the best of each, because the machine is shared.
            best = np.min([[seconds(function, path) for function in (plain, plain_events, ours)] for _ in range(15)], axis=0)
            speeds = " | ".join(f"{EVENTS / value / 1e6:.0f}" for value in best)
            ratios = " | ".join(f"{value / best[2]:.2f}" for value in best[:2])
            print(f"| {kind} | {speeds} | {ratios} |")


if __name__ == "__main__":
    main()
