"""EVENTS -> FILE: HDF5 in DSEC's layout, DAT, npz, csv. In bounded memory; the file appears when it is complete."""

import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, Any

import h5py
import hdf5plugin
import numpy as np

from saccade.events.columns import LATEST_US
from saccade.events.decimals import format_lines
from saccade.events.hdf5_new import new_hdf5
from saccade.events.reader import Reader
from saccade.events.text import OURS
from saccade.files import replacing, scratch_file
from saccade.s3 import S3Path, located
from saccade.types import Events, InputError

PIECE = 1 << 16  # events per chunk of an HDF5 dataset, and lines of csv formatted at once
MOST_MILLISECONDS = 10**9  # 11 days: a longer ms_to_idx means a wrong time
LAP_US = 1 << 32  # DAT's clock and DSEC's times have 32 bits
LAST_PIXEL = (1 << 14) - 1  # DAT's coordinates have 14


def write_events(
    source: Reader | Iterable[Events],
    path: Path | str,
    *,
    width: int | None = None,
    height: int | None = None,
    source_path: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all events of a reader or of chunks in the format of the suffix; returns their number.

    `width` and `height` are needed only where there may be no chunk. `source_path` is the file that chunks are read from (a reader knows
    its own), so that it isn't overwritten meanwhile. `progress` is called with the number of events so far.
    """
    path = located(path)
    check_target(path, source.path if isinstance(source, Reader) else source_path, overwrite)
    if isinstance(source, Reader):
        width, height = width or source.width, height or source.height
    chunks = iter(source)
    if not (width and height):
        first = next(chunks, None)
        if first is None:
            raise InputError(f"{path}: no events to write, and the size of the sensor isn't known; state width and height")
        width, height, chunks = width or first.width, height or first.height, chain((first,), chunks)
    counted = _CountedChunks(chunks, progress)
    with replacing(path) as temporary:
        try:
            FORMATS[path.suffix.lower()](iter(counted), temporary, width, height)
        except InputError as error:
            raise InputError(str(error).replace(str(temporary), str(path))) from error  # the temporary name means nothing to the user
    return counted.count


def check_target(path: Path, source: Path | None, overwrite: bool) -> None:
    """Raise InputError before the work begins, where writing would fail at the end or overwrite a file."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected one of {', '.join(FORMATS)}")
    if not isinstance(path, S3Path) and not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} doesn't exist; make it first")
    if path.exists():
        if source is not None and source.exists() and path.samefile(source):
            raise InputError(f"{path}: is the recording itself; write to another name")
        if not overwrite:
            raise InputError(f"{path}: exists already; give another name, or --overwrite to replace it")


class _CountedChunks:
    """Passes on chunks that aren't empty and counts their events."""

    def __init__(self, chunks: Iterable[Events], progress: Callable[[int], None] | None) -> None:
        self.count = 0
        self._chunks = chunks
        self._progress = progress

    def __iter__(self) -> Iterator[Events]:
        for events in self._chunks:
            self.count += len(events)
            if len(events):
                yield events
            if self._progress:
                self._progress(self.count)


def _write_hdf5(chunks: Iterator[Events], path: Path, width: int, height: int) -> None:
    """DSEC's layout: events/{x, y uint16, t uint32, p uint8}, t_offset, ms_to_idx, compressed with blosc-zstd.

    t counts from t_offset, the first event's time; in recordings of more than 71 minutes it is int64, because uint32 would overflow.
    The sensor size, which DSEC doesn't store, is in the attributes width and height.
    """
    with new_hdf5(path) as (file, check_disk):
        file.attrs["width"], file.attrs["height"] = width, height
        types = {"x": np.uint16, "y": np.uint16, "t": np.uint32, "p": np.uint8}
        for name, dtype in types.items():
            _dataset(file, f"events/{name}", dtype)
        _dataset(file, "ms_to_idx", np.uint64)
        count, offset_us, last_us = 0, 0, 0
        for events in chunks:
            if count == 0:
                offset_us = last_us = int(events.t[0])
            _check_order(events, count, last_us, path)
            last_us = int(events.t[-1])
            relative = events.t - offset_us
            if last_us - offset_us >= LAP_US and file["events/t"].dtype == np.uint32:
                _widen(file)
            _append_milliseconds(file["ms_to_idx"], relative, count, path)
            for name, values in (("x", events.x), ("y", events.y), ("t", relative), ("p", events.p)):
                _append(file[f"events/{name}"], values)
            check_disk()
            count += len(events)
        file["t_offset"] = np.int64(offset_us)


def _write_dat(chunks: Iterator[Events], path: Path, width: int, height: int) -> None:
    """Prophesee's DAT, version 2, type 12. The clock overflows after 71 minutes, as in Prophesee's own long recordings."""
    if max(width, height) > LAST_PIXEL + 1:
        raise InputError(f"{path}: DAT has 14 bits a coordinate, too few for a sensor of {width} x {height}; write .h5 instead")
    count, last_us = 0, 0
    with path.open("wb") as file:
        file.write(f"% Data file containing CD events.\n% Version 2\n% Height {height}\n% Width {width}\n".encode() + bytes((12, 8)))
        for events in chunks:
            last_us = _check_dat(events, count, last_us, path)
            words = np.empty((len(events), 2), "<u4")
            words[:, 0] = events.t & (LAP_US - 1)
            words[:, 1] = events.x.astype(np.uint32) | events.y.astype(np.uint32) << 14 | events.p.astype(np.uint32) << 28
            file.write(words.data)
            count += len(events)


