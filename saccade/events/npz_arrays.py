"""Arrays inside a zip file, readable in pieces: plain ones where they lie, compressed ones from a scratch file."""

import shutil
import struct
import tempfile
import tokenize
import zipfile
from dataclasses import dataclass, replace
from math import prod
from typing import IO

import numpy as np

from saccade.files import explain_full_disk, read_exactly, scratch_file
from saccade.types import InputError

COPY = 1 << 20  # bytes unpacked at once
UNREADABLE = (ValueError, SyntaxError, TypeError, KeyError, EOFError, OverflowError, RecursionError, MemoryError, tokenize.TokenError)


@dataclass(frozen=True)
class Column:
    """Numbers at even distances in a file: a whole array, or one column or field of it."""

    file: IO[bytes]
    first: int  # position of the first number
    stride: int
    dtype: np.dtype
    count: int

    def read(self, first: int, last: int) -> np.ndarray:
        span = (last - first - 1) * self.stride + self.dtype.itemsize if last > first else 0
        buffer = bytearray(span)
        if not read_exactly(self.file, memoryview(buffer), self.first + first * self.stride):
            raise InputError(f"{self.file.name}: became shorter while it was read; expected {self.count} events")
        return np.ndarray((last - first,), self.dtype, buffer, strides=(self.stride,))


@dataclass(frozen=True)
class Array:
    """What an array's header says. Its numbers are reached by `columns_of`."""

    member: zipfile.ZipInfo
    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    header: int  # bytes before the first number

    @property
    def is_table(self) -> bool:
        return len(self.shape) == (2 if self.dtype.names is None else 1)


def read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Read dtype and shape, and check that the member is as long as they say. Pickled objects are refused, whatever they hold."""
    where = f"{archive.filename}: array {member.filename!r}"
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = reader(stream)
        except UNREADABLE as error:
            raise InputError(f"{where} has an unreadable header ({error}); write it again with numpy.savez") from error
        header = stream.tell()
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled objects, which could run code; save plain numbers instead")
    if min(shape, default=0) < 0 or member.file_size - header != prod(shape) * dtype.itemsize or dtype.itemsize == 0:
        raise InputError(f"{where} is {member.file_size - header} bytes long, but its header says {shape} of {dtype}; it is damaged")
    return Array(member, dtype, shape, fortran, header)


def columns_of(archive: zipfile.ZipFile, array: Array, scratch: list[IO[bytes]]) -> list[Column]:
    """The columns of a table, the fields of a structured array, or the one column of a plain array."""
    file, first = _place(archive, array, scratch)
    count = array.shape[0] if array.shape else 1
    whole = Column(file, first, array.dtype.itemsize, array.dtype, count)
    if array.dtype.names:
        fields = [array.dtype.fields[name] for name in array.dtype.names] if array.dtype.fields else []
        return [replace(whole, first=first + field[1], dtype=field[0]) for field in fields]
    if len(array.shape) < 2:
        return [whole]
    step = array.dtype.itemsize
    if array.fortran:
        return [replace(whole, first=first + i * count * step) for i in range(array.shape[1])]
    return [replace(whole, first=first + i * step, stride=array.shape[1] * step) for i in range(array.shape[1])]


def _place(archive: zipfile.ZipFile, array: Array, scratch: list[IO[bytes]]) -> tuple[IO[bytes], int]:
    """(file, position of the first number)."""
    member = array.member
    file = archive.fp
    assert file is not None
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
        # The local header may carry other extra fields than the directory at the end: only it knows its length.
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
