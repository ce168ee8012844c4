"""npz: the columns t, x, y, p, or one array of events, as numpy.savez and numpy.savez_compressed write them."""

import lzma
import struct
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import IO, ClassVar, NoReturn

import numpy as np

from saccade.events.columns import LATEST_US, MICROSECONDS_EXPONENT, check_unit, infer_columns, infer_unit, parse_columns, roles_of
from saccade.events.npz_arrays import Array, Column, columns_of, read_header
from saccade.events.reader import CHUNK, ArrayReader
from saccade.files import check_readable
from saccade.types import Events, InputError

SAMPLE = 1 << 12  # events by which columns and unit are inferred
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError, struct.error, lzma.LZMAError)


class NpzReader(ArrayReader):
    """Reads by position: a plain array straight from the file, a compressed one from a scratch file to which opening unpacks it.

    So memory stays bounded, and a compressed recording needs room for itself, unpacked, in the folder for temporary files (TMPDIR).
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
        self._saw_zero = self._saw_minus = False
        self._file = path.open("rb")
        self._scratch: list[IO[bytes]] = []
        try:
            with zipfile.ZipFile(self._file) as archive:
                members = {
                    member.filename.removesuffix(".npy"): member for member in archive.infolist() if member.filename.endswith(".npy")
                }
                short = {name.split("/")[-1]: name for name in members}
                names = short if len(short) == len(members) else {name: name for name in members}  # "events/t" is t, if there is one t
                arrays = {name: read_header(archive, members[place]) for name, place in names.items()}
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
        x, y = (self._whole(name, first, last, 0, 0xFFFF).astype(np.uint16) for name in "xy")
        p = self._whole("p", first, last, -1, 1)
        self._saw_zero |= bool((p == 0).any())
        self._saw_minus |= bool((p == -1).any())
        if self._saw_zero and self._saw_minus:
            raise InputError(f"{self.path}: polarity is -1, 0 and 1; expected 0 and 1, or -1 and 1")
        return Events(self._times(first, last), x, y, p > 0, self.width, self.height)

    def close(self) -> None:
        for file in (self._file, *self._scratch):
            file.close()

    def _times(self, first: int, last: int) -> np.ndarray:
        """Microseconds, rounded half to even; refuses what is no time."""
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

    def _whole(self, name: str, first: int, last: int, low: int, high: int) -> np.ndarray:
        values = self._columns[name].read(first, last)
        if values.dtype.kind == "b":
            return values.astype(np.int64)
        wrong = ~((values >= low) & (values <= high))
        if values.dtype.kind == "f":
            wrong |= values != np.floor(values)
        if wrong.any():
            self._refuse(name, values, wrong, first, "0 or 1, or -1 or 1" if name == "p" else "a whole number from 0 to 65535")
        return values.astype(np.int64)

    def _refuse(self, name: str, values: np.ndarray, wrong: np.ndarray, first: int, expected: str) -> NoReturn:
        i = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{self.path}: {name} of event {first + i} is {values[i]}; expected {expected}")

    def _choose(self, archive: zipfile.ZipFile, arrays: dict[str, Array], order: tuple[str, ...] | None) -> dict[str, Column]:
        """The columns of t, x, y, p: arrays of these names, else the one table, else arrays without names ("arr_0")."""
        named = roles_of(list(arrays))
        tables = {name: array for name, array in arrays.items() if array.is_table}
        if named is None and len(tables) > 1:
            tables = {name: array for name, array in tables.items() if name == "events"}
        if named is None and len(tables) == 1:
            table = next(iter(tables.values()))
            found = columns_of(archive, table, self._scratch)
            named = roles_of(table.dtype.names or ())
        else:
            chosen = arrays if named else {name: array for name, array in sorted(arrays.items()) if name.startswith("arr_")}
            flat = {name: array for name, array in chosen.items() if not named or named[0][list(arrays).index(name)] != "_"}
            if not flat or any(len(array.shape) != 1 for array in flat.values()):
                raise InputError(f"{self.path}: holds {_list(arrays)}; expected arrays t, x, y, p, or an array 'events' with four columns")
            found = [columns_of(archive, array, self._scratch)[0] for array in flat.values()]
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

    def _infer_order(self, found: list[Column]) -> tuple[str, ...]:
        order = infer_columns([_sample(column) for column in found], str(self.path))
        text = " ".join(order)
        self.note(f"the columns have no names; by their values they are taken for '{text}' (state columns='{text}')")
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
            self._unit, why = infer_unit(_sample(self._columns["t"]), str(self.path))
            self.note(f"the unit of time isn't stated; {why} are taken for '{self._unit}' (state time_unit='{self._unit}')")
        self._unit = self._unit or "us"

    def _stated_size(self, archive: zipfile.ZipFile, arrays: dict[str, Array]) -> tuple[int, int]:
        """(width, height) as two numbers or as sensor_size says; (0, 0) if neither is there. Also the unit, if our writer left one."""
        unit = arrays.get("time_unit")
        if unit and unit.dtype.kind == "U" and unit.shape == () and not self._unit:
            self._unit = check_unit(str(columns_of(archive, unit, self._scratch)[0].read(0, 1)[0]))
        names = ("width", "height") if "width" in arrays or "height" in arrays else ("sensor_size",)
        columns = [
            columns_of(archive, arrays[name], self._scratch)[0] for name in names if name in arrays and arrays[name].dtype.kind in "iu"
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
            extent = [max(extent[i], int(self._whole(name, first, last, 0, 0xFFFF).max()) + 1) for i, name in enumerate("xy")]
        if not self.count:
            raise InputError(f"{self.path}: no events and no sensor size in it; state width and height, or give a file with events")
        self.width, self.height = width or extent[0], height or extent[1]
        self.note(f"the file doesn't state the sensor; {self.width} x {self.height} is the extent of the events (state width and height)")


def _sample(column: Column) -> list[Decimal]:
    """The first values as they print, so that 0.1 is one tenth; what isn't finite is refused later, with its row."""
    values = column.read(0, min(SAMPLE, column.count))
    if values.dtype.kind not in "biuf":
        return []
    return [Decimal(int(value)) if values.dtype.kind in "biu" else Decimal(str(value)) for value in values if np.isfinite(value)]


def _list(arrays: dict[str, Array]) -> str:
    names = sorted(arrays)
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "no arrays"
