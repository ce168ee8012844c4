"""RECORDING -> TIME INDEX: where each chunk can be decoded from and which times it holds, kept in the cache folder."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.arrays import open_arrays
from saccade.files import Busy, replacing
from saccade.s3 import cache_folder
from saccade.types import Events, InputError

log = logging.getLogger("saccade")

VERSION = 2  # of the index file; increment it and every cached index is rebuilt


@dataclass(frozen=True, eq=False)
class Index:
    """One row per chunk: the mark from which it can be decoded, the number of its events, and their smallest and largest time."""

    marks: np.ndarray  # (chunks, numbers of a mark) int64
    counts: np.ndarray  # (chunks,) int64
    earliest_us: np.ndarray  # (chunks,) int64, smallest time
    latest_us: np.ndarray  # (chunks,) int64, largest time
    extent: tuple[int, int] = (0, 0)  # largest x and y, plus one
    notes: tuple[str, ...] = ()  # of the pass that built it; repeated when the index is read from the cache

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def start_us(self) -> int:
        return int(self.earliest_us.min()) if len(self.counts) else 0

    @property
    def end_us(self) -> int:
        return int(self.latest_us.max()) + 1 if len(self.counts) else 0

    def runs(self, start_us: int, end_us: int) -> Iterator[range]:
        """Rows of neighbouring chunks that may hold events of [start_us, end_us)."""
        wanted = np.flatnonzero((self.earliest_us < end_us) & (self.latest_us >= start_us))
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1):
            if len(run):
                yield range(int(run[0]), int(run[-1]) + 1)


def build_index(chunks: Iterable[tuple[tuple[int, ...], Events]]) -> Index:
    """Index of all chunks; none may be empty, because `runs` counts chunks."""
    marks, rows, extent = [], [], (0, 0)
    for mark, events in chunks:
        marks.append(mark)
        rows.append((len(events), int(events.t.min()), int(events.t.max())))
        extent = (max(extent[0], int(events.x.max()) + 1), max(extent[1], int(events.y.max()) + 1))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Index(np.array(marks, np.int64).reshape(len(rows), -1 if rows else 0), table[:, 0], table[:, 1], table[:, 2], extent)


def index_path_of(recording: Path, key: str) -> Path:
    """File name derived from the recording's path, size and time of change, and from `key`: format and options of the reader."""
    status = recording.stat()
    identity = f"{VERSION}|{recording.resolve()}|{status.st_size}|{status.st_mtime_ns}|{key}"
    return cache_folder() / "index" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"


def load_index(path: Path, recording: Path, mark_length: int) -> Index | None:
    """The cached index; None if there is none, it is damaged, or the recording has changed since: then it is built again."""
    try:
        with open_arrays(path) as file:
            status = recording.stat()
            if (int(file["version"]), int(file["size"]), int(file["changed"])) != (VERSION, status.st_size, status.st_mtime_ns):
                return None
            index = Index(
                marks=file["marks"],
                counts=file["counts"],
                earliest_us=file["earliest_us"],
                latest_us=file["latest_us"],
                extent=(int(file["extent"][0]), int(file["extent"][1])),
                notes=tuple(str(note) for note in file["notes"]),
            )
            return index if _is_sound(index, mark_length, status.st_size) else None
    except Exception:  # numpy raises nearly everything on a damaged file; in any case the index is rebuilt
        return None


def _is_sound(index: Index, mark_length: int, size: int) -> bool:
    """Marks go into compiled code, which trusts their number, and to positions of the file."""
    rows, numbers = len(index.marks), (index.counts, index.earliest_us, index.latest_us)
    return (
        index.marks.dtype == np.int64
        and index.marks.shape == (rows, mark_length if rows else 0)
        and all(column.dtype == np.int64 and column.shape == (rows,) for column in numbers)
        and bool(((index.marks[:, :1] >= 0) & (index.marks[:, :1] <= size)).all())
        and bool(((index.counts > 0) & (index.counts < 1 << 40) & (index.earliest_us <= index.latest_us)).all())
        and all(0 <= side <= 1 << 16 for side in index.extent)
    )


def save_index(index: Index, path: Path, recording: Path) -> None:
    """A cache folder that can't be written is only a warning: the index is then rebuilt at the next start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                version=VERSION,
                size=recording.stat().st_size,
                changed=recording.stat().st_mtime_ns,
                marks=index.marks,
                counts=index.counts,
                earliest_us=index.earliest_us,
                latest_us=index.latest_us,
                extent=index.extent,
                notes=np.array(index.notes, np.str_),
            )
    except Busy:  # another process keeps the same index
        return
    except (OSError, InputError) as error:
        log.warning(
            "the index of %s can't be kept in %s (%s); set SACCADE_CACHE to a folder that can be written", recording, path.parent, error
        )
