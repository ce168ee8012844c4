"""The interface of every recording, and the two ways to implement it: by event number (ArrayReader) or by a time index (IndexedReader)."""

import hashlib
import logging
import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import ClassVar, SupportsInt, TypeVar

import numpy as np

from saccade.files import Busy, replacing
from saccade.types import Events, InputError

log = logging.getLogger("saccade")

CHUNK = 1 << 18  # events a chunk of an array reader: 3.4 MB, small enough to stay in the cache of the core that decodes it
MARGIN = 4096  # events before and after a requested interval whose order is checked too
AnyReader = TypeVar("AnyReader", bound="Reader")
EventColumns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # t int64, x and y uint16, p bool

EARLIEST_US, LATEST_US = -(1 << 62), 1 << 62
INDEX_VERSION = 2  # of the index file; increment it and every cached index is rebuilt


class Reader(ABC):
    """A recording: sensor size, duration, `for events in reader` in chunks of bounded memory, `between` for random access.

    Chunks come in the order of the file. What was repaired or inferred is logged and kept in `notes`.
    """

    format: ClassVar[str]  # as `saccade info` prints it

    def __init__(self, path: Path, width: int, height: int) -> None:
        self.path = path
        self.width = width
        self.height = height
        self.notes: list[str] = []
        self.fraction = 0.0  # of the recording read by the latest iteration, for progress bars

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of events."""

    @property
    @abstractmethod
    def start_us(self) -> int:
        """Time of the first event (0 in an empty recording)."""

    @property
    @abstractmethod
    def end_us(self) -> int:
        """One microsecond after the last event: all events lie in [start_us, end_us)."""

    @property
    def duration_us(self) -> int:
        return self.end_us - self.start_us

    @abstractmethod
    def stream(self, start_us: int | None = None, end_us: int | None = None) -> Iterator[Events]:
        """Chunks of the events in [start_us, end_us); None = no limit."""

    def between(self, start_us: SupportsInt, end_us: SupportsInt) -> Events:
        """All events of [start_us, end_us), in one piece."""
        parts = [part for part in self.stream(int(start_us), int(end_us)) if len(part)]
        return Events.join(parts) if parts else Events.empty(self.width, self.height)

    def __iter__(self) -> Iterator[Events]:
        return self.stream()

    def note(self, text: str) -> None:
        """Log something that the user should know about this recording and keep it in `notes`; repetitions are ignored."""
        if text not in self.notes:
            self.notes.append(text)
            log.warning("%s: %s", self.path, text)

    def close(self) -> None:  # noqa: B027  not every format keeps a file open
        """Release the file."""

    def __enter__(self: AnyReader) -> AnyReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.format} {self.path.name} {self.width} x {self.height}>"


class ArrayReader(Reader):
    """A format whose n-th event can be read without those before it: times are found by bisection, without an index.

    Bisection needs times that don't run backwards. Checking all of them would mean reading the whole file, so `stream` with limits checks
    what it returns and the MARGIN events before and after, and raises InputError where time runs backwards.
    """

    @abstractmethod
    def time_at(self, i: int) -> int:
        """Time of event i in microseconds."""

    @abstractmethod
    def load(self, first: int, last: int) -> Events:
        """Events first to last - 1."""

    def position(self, time_us: int) -> int:
        """Number of the first event at or after time_us; `count` if there is none."""
        return bisect_left(range(self.count), time_us, key=self.time_at)

    @property
    def start_us(self) -> int:
        return self.time_at(0) if self.count else 0

    @property
    def end_us(self) -> int:
        return self.time_at(self.count - 1) + 1 if self.count else 0

    def stream(self, start_us: int | None = None, end_us: int | None = None) -> Iterator[Events]:
        first = 0 if start_us is None else self.position(start_us)
        last = self.count if end_us is None else self.position(end_us)
        if start_us is not None and first > 0:
            self._check_order(self.load(max(first - MARGIN, 0), first), max(first - MARGIN, 0), before_us=start_us)
        for i in range(first, last, CHUNK):
            events = self.load(i, min(i + CHUNK, last))
            if start_us is not None or end_us is not None:
                self._check_order(events, i, after_us=start_us, before_us=end_us)
            self.fraction = min(i + CHUNK, last) / self.count
            yield events
        if end_us is not None and last < self.count:
            self._check_order(self.load(last, min(last + MARGIN, self.count)), last, after_us=end_us)

    def _check_order(self, events: Events, first: int, *, after_us: int | None = None, before_us: int | None = None) -> None:
        """Raise InputError with the place where time runs backwards."""
        wrong = np.flatnonzero(np.diff(events.t) < 0)
        early = after_us is not None and int(events.t.min()) < after_us
        late = before_us is not None and int(events.t.max()) >= before_us
        if len(wrong) or early or late:
            i = int(wrong[0]) + 1 if len(wrong) else 0
            where = f"at event {first + i} ({events.t[i - 1]} -> {events.t[i]} us)" if i else f"near event {first}"
            raise InputError(
                f"{self.path}: time runs backwards {where}, so a time can't be looked up; "
                f"repair it with `saccade convert {self.path} sorted.h5 --sort`"
            )


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

    def runs(self, start_us: int, end_us: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Runs of neighbouring chunks that may hold events of [start_us, end_us): (mark of the first, number of chunks)."""
        wanted = np.flatnonzero((self.earliest_us < end_us) & (self.latest_us >= start_us))
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1):
            if len(run):
                yield tuple(int(number) for number in self.marks[run[0]]), len(run)


