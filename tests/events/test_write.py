"""read(write(x)) = x for every format; what a format can't hold is refused; a file is whole or not there."""

import errno
import os
import resource
import subprocess
import sys
from dataclasses import replace

import h5py
import hdf5plugin  # noqa: F401  h5py needs it to read blosc
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saccade.events.open import open_events
from saccade.events.write import write_events
from saccade.types import Events, InputError
from tests.make.events import assert_equal, collect, events, random_events

SUFFIXES = [".h5", ".dat", ".npz", ".csv"]  # .hdf5 is .h5
HOUR_US = 3_600_000_000


def make(times, x=1, y=2, p=True, width=64, height=48) -> Events:
    n = len(times)
    return Events(np.array(times, np.int64), np.full(n, x, np.uint16), np.full(n, y, np.uint16), np.full(n, p), width, height)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("write")


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=30)
@given(recording=events(), length=st.integers(1, 100))
@example(recording=Events.empty(64, 48), length=1)
@example(recording=make([7]), length=1)
@example(recording=make([5, 5, HOUR_US // 2, HOUR_US, 2**32 - 1, 2**32, 2**32 + 1, 6 * 10**9, 2 * HOUR_US]), length=3)
@example(recording=make([0, 1], x=65, y=50), length=1)
def test_what_was_written_is_read(folder, suffix, recording, length):
    path = folder / f"a{suffix}"
    chunks = [recording[i : i + length] for i in range(0, len(recording), length)]
    count = write_events(iter(chunks), path, width=recording.width, height=recording.height, overwrite=True)
    with open_events(path) as reader:
        assert count == reader.count == len(recording)
        assert_equal(collect(reader), recording)
        assert reader.notes == []
        if len(recording):
            middle = int(recording.t[len(recording) // 2])
            assert_equal(reader.between(middle, middle + 500), recording[(recording.t >= middle) & (recording.t < middle + 500)])


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@settings(deadline=None, max_examples=30)
@given(recording=events(ordered=False), offset_us=st.integers(-(10**16), 10**16))
def test_any_order_and_any_time(folder, suffix, recording, offset_us):
    moved = Events(recording.t + offset_us, recording.x, recording.y, recording.p, recording.width, recording.height)
    write_events([moved], folder / f"b{suffix}", overwrite=True)
    with open_events(folder / f"b{suffix}") as reader:
        assert_equal(collect(reader), moved)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_reader_is_converted_with_progress(folder, suffix):
    recording = random_events(70_000)
    write_events([recording], folder / "source.npz", overwrite=True)
    with open_events(folder / "source.npz") as reader:
        seen: list[int] = []
        assert write_events(reader, folder / f"c{suffix}", progress=seen.append) == 70_000
        assert seen[-1] == 70_000
    with open_events(folder / f"c{suffix}") as reader:
        assert_equal(collect(reader), recording)


def test_hdf5_is_dsecs_layout(folder):
    recording = random_events(5000, start_us=123_456_789, span_us=40_000)
    write_events([recording[:3000], recording[3000:]], folder / "dsec.h5")
    with h5py.File(folder / "dsec.h5") as file:
        assert {name: file["events"][name].dtype for name in "xytp"} == {"x": "u2", "y": "u2", "t": "u4", "p": "u1"}
        assert file["t_offset"][()] == recording.t[0]
        t, table = file["events/t"][:].astype(np.int64), file["ms_to_idx"][:].astype(np.int64)
        np.testing.assert_array_equal(t + recording.t[0], recording.t)
        assert len(table) == t[-1] // 1000 + 1
        for millisecond, i in enumerate(table):
            assert t[i] >= millisecond * 1000
            assert i == 0 or t[i - 1] < millisecond * 1000
        assert (file.attrs["width"], file.attrs["height"]) == (304, 240)
        assert file["events/t"].chunks


def test_hdf5_of_more_than_71_minutes_keeps_its_times(folder):
    recording = make(np.arange(0, 2 * HOUR_US, HOUR_US // 10))
    write_events([recording[:3], recording[3:15], recording[15:]], folder / "long.h5")
    with h5py.File(folder / "long.h5") as file:
        assert file["events/t"].dtype == np.int64
        np.testing.assert_array_equal(file["events/t"][:], recording.t)


def test_dat_by_its_bytes(folder):
    write_events([make([1, 2**32 - 1], x=5, y=7)[:1]], folder / "bytes.dat")
    header, data = (folder / "bytes.dat").read_bytes().split(b"\n\x0c\x08")
    assert header.splitlines()[1:] == [b"% Version 2", b"% Height 48", b"% Width 64"]
    assert np.frombuffer(data, "<u4").tolist() == [1, 5 | 7 << 14 | 1 << 28]


@pytest.mark.parametrize(
    ("suffix", "recording", "advice"),
    [
        (".dat", make([-1, 5]), "--start-at-zero"),
        (".dat", make([2**32]), "--start-at-zero"),
        (".dat", make([0, 2**31]), r"write \.h5"),
        (".dat", make([0], x=16384), "--clip-to-sensor"),
        (".dat", make([0], width=20_000), r"write \.h5"),
        (".dat", make([2**30, 2**31, 3 * 2**30, 2**32 + 10, 2**32 + 5]), "--sort"),
        (".h5", make([5, 4]), "--sort"),
        (".h5", make([0, 10**16]), "unit of time"),
        (".csv", make([10**17]), "unit of time"),
        (".txt", make([1]), "expected one of .h5"),
    ],
)
def test_what_a_format_cant_hold_is_refused_and_nothing_is_left(tmp_path, suffix, recording, advice):
    with pytest.raises(InputError, match=advice) as error:
        write_events([recording], tmp_path / f"a{suffix}")
    assert ".part" not in str(error.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("failure", [KeyboardInterrupt, InputError("broken"), ValueError("bug")])
def test_an_interruption_leaves_the_old_file_and_no_other(tmp_path, suffix, failure):
    def chunks():
        yield make([1, 2, 3])
        raise failure

    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    with pytest.raises((KeyboardInterrupt, InputError, ValueError)):
        write_events(chunks(), path, overwrite=True)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == b"old"


def test_nothing_is_overwritten_unasked(tmp_path):
    path = tmp_path / "a.npz"
    write_events([make([1])], path)
    with pytest.raises(InputError, match="--overwrite"):
        write_events([make([2])], path)
    os.symlink(path, tmp_path / "link.npz")
    with open_events(path) as reader:
        for target in (path, tmp_path / "link.npz", tmp_path / ".." / tmp_path.name / "a.npz"):
            with pytest.raises(InputError, match="the recording itself"):
                write_events(reader, target, overwrite=True)
    with pytest.raises(InputError, match="the recording itself"):
        write_events([make([2])], path, overwrite=True, source_path=path)
    with pytest.raises(InputError, match="doesn't exist"):
        write_events([make([2])], tmp_path / "no" / "a.npz")
    with pytest.raises(InputError, match="width"):
        write_events([], tmp_path / "b.npz")


LIMITED = """
import sys, resource
from tests.make.events import random_events
from saccade.events.write import write_events
from saccade.types import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    write_events([random_events(300_000, seed=i, span_us=1000, start_us=1000 * i) for i in range(4)], sys.argv[1])
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_takes_no_more_is_explained(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    result = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout.startswith(f"{path}: the file would be larger than allowed"), result.stderr[-2000:]
    assert os.listdir(tmp_path) == []


def test_no_space_left_is_explained(tmp_path):
    def chunks():
        yield make([1])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="the disk is full"):
        write_events(chunks(), tmp_path / "a.csv")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_memory_stays_bounded(tmp_path, suffix):
    part = random_events(100_000, span_us=100_000)

    def chunks():
        for i in range(120):
            yield replace(part, t=part.t + 100_000 * i)

    path = tmp_path / f"a{suffix}"
    list(zip(range(2), chunks(), strict=False))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    write_events(chunks(), path)
    with open_events(path) as reader:
        assert sum(len(part) for part in reader) == 12_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 70_000  # kB; the recording has 156 MB
