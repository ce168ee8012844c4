"""EVENTS -> PIECES on an exact grid, each event in one; PIECES -> WINDOWS of any length that end with the newest piece."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from saccade.types import Events, InputError, Times, Window

log = logging.getLogger("saccade")

Rate = int | float | Fraction
WindowKind = Literal["sliding", "disjoint"]
KINDS = ("sliding", "disjoint")
HOUR_US = 3_600_000_000
MANY_CHUNKS = 8  # a live source may push packets of ten events: from here on the held ones are joined, so that cutting stays cheap
WIDEST = 1 << 62  # products up to here fit into int64


@dataclass(frozen=True)
class Grid:
    """Window ends end(k) = origin_us + floor(k * step), with the step as a fraction: no rate drifts, however long it runs."""

    step_us: Fraction
    origin_us: int

    @classmethod
    def of_rate(cls, rate_hz: Rate, origin_us: int) -> "Grid":
        try:
            rate = rate_hz if isinstance(rate_hz, Fraction) else Fraction(float(rate_hz)).limit_denominator(1_000_000)
        except (TypeError, ValueError, OverflowError):  # no number, NaN, infinity
            rate = Fraction(0)
        if not 0 < rate <= 1_000_000:
            raise InputError(f"windows: rate_hz={rate_hz!r} must be a number above 0 and at most 1,000,000 windows per second")
        return cls(1_000_000 / rate, int(origin_us))

    def end(self, k: int) -> int:
        return self.origin_us + k * self.step_us.numerator // self.step_us.denominator

    def index(self, time_us: int) -> int:
        """Number of the newest end at or before time_us."""
        return ((time_us - self.origin_us + 1) * self.step_us.denominator - 1) // self.step_us.numerator

    def indices(self, times_us: Times) -> np.ndarray:
        """`index` of many times at once: relative to the earliest, so that the products stay inside int64, else in Python's integers."""
        if not len(times_us):
            return np.zeros(0, np.int64)
        numerator, denominator = self.step_us.numerator, self.step_us.denominator
        first = self.index(int(times_us.min()))
        passed = times_us - self.end(first)
        if (int(passed.max()) + 1) * denominator > WIDEST:
            passed = passed.astype(object)
        return first + ((passed + 1) * denominator - 1 - first * numerator % denominator) // numerator


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Events that wait for their piece."""

    events: Events
    ordered: bool
    last_us: int

    @classmethod
    def of(cls, events: Events) -> "_Chunk":
        ordered = events.ordered
        return cls(events, ordered, int(events.t[-1] if ordered else events.t.max()))

    def between(self, start_us: int, end_us: int) -> Events:
        return self.events.between(start_us, end_us, self.ordered)


class Waiting(NamedTuple):
    """All that a Cutter knows, to be kept in a file: another one of the same settings goes on from it."""

    events: Events | None  # that are in no finished piece yet; None = nothing came so far
    newest_us: int | None  # None = nothing came that was accepted
    last_event_us: int
    next: int
    passed_us: int | None
    late: int
    unreported: list[tuple[int, int]]


class Cutter:
    """Cuts a stream into pieces that end on the grid: push events, or move the clock of a silent source; each returns complete pieces.

    A piece begins where the one before ended, so every event is in exactly one. It is complete once something at or after its end +
    slack_us came. What comes for a completed piece is late: it enters none, is counted in `late` of the next one and of the Cutter.
    Where chunks begin and end changes nothing.
    """

    def __init__(self, rate_hz: Rate, *, origin_us: int = 0, slack_us: int = 0, max_gap_us: int = HOUR_US) -> None:
        for name, value, least in (("slack_us", slack_us, 0), ("max_gap_us", max_gap_us, 1)):
            if value < least or int(value) != value:
                raise InputError(f"windows: {name}={value!r} must be a whole number of microseconds, at least {least}")
        self.grid = Grid.of_rate(rate_hz, origin_us)
        self.slack_us, self.max_gap_us = int(slack_us), int(max_gap_us)
        self.late = 0  # events that were in no piece, so far
        self._chunks: list[_Chunk] = []
        self._size: tuple[int, int] | None = None
        self._newest_us: int | None = None  # of events and clock; None = nothing came yet
        self._last_event_us = 0
        self._next = 0  # number of the next piece's end
        self._passed_us: int | None = None  # end of the newest piece that was cut
        self._late: deque[tuple[int, int]] = deque()  # (newest time when they came, how many), until a piece reports them

    @property
    def waiting(self) -> int:
        """Number of complete pieces that nobody has taken yet."""
        return 0 if self._newest_us is None else max(self.grid.index(self._newest_us - self.slack_us) + 1 - self._next, 0)

    @property
    def newest_us(self) -> int | None:
        """Time of the newest event, or of the clock if that is later; None = nothing came yet."""
        return self._newest_us

    def change_rate(self, rate_hz: Rate) -> None:
        """After the newest piece that was cut, ends are those of another rate; the next piece begins where that one ended."""
        self.grid = Grid.of_rate(rate_hz, self.grid.origin_us)
        if self._passed_us is not None:
            self._next = self.grid.index(self._passed_us) + 1
        elif self._chunks:
            self._next = self.grid.index(min(int(chunk.events.t.min()) for chunk in self._chunks)) + 1

    def state(self) -> Waiting:
        events = Events.join([chunk.events for chunk in self._chunks]) if self._chunks else None
        if events is None and self._size is not None:
            events = Events.empty(*self._size)
        return Waiting(events, self._newest_us, self._last_event_us, self._next, self._passed_us, self.late, list(self._late))

    def restore(self, state: Waiting) -> None:
        if state.events is not None:
            self._size, self._newest_us = (state.events.width, state.events.height), state.newest_us
            self._chunks = [_Chunk.of(state.events)] if len(state.events) else []
        self._last_event_us, self._next, self._passed_us, self.late = state.last_event_us, state.next, state.passed_us, state.late
        self._late = deque(state.unreported)

    def push(self, events: Events) -> Iterator[Window]:
        """Take a chunk; the pieces come lazily, a long pause costs no memory."""
        if len(events):
            if self._size not in (None, (events.width, events.height)):
                raise InputError(
                    f"windows: the sensor changed from {self._size} to {(events.width, events.height)}; use one source at a time"
                )
            self._size = (events.width, events.height)
            self._take(events)
        return self.complete()

    def advance_to(self, time_us: int) -> Iterator[Window]:
        """Move the clock of a silent source. Pieces start with the first event: before it the clock does nothing."""
        if self._newest_us is not None and time_us > self._newest_us:
            self._check_gap(np.array([self._newest_us, time_us], np.int64))
            self._newest_us = int(time_us)
        return self.complete()

    def finish(self) -> Iterator[Window]:
        """The pieces up to the one with the last event."""
        if self._newest_us is not None:
            last_end_us = self.grid.end(self.grid.index(self._last_event_us) + 1)
            self._newest_us = max(self._newest_us, last_end_us + self.slack_us)
            yield from self.complete(last_end_us)
        if self.late:
            log.warning(
                "windows: %d events came too late for any window; sort the recording, or allow for disorder with slack_us", self.late
            )

    def _take(self, events: Events) -> None:
        first = self._newest_us is None
        newest_us = int(events.t[0]) if self._newest_us is None else self._newest_us
        chunk = _Chunk.of(events)
        if chunk.last_us - newest_us > self.max_gap_us:
            self._check_gap(np.maximum.accumulate(np.concatenate(([newest_us], events.t))))
        if not chunk.ordered or events.t[0] < newest_us - self.slack_us:
            late = self._count_late(events.t, newest_us)
            if late.any():
                events = events[~late]
                chunk = _Chunk.of(events) if len(events) else chunk
        self._newest_us = max(newest_us, chunk.last_us)
        if len(events):
            earliest = self.grid.index(int(events.t[0] if chunk.ordered else events.t.min())) + 1
            self._next = earliest if first else min(self._next, earliest)
            self._last_event_us = chunk.last_us if first else max(self._last_event_us, chunk.last_us)
            self._chunks.append(chunk)

    def _count_late(self, t: Times, newest_us: int) -> np.ndarray:
        """Which events lie before an end that had passed, slack included, when they came."""
        before = np.maximum.accumulate(np.concatenate(([newest_us], t[:-1])))
        suspects = np.flatnonzero(t < before - self.slack_us)
        passed = self.grid.indices(before[suspects] - self.slack_us) > self.grid.indices(t[suspects])
        if self._passed_us is not None:  # an end of another rate than the present one
            passed |= t[suspects] < self._passed_us
        late = np.zeros(len(t), np.bool_)
        late[suspects[passed]] = True
        for mark, count in zip(*np.unique(before[late], return_counts=True), strict=True):
            if self._late and self._late[-1][0] == mark:  # time stands still: one entry, or memory would grow
                count += self._late.pop()[1]
            self._late.append((int(mark), int(count)))
        self.late += int(late.sum())
        return late

    def _check_gap(self, running_us: Times) -> None:
        gaps = np.diff(running_us)
        if gaps.max() > self.max_gap_us:
            i = int(np.argmax(gaps > self.max_gap_us))
            raise InputError(
                f"windows: time jumps from {running_us[i]} to {running_us[i + 1]} us, more than max_gap_us={self.max_gap_us}; "
                "if the pause is real, raise max_gap_us (every empty window comes out), else cut the recording there"
            )

    def complete(self, last_end_us: int | None = None) -> Iterator[Window]:
        """The complete pieces that nobody has taken yet, cut when they are asked for."""
        while self._newest_us is not None and (end_us := self.grid.end(self._next)) + self.slack_us <= self._newest_us:
            if last_end_us is not None and end_us > last_end_us:
                return
            self._next += 1
            yield self._cut(end_us)

    def _cut(self, end_us: int) -> Window:
        start_us = self.grid.end(self._next - 2)
        if self._passed_us is not None and self._passed_us > start_us:
            start_us = self._passed_us  # the rate has changed
        self._passed_us = end_us
        if len(self._chunks) > MANY_CHUNKS:
            held = [part for chunk in self._chunks if len(part := chunk.between(start_us, chunk.last_us + 1))]
            self._chunks = [_Chunk.of(Events.join(held))] if held else []
        parts = [part for chunk in self._chunks if len(part := chunk.between(start_us, end_us))]
        self._chunks = [chunk for chunk in self._chunks if chunk.last_us >= end_us]
        late = 0
        while self._late and self._late[0][0] < end_us + self.slack_us:
            late += self._late.popleft()[1]
        assert self._size is not None  # a piece is only cut after an event came
        return _window(parts, self._size, start_us, end_us, late)


class WindowBuffer:
    """The pieces that windows to come may need: pieces in, the window that ends with the newest piece out, whenever it is asked for.

    A sliding window is always WINDOW_US long, a disjoint one reaches back to the end of the window taken before. Pieces that pass without
    a window are part of the next; events that fall between two sliding windows because those are further apart than a window is long
    are counted in `unseen`.
    """

    def __init__(self, kind: WindowKind, window_us: int) -> None:
        if kind not in KINDS:
            raise InputError(f"windows: unknown kind={kind!r}; expected one of {', '.join(KINDS)}")
        if window_us < 1 or int(window_us) != window_us:
            raise InputError(f"windows: window_us={window_us!r} must be a whole number of microseconds, at least 1")
        self.kind, self.window_us = kind, int(window_us)
        self.pieces: deque[Window] = deque()
        self.taken_us: int | None = None  # end of the newest window that was taken
        self.since = 0  # events since then
        self.late = 0  # too late for any window, since then
        self.unseen = 0

    def add(self, piece: Window) -> None:
        """PIECE begins where the one before ended."""
        self.pieces.append(piece)
        self.since += len(piece)
        self.late += piece.late
        if self.kind == "sliding":
            self._forget(piece.end_us - self.window_us)

    def elapsed_us(self, end_us: int) -> int | None:
        """Since the newest window that was taken."""
        return None if self.taken_us is None else end_us - self.taken_us

    @property
    def limits(self) -> tuple[int, int]:
        """[start_us, end_us) of the window that ends with the newest piece."""
        end_us = self.pieces[-1].end_us
        if self.kind == "sliding":
            return end_us - self.window_us, end_us
        return self.pieces[0].start_us if self.taken_us is None else self.taken_us, end_us

    def between(self, start_us: int, end_us: int) -> list[Events]:
        """What the buffer holds of [start_us, end_us), in parts that aren't empty."""
        parts = (
            piece if start_us <= piece.start_us and piece.end_us <= end_us else piece.between(start_us, end_us) for piece in self.pieces
        )
        return [part for part in parts if len(part)]

    def last_event_us(self) -> int | None:
        """Of the newest event in the window; None if nothing came since the one before."""
        if not self.since:
            return None
        start_us, end_us = self.limits
        for piece in reversed(self.pieces):  # most windows end with it
            inside = piece if start_us <= piece.start_us and piece.end_us <= end_us else piece.between(start_us, end_us)
            if len(inside):
                return int(inside.t.max())
        return None

    def close(self) -> None:
        """The window of `limits` was taken: the next one ends with a later piece."""
        start_us, end_us = self.limits
        for piece in self.pieces:
            if piece.start_us < start_us and self._untaken(piece):
                self.unseen += len(piece) - len(piece.between(start_us, end_us))
        self.taken_us, self.since, self.late = end_us, 0, 0
        self._forget(start_us if self.kind == "sliding" else end_us)

    def take(self) -> Window:
        start_us, end_us = self.limits
        newest = self.pieces[-1]
        window = _window(self.between(start_us, end_us), (newest.width, newest.height), start_us, end_us, self.late)
        self.close()
        return window

    def _untaken(self, piece: Window) -> bool:
        """Whether no window has ended with or after this piece."""
        return self.taken_us is None or piece.end_us > self.taken_us

    def _forget(self, start_us: int) -> None:
        """Drop pieces that no later window reaches."""
        while self.pieces and self.pieces[0].end_us <= start_us:
            piece = self.pieces.popleft()
            self.unseen += len(piece) if self._untaken(piece) else 0


