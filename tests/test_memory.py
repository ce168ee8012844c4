"""Recordings far larger than memory need: two gigabytes are cut into frames with less than one resident."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.make.events import random_events
from tests.make.prophesee import header

GIGABYTES = 2
MEASURE = """
import sys
import saccade
with saccade.open_events(sys.argv[1]) as reader:
    frames = events = 0
    for frame in saccade.frames(reader, 20, reuse=True):
        frames += 1
        events += frame.events
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]  # unlike getrusage's, not inherited from the parent
print(frames, events, int(peak) // 1024)
"""


def write_dat(path: Path) -> int:
    """One second of two million events, again and again with later times."""
    one = random_events(2_000_000, span_us=1_000_000)
    records = np.empty((len(one), 2), np.uint32)
    records[:, 1] = one.x.astype(np.uint32) | one.y.astype(np.uint32) << 14 | one.p.astype(np.uint32) << 28
    seconds = GIGABYTES * 10**9 // records.nbytes + 1
    with path.open("wb") as file:
        file.write(b"% Version 2\n% Height 240\n% Width 304\n\x0c\x08")
        for second in range(seconds):
            records[:, 0] = one.t + second * 1_000_000
            file.write(records.tobytes())
    return seconds * len(one)


def write_evt3(path: Path) -> int:
    """One lap of the 24-bit clock, again and again: the decoder counts the laps. Four words an event: high time, low time, row, event."""
    one = random_events(4_000_000, span_us=1 << 24)
    words = np.empty((len(one), 4), np.uint16)
    words[:, 0], words[:, 1] = 0x8000 | one.t >> 12, 0x6000 | one.t & 0xFFF
    words[:, 2], words[:, 3] = one.y, 0x2000 | one.p.astype(np.uint16) << 11 | one.x
    laps = GIGABYTES * 10**9 // words.nbytes + 1
    with path.open("wb") as file:
        file.write(header("EVT3", one))
        for _ in range(laps):
            file.write(words.tobytes())
    return laps * len(one)


def write_hdf5(path: Path) -> int:
    one = random_events(2_000_000, span_us=1_000_000)
    seconds = GIGABYTES * 10**9 // (13 * len(one)) + 1
    with h5py.File(path, "w") as file:
        file.attrs["width"], file.attrs["height"] = 304, 240
        shape = {"shape": (seconds * len(one),), "chunks": (1 << 16,)}
        t, x = file.create_dataset("events/t", dtype="i8", **shape), file.create_dataset("events/x", dtype="u2", **shape)
        y, p = file.create_dataset("events/y", dtype="u2", **shape), file.create_dataset("events/p", dtype="u1", **shape)
        for second in range(seconds):
            piece = slice(second * len(one), (second + 1) * len(one))
            t[piece], x[piece], y[piece], p[piece] = one.t + second * 1_000_000, one.x, one.y, one.p
    return seconds * len(one)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_dat, write_evt3, write_hdf5])
def test_two_gigabytes_with_less_than_one_resident(write, tmp_path: Path) -> None:
    path = tmp_path / f"long{ {write_dat: '.dat', write_evt3: '.raw', write_hdf5: '.h5'}[write] }"
    count = write(path)
    try:
        assert path.stat().st_size > GIGABYTES * 10**9
        result = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    finally:
        path.unlink()
    frames, events, megabytes = map(int, result.stdout.split())
    assert frames >= 1000
    assert events == count
    assert megabytes < 1000
    print(f"{path.suffix}: {events:,} events in {frames:,} frames, {megabytes} MB resident at most")
