"""ZIP AND NUMPY FILES -> PLAIN ARRAYS: checked before anything is unpacked, so that no small file takes much memory, and none runs code."""

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from saccade.files import check_readable
from saccade.types import InputError

METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflate", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
FREE_BYTES = 64 << 20  # that any file may unpack to, however small it is
IN_MEMORY, ON_DISK = 4, 200  # and this many times its own size more
LONGEST_HEADER = 1 << 16  # of an array
# What numpy and zipfile raise on damaged files.
BROKEN = (
    OSError, ValueError, EOFError, SyntaxError, TypeError, KeyError, MemoryError, OverflowError, RecursionError, NotImplementedError,
    RuntimeError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def check_archive(archive: zipfile.ZipFile, where: Path | str, times: int = IN_MEMORY, methods: tuple[int, ...] = (0, 8)) -> None:
    """InputError if members are compressed otherwise than numpy does, or unpack to more than FREE_BYTES and TIMES the file.

    bzip2 and lzma pack gigabytes of zeros into a few kB, and Python unpacks them in one piece. Members that share their bytes count each.
    """
    members = archive.infolist()
    other = next((member for member in members if member.compress_type not in methods), None)
    if other is not None:
        found = METHODS.get(other.compress_type, f"method {other.compress_type}")
        raise InputError(f"{where}: {other.filename!r} is compressed by {found}; expected {' or '.join(METHODS[one] for one in methods)}")
    assert archive.fp is not None
    size, unpacked = os.fstat(archive.fp.fileno()).st_size, sum(member.file_size for member in members)
    if unpacked > FREE_BYTES + times * size:
        raise InputError(f"{where}: {size >> 10} kB that unpack to {unpacked >> 20} MB; no real data does, so the file was made to harm")


def read_array_header(stream: IO[bytes] | zipfile.ZipExtFile) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran order, and type of the array that begins here; ValueError and others if it is damaged."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version}, expected (1, 0) or (2, 0)")
    length = stream.read(2 * version[0])
    if int.from_bytes(length, "little") > LONGEST_HEADER:
        raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes, expected at most {LONGEST_HEADER}")
    stream.seek(stream.tell() - len(length))
    return (np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)


@contextmanager
def open_arrays(path: Path) -> Iterator[Any]:
    """The arrays of an npz by name, each read when it is asked for. InputError if it isn't as numpy writes it, else numpy's own errors."""
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as archive:
            check_archive(archive, path)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz, or that of an npy under the name ''. Pickled objects are refused: they could run code."""
    check_readable(path)
    try:
        if zipfile.is_zipfile(path):
            with open_arrays(path) as arrays:
                return {name: arrays[name] for name in arrays.files}
        with path.open("rb") as file:
            read_array_header(file)
            file.seek(0)
            return {"": np.lib.format.read_array(file, allow_pickle=False)}
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(
            f"{path}: can't be read as plain numpy arrays ({error}); it is damaged, or holds pickled objects, which could run code: "
            "copy it again, or save it with plain numbers"
        ) from error
