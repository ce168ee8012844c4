"""FRAMES ON DISK -> FRAMES: what RVT's tree and a prepared data set have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import h5py
import hdf5plugin  # registers Blosc with HDF5
import numpy as np
from jaxtyping import Int64

from saccade.datasets.recording import FrameArray, WindowEnds
from saccade.events.hdf5_file import H5PY_ERRORS, check_chunks, find, open_hdf5, try_values
from saccade.types import InputError

# Frames are bytes that are mostly zero; measured on real ones: a third quicker to read and a tenth to a third smaller than level 1 with
# shuffling; lz4 is a quarter quicker still, but two to three times as large.
COMPRESSION = hdf5plugin.Blosc(cname="zstd", clevel=5, shuffle=hdf5plugin.Blosc.NOSHUFFLE)

LARGEST_FRAME = 1 << 27  # bytes


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """The file; whatever h5py raises about it is an InputError that names it."""
    try:
        with open_hdf5(path, look) as file:
            yield file
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    except H5PY_ERRORS as error:
        raise InputError(f"{path}: can't be read, it is damaged or cut off ({error}); copy or make it again") from error


def frame_shape(path: Path) -> tuple[int, int, int, int]:
    """(frames, channels, height, width) of the data set `data`."""
    with opened(path) as file:
        frames, channels, height, width = _data(file).shape
        return frames, channels, height, width


def read_frames(path: Path, first: int, last: int) -> FrameArray:
    with opened(path) as file:
        return _data(file)[first:last]


def _data(file: h5py.File) -> h5py.Dataset:
    data = find(file, "data")
    if not isinstance(data, h5py.Dataset) or data.ndim != 4 or data.dtype != np.uint8:
        raise InputError(f"{file.filename}: expected a data set `data` of uint8 (frames, channels, height, width), got {data}")
    if prod(data.shape[1:]) > LARGEST_FRAME:
        raise InputError(f"{file.filename}: frames of {data.shape[1:]}; expected at most {LARGEST_FRAME >> 20} MB each")
    check_chunks([data])
    return data


def look(file: h5py.File) -> None:
    """What reading will do with the file."""
    try_values(_data(file))


def index_of_ends(ends_us: WindowEnds, stored_us: Int64[np.ndarray, "stored"], where: str) -> int:
    """Index of the first of these ends among the stored ones; InputError unless they follow each other there."""
    first = int(np.searchsorted(stored_us, ends_us[0])) if len(ends_us) else 0
    if not np.array_equal(stored_us[first : first + len(ends_us)], ends_us):
        raise InputError(f"{where}: window ends {ends_us[:3].tolist()}... aren't consecutive ones of the stored frames; slice ends_us()")
    return first
