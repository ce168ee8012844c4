"""The interface of every recording, and the two ways to implement it: by event number (ArrayReader) or by a time index (IndexedReader)."""

import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import ClassVar, SupportsInt, TypeVar

import numpy as np

from saccade.events.index import Index, build_index, index_path_of, load_index, save_index
from saccade.types import Events, InputError

log = logging.getLogger("saccade")

CHUNK = 1 << 18  # events a chunk of an array reader: 3.4 MB, small enough to stay in the cache of the core that decodes it
MARGIN = 4096  # events before and after a requested interval whose order is checked too
AnyReader = TypeVar("AnyReader", bound="Reader")
EventColumns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # t int64, x and y uint16, p bool

EARLIEST_US, LATEST_US = -(1 << 62), 1 << 62


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


class IndexedReader(Reader):
    """A format that can only be decoded from known positions: packets, words relative to earlier words, lines.

    `chunks` yields (mark, events): the mark is a tuple of integers from which `chunks` can start again at that chunk. One pass collects
    marks and times of all chunks into an index that is kept in the cache folder; times may be in any order.
    """

    mark_length: ClassVar[int] = 1  # numbers of a mark; an index with others isn't used

    def __init__(self, path: Path, width: int, height: int, index_path: Path | None = None, options: str = "") -> None:
        """`options`: every setting that changes what is decoded; it is part of the name of the cached index."""
        super().__init__(path, width, height)
        self._index_path = index_path or index_path_of(path, f"{self.format}|{options}")
        self._index: Index | None = None

    @abstractmethod
    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        """Chunks from the mark (None = the beginning) to the end, each with its own mark; none empty. Must set `fraction`."""

    @property
    def index(self) -> Index:
        """Built by one pass over the recording, then read from the cache."""
        if self._index is None:
            self._index = load_index(self._index_path, self.path, self.mark_length)
            for text in self._index.notes if self._index else ():
                self.note(text)
        if self._index is None:
            built = build_index(self.chunks())
            self._index = replace(built, notes=tuple(self.notes))
            save_index(self._index, self._index_path, self.path)
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
        index = self.index
        for run in index.runs(start_us, end_us):
            mark = tuple(int(number) for number in index.marks[run.start])
            for row, (_, events) in zip(run, islice(self.chunks(mark), len(run)), strict=True):
                self._check_row(index, row, events)
                yield events.between(start_us, end_us)

    def _check_row(self, index: Index, row: int, events: Events) -> None:
        """The index may have been damaged or forged: nothing but the recording decides what its events are."""
        if len(events) != index.counts[row] or not index.earliest_us[row] <= events.t[0] <= index.latest_us[row]:
            raise InputError(f"{self.path}: isn't what its index {self._index_path} says; delete that file, it is made again")


def new_columns(n: int) -> EventColumns:
    """Uninitialised columns for n events."""
    return np.empty(n, np.int64), np.empty(n, np.uint16), np.empty(n, np.uint16), np.empty(n, np.bool_)