class IndexedReader(Reader):
    """A format that can only be decoded from known positions: packets, words relative to earlier words, lines.

    `chunks` yields (mark, events): the mark is a tuple of integers from which `chunks` can start again at that chunk. One pass collects
    marks and times of all chunks into an index that is kept in the cache folder; times may be in any order.
    """

    def __init__(self, path: Path, width: int, height: int, index_path: Path | None = None, options: str = "") -> None:
        """`options`: every setting that changes what is decoded; it is part of the name of the cached index."""
        super().__init__(path, width, height)
        self._index_path = index_path or _index_path(path, f"{self.format}|{options}")
        self._index: Index | None = None

    @abstractmethod
    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        """Chunks from the mark (None = the beginning) to the end, each with its own mark; none empty. Must set `fraction`."""

    @property
    def index(self) -> Index:
        """Built by one pass over the recording, then read from the cache."""
        if self._index is None:
            self._index = _load_index(self._index_path, self.path)
            for text in self._index.notes if self._index else ():
                self.note(text)
        if self._index is None:
            built = _build_index(self.chunks())
            self._index = replace(built, notes=tuple(self.notes))
            _save_index(self._index, self._index_path, self.path)
        return self._index

    @property
    def count(self) -> int:
        return self.index.total

    @property
    def start_us(self) -> int:
        return self.index.start_us

    @property
    def end_us(self) -> int:
        return self.index.end_us

    def stream(self, start_us: int | None = None, end_us: int | None = None) -> Iterator[Events]:
        if start_us is None and end_us is None:
            for _, events in self.chunks():
                yield events
            return
        start_us = EARLIEST_US if start_us is None else start_us
        end_us = LATEST_US if end_us is None else end_us
        for mark, length in self.index.runs(start_us, end_us):
            for _, events in islice(self.chunks(mark), length):
                yield events.between(start_us, end_us)


def new_columns(n: int) -> EventColumns:
    """Uninitialised columns for n events."""
    return np.empty(n, np.int64), np.empty(n, np.uint16), np.empty(n, np.uint16), np.empty(n, np.bool_)


def _build_index(chunks: Iterable[tuple[tuple[int, ...], Events]]) -> Index:
    """Index of all chunks; none may be empty, because `runs` counts chunks."""
    marks, rows, extent = [], [], (0, 0)
    for mark, events in chunks:
        marks.append(mark)
        rows.append((len(events), int(events.t.min()), int(events.t.max())))
        extent = (max(extent[0], int(events.x.max()) + 1), max(extent[1], int(events.y.max()) + 1))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Index(np.array(marks, np.int64).reshape(len(rows), -1 if rows else 0), table[:, 0], table[:, 1], table[:, 2], extent)


def _cache_folder() -> Path:
    """$SACCADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("SACCADE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def _index_path(recording: Path, key: str) -> Path:
    """File name derived from the recording's path, size and time of change, and from `key`: format and options of the reader."""
    status = recording.stat()
    identity = f"{INDEX_VERSION}|{recording.resolve()}|{status.st_size}|{status.st_mtime_ns}|{key}"
    return _cache_folder() / "index" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"


def _load_index(path: Path, recording: Path) -> Index | None:
    """The cached index; None if there is none, it is damaged, or the recording has changed since."""
    try:
        with np.load(path, allow_pickle=False) as file:
            status = recording.stat()
            if (int(file["version"]), int(file["size"]), int(file["changed"])) != (INDEX_VERSION, status.st_size, status.st_mtime_ns):
                return None
            return Index(
                marks=file["marks"],
                counts=file["counts"],
                earliest_us=file["earliest_us"],
                latest_us=file["latest_us"],
                extent=(int(file["extent"][0]), int(file["extent"][1])),
                notes=tuple(str(note) for note in file["notes"]),
            )
    except Exception:  # numpy raises nearly everything on a damaged file; in any case the index is rebuilt
        return None


def _save_index(index: Index, path: Path, recording: Path) -> None:
    """A cache folder that can't be written is only a warning: the index is then rebuilt at the next start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                version=INDEX_VERSION,
                size=recording.stat().st_size,
                changed=recording.stat().st_mtime_ns,
                marks=index.marks,
                counts=index.counts,
                earliest_us=index.earliest_us,
                latest_us=index.latest_us,
                extent=index.extent,
                notes=np.array(index.notes, np.str_),
            )
    except Busy:  # it keeps the same index
        return
    except (OSError, InputError) as error:
        log.warning(
            "the index of %s can't be kept in %s (%s); set SACCADE_CACHE to a folder that can be written", recording, path.parent, error
        )
