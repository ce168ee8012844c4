"""HDF5 FILES OF OTHERS: tried in a copy of this process first, since the library crashes on some damaged ones; nothing outside is opened.

The copy (a fork, a few milliseconds) does with the file what its reader is about to do: structure, attributes, and of each data set all
chunks if it is small, else the first and the last. What it can't promise: a damaged chunk in the middle of a large data set, and a file
that changes afterwards, may still end the process.
"""

import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, prod
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  registers blosc, zstd, lz4 with HDF5
import numpy as np

from saccade.files import check_readable
from saccade.machine import killing_signal_of_copy
from saccade.s3 import on_disk
from saccade.types import InputError

# What h5py raises on damaged files, as found in its issues and by fuzzing.
H5PY_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError, IndexError, AttributeError, SystemError)
HEAPS_WITHIN = 1 << 20  # bytes at both ends of the file
FREE_BYTES = 64 << 20  # that the chunks of a file may unpack to at a time, however small it is; eight times the file more
LARGEST_CHUNK = 1 << 28  # bytes
SMALL_STORED, SMALL_UNPACKED = 1 << 20, 1 << 24  # bytes of a data set that is tried as a whole
MOST_LINKS = 16  # followed one after the other
PROBE_BYTES, PROBE_SECONDS = 400 << 20, 10  # and 20 bytes and a microsecond a byte of the file

_tried: set[tuple[object, ...]] = set()  # files that this process, and those that it forks (a training's loaders), needn't try again


def open_hdf5(path: Path, look: Callable[[h5py.File], None]) -> h5py.File:
    """Open for reading; LOOK is what the reader will do with it, and is tried elsewhere first. InputError or one of H5PY_ERRORS."""
    check_readable(path)
    key = _key(path, look)
    here = on_disk(path)
    if key not in _tried:
        check_heaps(path)
        _try(path, here, look, path.stat().st_size)
        _tried.add(key)
    return h5py.File(here, "r")


def try_together(paths: Sequence[Path], look: Callable[[h5py.File], None]) -> None:
    """Try some dozens of files in one copy, as `open_hdf5` would try each by itself: a copy takes longer than a file.

    Says nothing of files that end the copy, or can't be read: each is tried alone when it is opened.
    """
    try:
        new = {key: path for path in paths if (key := _key(path, look)) not in _tried}
        for path in new.values():
            check_heaps(path)
    except (InputError, OSError):
        return

    def work() -> None:
        for path in new.values():
            with suppress(*(error for error in H5PY_ERRORS if error is not MemoryError)):
                _look_into(path, look)

    largest = max((path.stat().st_size for path in new.values()), default=0)
    if new and killing_signal_of_copy(work, seconds=PROBE_SECONDS, room=PROBE_BYTES + 20 * largest) is None:
        _tried.update(new)


def _key(path: Path, look: Callable[[h5py.File], None]) -> tuple[object, ...]:
    status = path.stat()
    return path.resolve(), status.st_size, status.st_mtime_ns, getattr(look, "__qualname__", repr(look))


def _look_into(here: Path, look: Callable[[h5py.File], None]) -> None:
    try:
        with h5py.File(here, "r") as file:
            look(file)
    except H5PY_ERRORS as error:
        if "allocat" in str(error).lower():  # HDF5's own name for a MemoryError
            raise MemoryError from error
        raise


def _try(path: Path, here: Path, look: Callable[[h5py.File], None], size: int) -> None:
    seconds, room = PROBE_SECONDS + ceil(size / 1e6), PROBE_BYTES + 20 * size
    number = killing_signal_of_copy(partial(_look_into, here, look), seconds=seconds, room=room)
    if number is not None:
        slow = f"takes more than {seconds} s"
        ends = {signal.SIGXCPU: slow, signal.SIGALRM: slow, signal.SIGKILL: f"takes more than {room >> 20} MB"}
        found = ends.get(signal.Signals(number), f"would end this program (signal {number})")
        raise InputError(f"{path}: reading it {found}, so it is damaged or was made to harm; copy or make it again")