def _write_npz(chunks: Iterator[Events], path: Path, width: int, height: int) -> None:
    """Plain (not compressed) arrays t in us, x, y, p, width, height, time_unit: readable in pieces, here and by numpy.load."""
    count = 0
    with ExitStack() as stack:
        columns: dict[str, IO[bytes]] = {name: stack.enter_context(scratch_file(path.parent)) for name in "txyp"}
        for events in chunks:
            for name, file in columns.items():
                file.write(np.ascontiguousarray(getattr(events, name)).data)
            count += len(events)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in (("width", width), ("height", height), ("time_unit", "us")):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.array(value), allow_pickle=False)
            for name, dtype in (("t", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "|b1")):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, {"descr": dtype, "fortran_order": False, "shape": (count,)})
                    columns[name].seek(0)
                    while piece := columns[name].read(1 << 20):
                        member.write(piece)


def _write_csv(chunks: Iterator[Events], path: Path, width: int, height: int) -> None:
    """A comment that states columns, unit and sensor, a header with the names, then t,x,y,p in whole microseconds."""
    text = np.empty(36 * PIECE, np.uint8)
    with path.open("wb") as file:
        file.write(f"{OURS} columns=t,x,y,p time_unit=us width={width} height={height}\nt,x,y,p\n".encode())
        for events in chunks:
            if max(-int(events.t.min()), int(events.t.max())) >= LATEST_US:
                raise InputError(f"{path}: times beyond 3,000 years ({events.t.min()} to {events.t.max()} us); is the unit of time right?")
            for first in range(0, len(events), PIECE):
                piece = events[first : first + PIECE]
                file.write(text[: format_lines(piece.t, piece.x, piece.y, piece.p, text)].data)


def _dataset(file: h5py.File, name: str, dtype: type) -> Any:
    compression = hdf5plugin.Blosc(cname="zstd", clevel=2, shuffle=hdf5plugin.Blosc.SHUFFLE)  # level 5: a tenth smaller, 3 times slower
    return file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(PIECE,), **compression)


def _append(dataset: Any, values: np.ndarray) -> None:
    first = len(dataset)
    dataset.resize((first + len(values),))
    dataset[first:] = values


def _append_milliseconds(dataset: Any, relative_us: np.ndarray, count: int, path: Path) -> None:
    """DSEC's table: entry k is the number of the first event at or after k milliseconds."""
    end = int(relative_us[-1]) // 1000 + 1
    if end > MOST_MILLISECONDS:
        raise InputError(
            f"{path}: {end // 86_400_000} days between first and last event; is the unit of time right? npz and csv can hold it"
        )
    for first in range(len(dataset), end, 1 << 20):
        milliseconds = np.arange(first, min(first + (1 << 20), end))
        _append(dataset, count + np.searchsorted(relative_us, milliseconds * 1000))


def _widen(file: h5py.File) -> None:
    """Convert t to int64, piece by piece."""
    narrow = file["events/t"]
    wide = _dataset(file, "events/wide", np.int64)
    for first in range(0, len(narrow), 1 << 20):
        _append(wide, narrow[first : first + (1 << 20)])
    del file["events/t"]
    file.move("events/wide", "events/t")


def _check_order(events: Events, count: int, last_us: int, path: Path) -> None:
    steps = np.diff(events.t, prepend=last_us)
    if (steps < 0).any():
        i = int(np.flatnonzero(steps < 0)[0])
        raise InputError(
            f"{path}: time runs backwards at event {count + i} (by {-steps[i]} us), which this format can't hold; repair it with --sort"
        )


def _check_dat(events: Events, count: int, last_us: int, path: Path) -> int:
    """Raise InputError for events that DAT can't represent; returns the last time."""
    if count == 0:
        last_us = int(events.t[0])
    if events.t.min() < 0 or (count == 0 and last_us >= LAP_US):
        raise InputError(
            f"{path}: DAT's clock can't hold a time of {events.t.min()} us; let the recording begin at zero with --start-at-zero"
        )
    outside = (events.x > LAST_PIXEL) | (events.y > LAST_PIXEL)
    if outside.any():
        i = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{path}: DAT has 14 bits a coordinate, too few for event {count + i} at ({events.x[i]}, {events.y[i]}); "
            "remove such events with --clip-to-sensor, or write .h5"
        )
    if events.t.max() >= LAP_US:
        _check_order(events, count, last_us, path)
    steps = np.abs(np.diff(events.t, prepend=last_us))
    if (steps >= LAP_US // 2).any():
        i = int(np.argmax(steps))
        raise InputError(
            f"{path}: {steps[i] // 60_000_000} minutes between events {count + i - 1} and {count + i}, too long for DAT; write .h5"
        )
    return int(events.t[-1])


FORMATS: dict[str, Callable[[Iterator[Events], Path, int, int], None]] = {
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
    ".dat": _write_dat,
    ".npz": _write_npz,
    ".csv": _write_csv,
}
