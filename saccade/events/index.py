"""Where in a recording which times are: built by one pass, kept in a cache folder, never beside the user's file unless asked."""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.files import replacing
from saccade.types import Events, InputError

log = logging.getLogger("saccade")
VERSION = 2  # of what an index means; a new number makes every kept index be built anew


@dataclass(frozen=True, eq=False)
class Index:
    """One row per chunk: the mark at which its decoding starts, the number of its events, and their first and last time."""

    marks: np.ndarray  # (chunks, numbers of a mark) int64
    counts: np.ndarray  # (chunks,) int64
    earliest_us: np.ndarray  # (chunks,) int64, smallest time
    latest_us: np.ndarray  # (chunks,) int64, largest time
    extent: tuple[int, int] = (0, 0)  # largest x and y, plus one
    notes: tuple[str, ...] = ()  # what the pass found; a later run, which reads only the index, must hear of it too

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def start_us(self) -> int:
        return int(self.earliest_us.min()) if len(self.counts) else 0

    @property
    def end_us(self) -> int:
        return int(self.latest_us.max()) + 1 if len(self.counts) else 0

    def runs(self, start_us: int, end_us: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Runs of neighbouring chunks that may hold events of [start_us, end_us): (mark of the first, number of chunks)."""
        wanted = np.flatnonzero((self.earliest_us < end_us) & (self.latest_us >= start_us))
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1):
            if len(run):
                yield tuple(int(number) for number in self.marks[run[0]]), len(run)


def build_index(chunks: Iterable[tuple[tuple[int, ...], Events]]) -> Index:
    """Read everything once. `runs` counts chunks, so none may be empty."""
    marks, rows, extent = [], [], (0, 0)
    for mark, events in chunks:
        marks.append(mark)
        rows.append((len(events), int(events.t.min()), int(events.t.max())))
        extent = (max(extent[0], int(events.x.max()) + 1), max(extent[1], int(events.y.max()) + 1))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Index(np.array(marks, np.int64).reshape(len(rows), -1 if rows else 0), table[:, 0], table[:, 1], table[:, 2], extent)


def cache_folder() -> Path:
    """$SACCADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("SACCADE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def index_path(recording: Path, key: str) -> Path:
    """A name that changes with the file's place, size and time of change, and with `key`: format and options of the reader."""
    status = recording.stat()
    identity = f"{VERSION}|{recording.resolve()}|{status.st_size}|{status.st_mtime_ns}|{key}"
    return cache_folder() / "index" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"


def load_index(path: Path, recording: Path) -> Index | None:
    """The kept index, or None if there is none, it is damaged, or the recording has changed since."""
    try:
        with np.load(path, allow_pickle=False) as file:
            status = recording.stat()
            if (int(file["version"]), int(file["size"]), int(file["changed"])) != (VERSION, status.st_size, status.st_mtime_ns):
                return None
            return Index(
                marks=file["marks"],
                counts=file["counts"],
                earliest_us=file["earliest_us"],
                latest_us=file["latest_us"],
                extent=(int(file["extent"][0]), int(file["extent"][1])),
                notes=tuple(str(note) for note in file["notes"]),
            )
    except Exception:  # numpy raises nearly everything on a damaged file, and none of it matters: the index is built anew
        return None


def save_index(index: Index, path: Path, recording: Path) -> None:
    """Keep it; a folder that can't be written costs time at the next start, no more."""
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
    except (OSError, InputError) as error:
        log.warning(
            "the index of %s can't be kept in %s (%s); set SACCADE_CACHE to a folder that can be written", recording, path.parent, error
        )