def check_heaps(path: Path) -> None:
    """Refuse a global heap with a free object of size 0, on which HDF5 2.0 loops for ever (found by fuzzing).

    Strings of attributes are written when a file is created or closed, so it is enough to look at the first and last megabyte.
    """
    with path.open("rb") as file:
        start = file.read(HEAPS_WITHIN)
        file.seek(max(path.stat().st_size - HEAPS_WITHIN, 0))
        for data in (start, file.read(HEAPS_WITHIN)):
            for heap in re.finditer(re.escape(b"GCOL\x01\0\0\0"), data):
                at = heap.start() + 16
                end = min(heap.start() + int.from_bytes(data[at - 8 : at], "little"), len(data))
                while at + 16 <= end:
                    index, size = int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
                    if index == 0 and size < 16:
                        raise InputError("its heap of texts is damaged")
                    at += size if index == 0 else 16 + -(-size // 8) * 8


def find(start: h5py.Group, place: str, links: int = 0) -> h5py.Group | h5py.Dataset | None:
    """What lies at PLACE, None if nothing does. InputError for links to other files, and for data sets whose values lie in other files."""
    at: Any = start
    for name in place.split("/"):
        link = at.get(name, getlink=True) if name not in ("", ".") and isinstance(at, h5py.Group) else None
        if isinstance(link, h5py.SoftLink):
            if links == MOST_LINKS:
                raise InputError(f"{at.name}: more than {MOST_LINKS} links, one to the other")
            at = find(at.file if link.path.startswith("/") else at, link.path, links + 1)
        elif isinstance(link, h5py.HardLink):
            at = _inside(at[name])
        elif link is not None:
            raise InputError(f"{at.name}: {name!r} is a link to another file; copy what it means into this one (h5repack, h5copy)")
        elif name not in ("", "."):
            return None
    return at


def _inside(node: Any) -> Any:
    """The node, if its values lie in this file."""
    if isinstance(node, h5py.Dataset):
        plan = node.id.get_create_plist()
        if plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count():
            raise InputError(f"{node.name}: its values lie in other files; copy them into this one (h5repack)")
    return node


def attribute(home: h5py.Group | h5py.Dataset, name: str) -> Any:
    """A number, a few of them, or one text; None for anything else. Many references to one text would be as many copies of it."""
    if name not in home.attrs:
        return None
    found = h5py.h5a.open(home.id, name.encode())
    count, kind = prod(found.shape), found.get_type()
    if kind.get_class() == h5py.h5t.STRING:
        return home.attrs[name] if count == 1 and kind.get_size() <= 4096 else None
    return home.attrs[name] if count <= 16 and kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) else None


def chunk_bytes(dataset: h5py.Dataset) -> int:
    return prod(dataset.chunks) * dataset.dtype.itemsize if dataset.chunks else 0


def check_chunks(datasets: list[h5py.Dataset]) -> None:
    """InputError if a chunk of each, which HDF5 unpacks as a whole, takes more memory than the file justifies."""
    sizes = [chunk_bytes(dataset) for dataset in datasets]
    if max(sizes) > LARGEST_CHUNK or sum(sizes) > FREE_BYTES + 8 * os.stat(datasets[0].file.filename).st_size:
        names = ", ".join(dict.fromkeys(str(dataset.name) for dataset in datasets))
        raise InputError(f"{names}: chunks of {sum(sizes) >> 20} MB at a time, too much for this file; write smaller ones (`h5repack -l`)")


def with_cache(dataset: h5py.Dataset) -> h5py.Dataset:
    """The data set with a cache for its chunks, so that the one in which a slice ends is still there for the next slice.

    HDF5 ignores the size of the cache if the data set is still open elsewhere, so the given one is closed.
    """
    room = dataset.file.id.get_access_plist().get_cache()[2]
    wanted = chunk_bytes(dataset) * (2 if chunk_bytes(dataset) <= FREE_BYTES // 8 else 1)
    if wanted <= room:
        return dataset
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(521, wanted, 1.0)
    file, name = dataset.file, dataset.name.encode()
    dataset.id.close()
    return h5py.Dataset(h5py.h5d.open(file.id, name, access))


def try_values(dataset: h5py.Dataset, *, raw: bool = False) -> None:
    """Read all values of a small data set, else the first and the last; RAW: chunks as they are stored, for a filter that isn't there."""
    count = len(dataset) if dataset.ndim else 0
    if not count:
        return
    step = dataset.chunks[0] if dataset.chunks else 1 << 16
    unpacked = int(np.prod(dataset.shape, dtype=np.float64)) * dataset.dtype.itemsize
    small = dataset.id.get_storage_size() <= SMALL_STORED and unpacked <= SMALL_UNPACKED
    for first in range(0, count, step) if small else (0, (count - 1) // step * step):
        if raw:
            dataset.id.read_direct_chunk((first,))
        else:
            dataset[first : first + min(step, 1 << 16) if not small else first + step]
