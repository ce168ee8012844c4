"""npz files of numpy.savez and numpy.savez_compressed: arrays t, x, y, p, or one array of events; read in pieces.

By hand: numpy.load reads and decompresses whole arrays into memory.
"""

import shutil
import struct
import tempfile
import zipfile
from dataclasses import dataclass, replace
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import IO, ClassVar, NoReturn

import numpy as np

from saccade.arrays import BROKEN, ON_DISK, check_archive, read_array_header
from saccade.events.columns import (
    LATEST_US,
    MICROSECONDS_EXPONENT,
    SAMPLE,
    PolarityRule,
    check_unit,
    infer_columns,
    infer_unit,
    parse_columns,
    roles_of,
)
from saccade.events.reader import CHUNK, ArrayReader
from saccade.files import check_readable, explain_full_disk, read_exactly, scratch_file
from saccade.types import Events, InputError

COPY = 1 << 20  # bytes decompressed at once
PIECE = 1 << 24  # bytes read at once


@dataclass(frozen=True)
class StoredColumn:
    """Numbers at a constant stride in a file: an array, or one column or field of it."""

    file: IO[bytes]
    first: int  # position of the first number
    stride: int
    dtype: np.dtype
    count: int

    def read(self, first: int, last: int) -> np.ndarray:
        rows = max(PIECE // self.stride, 1)
        if last - first > rows:  # a column of a wide table: what lies between its numbers is read, too
            return np.concatenate([self.read(i, min(i + rows, last)) for i in range(first, last, rows)])
        span = (last - first - 1) * self.stride + self.dtype.itemsize if last > first else 0
        buffer = bytearray(span)
        if not read_exactly(self.file, memoryview(buffer), self.first + first * self.stride):
            raise InputError(f"{self.file.name}: became shorter while it was read; expected {self.count} events")
        return np.ndarray((last - first,), self.dtype, buffer, strides=(self.stride,))


@dataclass(frozen=True)
class StoredArray:
    """Header of an array in the zip file. `_columns_of` gives access to its numbers."""

    member: zipfile.ZipInfo
    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    header: int  # bytes before the first number

    @property
    def is_table(self) -> bool:
        return len(self.shape) == (2 if self.dtype.names is None else 1)


class NpzReader(ArrayReader):
    """Reads plain arrays from the file itself, compressed ones from a scratch file into which they are decompressed on opening.

    Memory stays bounded; a compressed recording needs room for its decompressed size in the folder for temporary files (TMPDIR).
    """

    format: ClassVar[str] = "npz"

    def __init__(
        self,
        path: Path,
        *,
        width: int | None = None,
        height: int | None = None,
        columns: str | None = None,
        time_unit: str | None = None,
    ) -> None:
        check_readable(path)
        super().__init__(path, 0, 0)
        order = parse_columns(columns) if columns else None
        self._unit = check_unit(time_unit) if time_unit else ""
        self._polarities = PolarityRule(str(path))
        self._file = path.open("rb")
        self._scratch: list[IO[bytes]] = []
        try:
            with zipfile.ZipFile(self._file) as archive:
                check_archive(archive, path, ON_DISK)
                members = {
                    member.filename.removesuffix(".npy"): member for member in archive.infolist() if member.filename.endswith(".npy")
                }
                short = {name.split("/")[-1]: name for name in members}
                names = short if len(short) == len(members) else {name: name for name in members}  # "events/t" is t, if there is one t
                arrays = {name: _read_header(archive, members[place]) for name, place in names.items()}
                self._columns = self._choose(archive, arrays, order)
                stated = self._stated_size(archive, arrays)
            self._check_columns()
            self._find_unit()
            self._find_size(width or stated[0], height or stated[1])
        except InputError:
            self.close()
            raise
        except BROKEN as error:
            self.close()
            raise InputError(f"{path}: damaged or no npz file ({error}); write it again with numpy.savez") from error

    @property
    def count(self) -> int:
        return self._columns["t"].count

    def time_at(self, i: int) -> int:
        return int(self._times(i, i + 1)[0])

    def load(self, first: int, last: int) -> Events:
        x, y = (self._pixels(name, first, last).astype(np.uint16) for name in "xy")
        p = self._polarities.to_bool(self._columns["p"].read(first, last), first)
        return Events(self._times(first, last), x, y, p, self.width, self.height)

    def close(self) -> None:
        for file in (self._file, *self._scratch):
            file.close()

    def _times(self, first: int, last: int) -> np.ndarray:
        """Microseconds, rounded half to even; InputError for NaN and times out of range."""
        values = self._columns["t"].read(first, last)
        if values.dtype.kind == "f":
            values = values.astype(np.float64)
        exponent = MICROSECONDS_EXPONENT[self._unit]
        limit = min(int(LATEST_US / 10**exponent), 1 << 63)  # nanoseconds end with int64
        wrong = ~((values > -limit) & (values < limit))
        if wrong.any():
            self._refuse("t", values, wrong, first, f"a time within 3,000 years (unit {self._unit})")
        if values.dtype.kind == "f":
            return np.rint(values * 10.0**exponent if exponent >= 0 else values / 10.0**-exponent).astype(np.int64)
        whole = values.astype(np.int64)
        if exponent >= 0:
            return whole * 10**exponent
        quotient, remainder = np.divmod(whole, 1000)
        return quotient + ((remainder > 500) | ((remainder == 500) & (quotient % 2 == 1)))

    def _pixels(self, name: str, first: int, last: int) -> np.ndarray:
        values = self._columns[name].read(first, last)
        if values.dtype.kind == "b":
            return values.astype(np.int64)
        wrong = ~((values >= 0) & (values <= 0xFFFF))
        if values.dtype.kind == "f":
            wrong |= values != np.floor(values)
        if wrong.any():
            self._refuse(name, values, wrong, first, "a whole number from 0 to 65535")
        return values.astype(np.int64)

    def _refuse(self, name: str, values: np.ndarray, wrong: np.ndarray, first: int, expected: str) -> NoReturn:
        i = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{self.path}: {name} of event {first + i} is {values[i]}; expected {expected}")

    def _choose(self, archive: zipfile.ZipFile, arrays: dict[str, StoredArray], order: tuple[str, ...] | None) -> dict[str, StoredColumn]:
        """The columns t, x, y, p: arrays of these names, else the only table, else unnamed arrays ("arr_0")."""
        named = roles_of(list(arrays))
        tables = {name: array for name, array in arrays.items() if array.is_table}
        if named is None and len(tables) > 1:
            tables = {name: array for name, array in tables.items() if name == "events"}
        if named is None and len(tables) == 1:
            table = next(iter(tables.values()))
            found = _columns_of(archive, table, self._scratch)
            named = roles_of(table.dtype.names or ())
        else:
            chosen = arrays if named else {name: array for name, array in sorted(arrays.items()) if name.startswith("arr_")}
            flat = {name: array for name, array in chosen.items() if not named or named[0][list(arrays).index(name)] != "_"}
            if not flat or any(len(array.shape) != 1 for array in flat.values()):
                raise InputError(f"{self.path}: holds {_list(arrays)}; expected arrays t, x, y, p, or an array 'events' with four columns")
            found = [_columns_of(archive, array, self._scratch)[0] for array in flat.values()]
            named = (tuple(role for role in named[0] if role != "_"), named[1]) if named else None
        if named:
            if order and order != named[0]:
                self.note(f"the arrays have names, so columns='{' '.join(order)}' isn't used")
            self._unit = self._unit or named[1] or ""
        order = named[0] if named else order or self._infer_order(found)
        if len(order) != len(found):
            raise InputError(
                f"{self.path}: {len(found)} columns, but columns='{' '.join(order)}' names {len(order)}; use _ for those to skip"
            )
        return {role: column for role, column in zip(order, found, strict=True) if role != "_"}

    def _infer_order(self, found: list[StoredColumn]) -> tuple[str, ...]:
        order, note = infer_columns([_sample(column) for column in found], str(self.path))
        self.note(note)
        return order

    def _check_columns(self) -> None:
        for name, column in self._columns.items():
            if column.dtype.kind not in "biuf" or column.dtype.shape:
                raise InputError(f"{self.path}: {name} is of type {column.dtype}; expected numbers")
        lengths = {name: column.count for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{self.path}: the columns differ in length: {lengths}")
        if self._columns["t"].dtype.kind == "f" and self._columns["t"].dtype.itemsize < 8:
            self.note(f"t is {self._columns['t'].dtype}, which loses microseconds after 16.7 s; keep times as int64 or float64")

    def _find_unit(self) -> None:
        if not self._unit and self.count:
            self._unit, note = infer_unit(_sample(self._columns["t"]), str(self.path))
            self.note(note)
        self._unit = self._unit or "us"

    def _stated_size(self, archive: zipfile.ZipFile, arrays: dict[str, StoredArray]) -> tuple[int, int]:
        """(width, height) from these two arrays or from sensor_size, else (0, 0). Also sets the unit, if there is a time_unit."""
        unit = arrays.get("time_unit")
        if unit and unit.dtype.kind == "U" and unit.shape == () and not self._unit:
            self._unit = check_unit(str(_columns_of(archive, unit, self._scratch)[0].read(0, 1)[0]))
        names = ("width", "height") if "width" in arrays or "height" in arrays else ("sensor_size",)
        columns = [
            _columns_of(archive, arrays[name], self._scratch)[0] for name in names if name in arrays and arrays[name].dtype.kind in "iu"
        ]
        numbers = [int(value) for column in columns for value in column.read(0, min(column.count, 3 - len(names)))]
        if len(numbers) < 2 or not all(0 < number <= 0x10000 for number in numbers[:2]):
            return 0, 0
        if "width" not in arrays:
            self.note(
                f"sensor_size is taken for width {numbers[0]}, height {numbers[1]} (state width and height if it is the other way round)"
            )
        return numbers[0], numbers[1]

    def _find_size(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        if width and height:
            return
        extent = [0, 0]
        for first in range(0, self.count, CHUNK):
            last = min(first + CHUNK, self.count)
            extent = [max(extent[i], int(self._pixels(name, first, last).max()) + 1) for i, name in enumerate("xy")]
        if not self.count:
            raise InputError(f"{self.path}: no events and no sensor size in it; state width and height, or give a file with events")
        self.width, self.height = width or extent[0], height or extent[1]
        self.note(f"the file doesn't state the sensor; {self.width} x {self.height} is the extent of the events (state width and height)")


def _sample(column: StoredColumn) -> list[Decimal]:
    """The first values as they print, so that 0.1 is one tenth. NaN and infinity are skipped here; `load` reports them with their row."""
    values = column.read(0, min(SAMPLE, column.count))
    if values.dtype.kind not in "biuf":
        return []
    return [Decimal(int(value)) if values.dtype.kind in "biu" else Decimal(str(value)) for value in values if np.isfinite(value)]


def _list(arrays: dict[str, StoredArray]) -> str:
    names = sorted(arrays)
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "no arrays"


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> StoredArray:
    """Read dtype and shape and check them against the member's size. Pickled objects are refused."""
    where = f"{archive.filename}: array {member.filename!r}"
    with archive.open(member) as stream:
        try:
            shape, fortran, dtype = read_array_header(stream)
        except BROKEN as error:
            raise InputError(f"{where} has an unreadable header ({error}); write it again with numpy.savez") from error
        header = stream.tell()
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled objects, which could run code; save plain numbers instead")
    if min(shape, default=0) < 0 or member.file_size - header != prod(shape) * dtype.itemsize or dtype.itemsize == 0:
        raise InputError(f"{where} is {member.file_size - header} bytes long, but its header says {shape} of {dtype}; it is damaged")
    return StoredArray(member, dtype, shape, fortran, header)


def _columns_of(archive: zipfile.ZipFile, array: StoredArray, scratch: list[IO[bytes]]) -> list[StoredColumn]:
    """The columns of a table, the fields of a structured array, or the one column of a plain array."""
    file, first = _place(archive, array, scratch)
    count = array.shape[0] if array.shape else 1
    whole = StoredColumn(file, first, array.dtype.itemsize, array.dtype, count)
    if array.dtype.names:
        fields = [array.dtype.fields[name] for name in array.dtype.names] if array.dtype.fields else []
        return [replace(whole, first=first + field[1], dtype=field[0]) for field in fields]
    if len(array.shape) < 2:
        return [whole]
    step = array.dtype.itemsize
    if array.fortran:
        return [replace(whole, first=first + i * count * step) for i in range(array.shape[1])]
    return [replace(whole, first=first + i * step, stride=array.shape[1] * step) for i in range(array.shape[1])]


def _place(archive: zipfile.ZipFile, array: StoredArray, scratch: list[IO[bytes]]) -> tuple[IO[bytes], int]:
    """(file, position of the first number), after decompression if needed."""
    member = array.member
    file = archive.fp
    assert file is not None
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
        # The local header may have other extra fields than the central directory, so its length must be read there.
        local = bytearray(30)
        if not read_exactly(file, memoryview(local), member.header_offset):
            raise InputError(f"{archive.filename}: cut off before {member.filename!r}; copy the file again")
        name_length, extra_length = struct.unpack("<HH", local[26:30])
        return file, member.header_offset + 30 + name_length + extra_length + array.header
    folder = tempfile.gettempdir()
    size = member.file_size - array.header
    advice = f"{archive.filename} unpacks {member.filename!r} there; make room or set TMPDIR to a larger folder"
    if shutil.disk_usage(folder).free < size:
        raise InputError(f"{folder}: too little room for {size >> 20} MB: {advice}")
    unpacked = scratch_file()
    scratch.append(unpacked)
    with explain_full_disk(folder, advice), archive.open(member) as stream:
        stream.read(array.header)
        shutil.copyfileobj(stream, unpacked, COPY)
        unpacked.flush()
    return unpacked, 0
