"""HDF5 files of DSEC, RVT (`_td.dat.h5`), Prophesee (with ECF compression), and others with columns x, y, t, p or xs, ys, ts, ps."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np

from saccade.events import ecf
from saccade.events.columns import PolarityRule
from saccade.events.hdf5_file import FREE_BYTES, H5PY_ERRORS, chunk_bytes, open_hdf5, try_together, try_values
from saccade.events.hdf5_layout import find_layout
from saccade.events.reader import CHUNK, ArrayReader, EventColumns
from saccade.types import Events, InputError

EVENTS_A_BYTE = 16  # more than any real recording has; others are read, but not only to find out the size of the sensor


class Hdf5Reader(ArrayReader):
    """Columns are read as slices; HDF5 caches the chunk in which a slice ends, so that none is decompressed twice."""

    format: ClassVar[str] = "HDF5"

    def __init__(self, path: Path, *, width: int | None = None, height: int | None = None, time_unit: str | None = None) -> None:
        super().__init__(path, width or 0, height or 0)
        self._polarities = PolarityRule(str(path))
        with self._reading("open"):
            self._file = open_hdf5(path, partial(look, time_unit=time_unit))
        try:
            with self._reading("find events in"):
                self._layout = find_layout(self._file, time_unit)
                self._count = len(self._layout.datasets["t"])
                self._columns = self._open_columns()
            for text in self._layout.notes:
                self.note(text)
            self._block = self._block_size()
            self._first_times: dict[int, int] = {}  # of blocks that bisection has looked at
            self._ms_to_idx = self._load_ms_to_idx()
            if not (width and height):
                self.width, self.height = self._layout.size or self._inferred_size()
        except BaseException:
            self._file.close()
            raise

    @property
    def count(self) -> int:
        return self._count

    def close(self) -> None:
        self._file.close()

    def time_at(self, i: int) -> int:
        return int(self._times(i, i + 1)[0])

    def load(self, first: int, last: int) -> Events:
        with self._reading("read"):
            t, x, y, p = self._columns.load(first, last)
        t_us, x, y = self._to_us(t), self._to_pixels("x", x), self._to_pixels("y", y)
        return Events(t_us, x, y, self._polarities.to_bool(p, first), self.width, self.height)

    def position(self, time_us: int) -> int:
        if self._ms_to_idx is not None:
            if (found := self._by_millisecond(time_us)) is not None:
                return found
            self._ms_to_idx = None
            self.note("ms_to_idx doesn't fit the times; times are looked up by bisection")
        blocks = range(-(-self._count // self._block))
        block = bisect_left(blocks, time_us, key=self._first_time)  # the first that begins at or after time_us
        first = max(block - 1, 0) * self._block
        return first + int(np.searchsorted(self._times(first, min(first + self._block, self._count)), time_us))

    def _first_time(self, block: int) -> int:
        if block not in self._first_times:
            self._first_times[block] = self.time_at(block * self._block)
        return self._first_times[block]

    def _by_millisecond(self, time_us: int) -> int | None:
        """Look up DSEC's table ms_to_idx (the first event of every millisecond); None if it contradicts the times."""
        assert self._ms_to_idx is not None
        millisecond = (time_us - self._layout.offset_us) // 1000
        if millisecond < 0 or millisecond >= len(self._ms_to_idx):
            first = 0 if millisecond < 0 else self._ms_to_idx[-1]
            last = 0 if millisecond < 0 else self._count
        else:
            first = self._ms_to_idx[millisecond]
            last = self._ms_to_idx[millisecond + 1] if millisecond + 1 < len(self._ms_to_idx) else self._count
        begin, end = max(int(first) - 1, 0), min(int(last) + 1, self._count)
        if not 0 <= first <= last <= self._count or end - begin > 64 * CHUNK:
            return None
        times = self._times(begin, end)
        found = begin + int(np.searchsorted(times, time_us))
        early = found > begin or begin == 0  # an event before `found` was seen, or there is none
        late = found < end or end == self._count
        return found if early and late else None

    def _times(self, first: int, last: int) -> np.ndarray:
        with self._reading("read"):
            times = self._columns.times(first, last)
        return self._to_us(times)

    def _to_us(self, t: np.ndarray) -> np.ndarray:
        offset, unit = self._layout.offset_us, self._layout.unit_us
        if t.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = np.rint(t.astype(np.float64) * unit)
            if len(t) and not (np.abs(scaled) < 2**62).all():
                raise InputError(
                    f"{self.path}: times hold NaN or numbers beyond 64 bits; expected seconds as floats, or integers with a stated unit"
                )
            return scaled.astype(np.int64) + offset
        if t.dtype.itemsize == 8 and len(t) and (int(t.max()) >= 2**52 / unit or int(t.min()) <= -(2**52) / unit):
            raise InputError(f"{self.path}: times up to {t.max()} can't be microseconds of a recording; state their unit with time_unit=")
        if unit == 1.0:
            t_us = t.astype(np.int64)  # 64 bits were checked above
            t_us += offset
            return t_us
        return (t.astype(np.int64) // 1000 if unit < 1 else t.astype(np.int64) * int(unit)) + offset

    def _to_pixels(self, name: str, values: np.ndarray) -> np.ndarray:
        if values.dtype == np.uint16:
            return values
        if len(values) and values.dtype != np.uint8 and not (int(values.min()) >= 0 and int(values.max()) < 65_536):
            raise InputError(f"{self.path}: {name} lies between {values.min()} and {values.max()}; expected 0 to 65535")
        return values.astype(np.uint16)

    def _open_columns(self) -> "_SeparateColumns | _RecordColumns | _EcfChunks":
        whole = self._layout.whole
        if whole is None:
            return _SeparateColumns(self._layout.datasets)
        filters = _filters(whole)
        if not _needs_ecf(whole):
            return _RecordColumns(whole, self._layout.fields)
        if filters != [ecf.FILTER] or whole.chunks is None:
            raise InputError(
                f"{whole.name} combines ECF with other filters; install Prophesee's codec (hdf5_ecf) and set HDF5_PLUGIN_PATH to it"
            )
        return _EcfChunks(whole, self._layout.fields)

    def _block_size(self) -> int:
        chunks = self._layout.datasets["t"].chunks
        return max(chunks[0], 1 << 12) if chunks else 1 << 16

    def _load_ms_to_idx(self) -> np.ndarray | None:
        with self._reading("read"):
            dataset = self._layout.ms_to_idx
            if (
                dataset is None
                or not len(dataset)
                or max(8 * len(dataset), chunk_bytes(dataset)) > FREE_BYTES + 4 * self.path.stat().st_size
            ):
                return None
            table = dataset[:]
        return table.astype(np.int64) if len(table) and int(table.max()) <= self._count else None

    def _inferred_size(self) -> tuple[int, int]:
        width = height = 0
        if self._count > (1 << 22) + EVENTS_A_BYTE * self.path.stat().st_size:
            raise InputError(f"{self.path}: no sensor size, and {self._count} events to infer it from; state width= and height=")
        for events in self:
            width, height = max(width, int(events.x.max()) + 1), max(height, int(events.y.max()) + 1)
        self.note(f"no sensor size in the file; {width} x {height} is the extent of the events (state width= and height=)")
        return width, height

    @contextmanager
    def _reading(self, action: str) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            text = str(error)
            raise InputError(text if text.startswith(str(self.path)) else f"{self.path}: {text}") from error
        except H5PY_ERRORS as error:
            raise InputError(
                f"{self.path}: can't {action} this HDF5 file, it is damaged or needs a filter that isn't installed ({error})"
            ) from error


def try_readers(paths: Sequence[Path], time_unit: str | None = None) -> None:
    """Try files that will be opened one after the other, some dozens at a time: thousands are open in a third of the time."""
    try_together(paths, partial(look, time_unit=time_unit))


def look(file: h5py.File, time_unit: str | None = None) -> None:
    """What reading will do with the file, without the costly part."""
    layout = find_layout(file, time_unit)
    raw = layout.whole is not None and _needs_ecf(layout.whole)
    for dataset in [layout.whole] if layout.whole is not None else layout.datasets.values():
        try_values(dataset, raw=raw)
    if layout.ms_to_idx is not None:
        try_values(layout.ms_to_idx)


def _filters(dataset: h5py.Dataset) -> list[int]:
    pipeline = dataset.id.get_create_plist()
    return [pipeline.get_filter(k)[0] for k in range(pipeline.get_nfilters())]


def _needs_ecf(dataset: h5py.Dataset) -> bool:
    """Whether the chunks are decoded by ecf.py, because HDF5 has no codec for them."""
    return ecf.FILTER in _filters(dataset) and not h5py.h5z.filter_avail(ecf.FILTER)


class _SeparateColumns:
    """One data set per column."""

    def __init__(self, datasets: dict[str, h5py.Dataset]) -> None:
        self._datasets = datasets

    def times(self, first: int, last: int) -> np.ndarray:
        return self._datasets["t"][first:last]

    def load(self, first: int, last: int) -> list[np.ndarray]:
        return [self._datasets[name][first:last] for name in "txyp"]


class _RecordColumns:
    """One data set of records with the columns as fields."""

    def __init__(self, dataset: h5py.Dataset, fields: dict[str, str]) -> None:
        self._dataset = dataset
        self._fields = fields

    def times(self, first: int, last: int) -> np.ndarray:
        return self._dataset[first:last][self._fields["t"]]

    def load(self, first: int, last: int) -> list[np.ndarray]:
        records = self._dataset[first:last]
        return [np.ascontiguousarray(records[self._fields[name]]) for name in "txyp"]


class _EcfChunks:
    """Chunks for which HDF5 has no codec: read as stored and decoded by ecf.py."""

    def __init__(self, dataset: h5py.Dataset, fields: dict[str, str]) -> None:
        self._dataset = dataset
        self._fields = fields
        self._length = dataset.chunks[0]
        self._kept: tuple[int, EventColumns] | None = None

    def times(self, first: int, last: int) -> np.ndarray:
        return self.load(first, last)[0]

    def load(self, first: int, last: int) -> list[np.ndarray]:
        begin, end = first // self._length, -(-last // self._length)
        parts = [self._chunk(k) for k in range(begin, max(end, begin + 1))]
        cut = slice(first - begin * self._length, last - begin * self._length)
        return [np.concatenate(column)[cut] if len(column) > 1 else column[0][cut].copy() for column in zip(*parts, strict=True)]

    def _chunk(self, number: int) -> EventColumns:
        if self._kept is None or self._kept[0] != number:
            skipped, data = self._dataset.id.read_direct_chunk((number * self._length,))
            if skipped:  # ECF is an optional filter: a chunk that it couldn't encode is stored as it is
                records = np.frombuffer(data, self._dataset.dtype)
                columns = tuple(records[self._fields[name]] for name in "txyp")
            else:
                columns = ecf.decode_chunk(data)
            wanted = min(self._length, len(self._dataset) - number * self._length)
            if len(columns[0]) < wanted:
                raise InputError(f"chunk {number} of {self._dataset.name} holds {len(columns[0])} events; expected {wanted}")
            self._kept = (number, columns)  # type: ignore[assignment]
        assert self._kept is not None
        return self._kept[1]
