"""Files of our own on disk: a full disk is explained, scratch files vanish by themselves, and arrays are read without mapping them."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from saccade.types import InputError

FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file would be larger than allowed"}


@contextmanager
def explain_full_disk(where: Path | str, advice: str = "make room or choose another folder") -> Iterator[None]:
    """Turn the errors of a disk that takes no more into InputError. HDF5 buries the number of the error in its text."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        for number, text in FULL.items():
            if getattr(error, "errno", None) == number or f"errno = {number}," in str(error):
                raise InputError(f"{where}: {text}; {advice}") from error
        raise


def scratch_file(folder: Path | None = None) -> IO[bytes]:
    """A file without a name: the system removes it when it is closed, even after a crash."""
    return tempfile.TemporaryFile(prefix="saccade-", dir=folder)


def read_exactly(file: IO[bytes], buffer: memoryview, position: int) -> bool:
    """Fill the buffer from this position on, without moving the file's own; False if the file ends before."""
    done = 0
    while done < len(buffer):
        got = os.preadv(file.fileno(), [buffer[done:]], position + done)
        if got <= 0:
            return False
        done += got
    return True
