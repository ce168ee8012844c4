"""NEW HDF5 FILE that survives a full disk: HDF5 is never told that a write failed, because it then damages its own memory (SIGSEGV)."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py


@contextmanager
def new_hdf5(path: Path) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """(the file, a check). What doesn't fit on the disk waits in memory until the check raises why: call it after every few megabytes."""
    with _PatientFile(path) as patient:
        with h5py.File(patient, "w") as file:
            yield file, patient.check
        patient.check()


class _PatientFile(io.FileIO):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+b")
        self.failed: OSError | None = None
        self.unwritten: list[tuple[int, bytes]] = []  # position and content, oldest first

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def write(self, data: Any) -> int:
        start, rest = self.tell(), memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failed = self.failed or error
            self.unwritten.append((start, bytes(data)))
        self.seek(start + size)
        return size

    def readinto(self, buffer: Any) -> int:
        """As if everything had been written."""
        start, view = self.tell(), memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and (got := super().readinto(view[done:])):
            done += got
        view[done:] = bytes(len(view) - done)
        for first, data in self.unwritten:
            low, high = max(first, start), min(first + len(data), start + len(view))
            if low < high:
                view[low - start : high - start] = data[low - first : high - first]
        self.seek(start + len(view))
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failed = self.failed or error
            return self.tell() if size is None else size
