"""HDF5 reading against plain h5py slices of whole columns, in the same run. One core: `taskset -c 0 python -m benchmarks.hdf5`."""

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

EVENTS = 10_000_000
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


def ours(path: Path) -> int:
    with Hdf5Reader(path) as reader:
        return sum(len(events) for events in reader)


def seconds(function: Callable[[Path], int], path: Path) -> float:
    start = time.process_time()
    function(path)
    return time.process_time() - start


def main() -> None:
    events = driving(EVENTS)
    print(f"| {EVENTS / 1e6:.0f} M events | h5py, M events/s | saccade, M events/s | ratio |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, (blosc, chunk) in KINDS.items():
            path = Path(folder) / "events.h5"
            write(path, events, blosc=blosc, chunk=chunk)
            rounds = np.array([(seconds(plain, path), seconds(ours, path)) for _ in range(15)])  # in turn: the machine is shared
            reference, measured = EVENTS / np.median(rounds, axis=0) / 1e6
            ratio = np.median(rounds[:, 0] / rounds[:, 1])
            print(f"| {kind} | {reference:.0f} | {measured:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