def _window(parts: list[Events], size: tuple[int, int], start_us: int, end_us: int, late: int) -> Window:
    events = Events.join(parts) if parts else Events.empty(*size)
    return Window(events.t, events.x, events.y, events.p, events.width, events.height, start_us, end_us, late)


def windows(
    source: Iterable[Events],
    rate_hz: Rate,
    kind: WindowKind = "sliding",
    window_us: int = 50_000,
    *,
    origin_us: int = 0,
    slack_us: int = 0,
    max_gap_us: int = HOUR_US,
) -> Iterator[Window]:
    """RATE_HZ half-open windows per second of event time, empty ones too, from the first event's to the last one's.

    sliding: the last window_us at every instant of the grid. Below 1 / window_us hertz the windows leave holes: that is their meaning.
    disjoint: as long as the step, so that every event is in exactly one window; window_us plays no role.
    The ends are origin_us + floor(k / rate), whatever the first event's time. `slack_us` waits for events out of order.
    """
    cutter = Cutter(rate_hz, origin_us=origin_us, slack_us=slack_us, max_gap_us=max_gap_us)
    return _windows(cutter, WindowBuffer(kind, window_us), source)


def _windows(cutter: Cutter, buffer: WindowBuffer, source: Iterable[Events]) -> Iterator[Window]:
    for piece in pieces(cutter, source):
        buffer.add(piece)
        yield buffer.take()


def pieces(cutter: Cutter, source: Iterable[Events]) -> Iterator[Window]:
    """Of a whole source, up to the piece with its last event."""
    for events in source:
        yield from cutter.push(events)
    yield from cutter.finish()
