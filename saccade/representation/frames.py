"""WINDOWS -> FRAMES at any rate. Sliding frames grow by the newest events: at 200 Hz an event is counted once, not ten times."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from jaxtyping import Int64, UInt8

from saccade.representation.canvas import Canvas, whole_sensor
from saccade.representation.histogram import Histogram, Mode, add_events, check_settings
from saccade.representation.windows import HOUR_US, Cutter, Rate, WindowBuffer, WindowKind, pieces
from saccade.types import Events, InputError, Window

log = logging.getLogger("saccade")

FrameArray = UInt8[np.ndarray, "n channels height width"]
WindowEnds = Int64[np.ndarray, "n"]  # in microseconds


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The histogram of the window [start_us, end_us)."""

    data: Histogram
    start_us: int
    end_us: int
    events: int  # in the window, those outside the sensor included
    outside: int  # of them, outside the sensor: not in the data
    late: int  # that came too late for any window, since the previous frame


class _Ring:
    """One frame that moves by whole bins without being copied.

    The frame is `slots[first : first + 2 * bins]`. Moved on by one slot, every bin of both polarities is in its new place: the slot of
    polarity 1's oldest bin, now expired, becomes polarity 0's newest, and the slot behind the frame becomes polarity 1's newest. Only
    those two are cleared. At the end of the slots the frame is copied to their beginning.
    """

    def __init__(self, bins: int, fresh: int, canvas: Canvas, end_us: int) -> None:
        self.bins, self.fresh = bins, fresh  # fresh = bins by which the frame moves
        self.first = 0
        self.end_us = end_us
        self.slots = np.zeros((4 * bins, canvas.height, canvas.width), np.uint8)
        self.data = self.slots[: 2 * bins]
        self.counted = np.zeros((2, bins), np.int64)
        self.quiet = 6 * bins  # moves since something was counted

    def add(self, events: Events, window_us: int, clip: int, canvas: Canvas) -> None:
        """Count events, none of which was counted before."""
        if len(events):
            add_events(self.data, self.counted, events, self.end_us - window_us, self.end_us, clip, canvas)
            self.quiet = 0

    def move(self, end_us: int) -> None:
        self.end_us = end_us
        self.quiet += 1
        bins, fresh = self.bins, self.fresh
        clean = self.quiet > 6 * bins  # three rounds without an event have cleared every slot: a long pause costs no more
        if self.first + fresh + 2 * bins > len(self.slots):
            if not clean:
                self.slots[: 2 * bins] = self.data
            self.first = 0
        self.first += fresh
        self.data = self.slots[self.first : self.first + 2 * bins]
        if not clean:
            self.data[bins - fresh : bins].fill(0)
            self.data[-fresh:].fill(0)
            self.counted[:, :-fresh] = self.counted[:, fresh:]
            self.counted[:, -fresh:] = 0


class FrameBuffer:
    """Pieces of a stream in, the frame of the window that ends with the newest piece out: the one way in which frames are made.

    Sliding windows whose step and bins have common borders are kept in rings, one for every position of the bins' borders relative to
    the grid (one at 40, 100 and 200 Hz, five at 1000 Hz): an event is counted once per ring. Other windows are counted when they are
    taken. WINDOWS holds the pieces; STEP_US is the distance of their ends. With REUSE the data of a frame is valid until the next `add`.
    """

    def __init__(
        self,
        windows: WindowBuffer,
        step_us: Fraction,
        canvas: Canvas,
        *,
        bins: int = 10,
        clip: int = 10,
        mode: Mode = "exact",
        reuse: bool = False,
    ) -> None:
        self.windows, self.canvas, self.bins, self.clip, self.mode, self.reuse = windows, canvas, bins, clip, mode, reuse
        self._scratch = np.zeros((2 * bins, canvas.height, canvas.width), np.uint8)
        self._scratch_empty = True
        self.change_step(step_us)

    def change_step(self, step_us: Fraction) -> None:
        """The next piece ends on a grid of another step: the rings are made anew from the events that are held."""
        windows = self.windows
        _check_bins(windows, step_us, self.bins)
        self.rings: list[_Ring] = []
        self._step_us, self._cycle_us = int(step_us), 0
        if windows.kind == "sliding" and self.mode == "exact" and not windows.window_us % self.bins and step_us.denominator == 1:
            cycle_us = lcm(int(step_us), windows.window_us // self.bins)
            self._cycle_us = cycle_us if cycle_us < windows.window_us else 0  # else a ring would count no less than counting anew

    def add(self, piece: Window) -> None:
        """PIECE begins where the one before ended."""
        self.windows.add(piece)
        for ring in self.rings:
            if ring.end_us < piece.end_us:
                ring.move(ring.end_us + self._cycle_us)
            ring.add(piece, self.windows.window_us, self.clip, self.canvas)

    def take(self) -> Frame:
        """The frame that ends with the newest piece; the next one ends with a later piece."""
        start_us, end_us = self.windows.limits
        late = self.windows.late
        data, events, outside = self._from_ring(end_us) if self._cycle_us else self._count(start_us, end_us)
        self.windows.close()
        return Frame(data, start_us, end_us, events, outside, late)

    def _from_ring(self, end_us: int) -> tuple[Histogram, int, int]:
        if not self.rings:
            self.rings = [self._ring(later_us) for later_us in range(end_us, end_us + self._cycle_us, self._step_us)]
        done = next(ring for ring in self.rings if ring.end_us == end_us)
        events, outside = (sum(counts) for counts in done.counted.tolist())  # Python's sum: numpy's takes longer for ten numbers
        if self.reuse:
            return done.data, events, outside
        return done.data.copy() if events else np.zeros_like(done.data), events, outside  # untouched zeros cost nothing

    def _ring(self, end_us: int) -> _Ring:
        window_us = self.windows.window_us
        ring = _Ring(self.bins, self._cycle_us * self.bins // window_us, self.canvas, end_us)
        for part in self.windows.between(end_us - window_us, end_us):
            ring.add(part, window_us, self.clip, self.canvas)
        return ring

    def _count(self, start_us: int, end_us: int) -> tuple[Histogram, int, int]:
        """Of this window alone, all of its events."""
        if not self.reuse:
            self._scratch = np.zeros_like(self._scratch)
        elif not self._scratch_empty:
            self._scratch.fill(0)
        counted = np.zeros((2, self.bins), np.int64)
        parts = self.windows.between(start_us, end_us)
        if self.mode == "published" and parts:  # its bins begin with the window's first event: all events are needed at once
            parts = [Events.join(parts)]
        for part in parts:
            add_events(self._scratch, counted, part, start_us, end_us, self.clip, self.canvas, self.mode)
        self._scratch_empty = not parts
        return self._scratch, sum(len(part) for part in parts), int(counted[1].sum())


def _check_bins(windows: WindowBuffer, step_us: Fraction, bins: int) -> None:
    shortest_us = windows.window_us if windows.kind == "sliding" else int(step_us)
    if shortest_us < bins:
        raise InputError(f"frames: a window of {shortest_us} us has less than 1 us for each of {bins} bins; lower bins or rate_hz")


class Framer:
    """Events in any portions -> frames at a rate: `push`, `advance_to` and `finish` as of the Cutter; `cutter.late` is the total."""

    def __init__(
        self,
        rate_hz: Rate,
        kind: WindowKind = "sliding",
        window_us: int = 50_000,
        bins: int = 10,
        clip: int = 10,
        *,
        canvas: Canvas | None = None,
        mode: Mode = "exact",
        reuse: bool = False,
        origin_us: int = 0,
        slack_us: int = 0,
        max_gap_us: int = HOUR_US,
    ) -> None:
        check_settings(bins, clip, mode)
        self.cutter = Cutter(rate_hz, origin_us=origin_us, slack_us=slack_us, max_gap_us=max_gap_us)
        self.windows = WindowBuffer(kind, window_us)
        self._settings = {"bins": bins, "clip": clip, "mode": mode, "reuse": reuse}
        self._canvas, self._warned = canvas, False
        self.buffer: FrameBuffer | None = None  # made when the first piece tells the sensor's size
        _check_bins(self.windows, self.cutter.grid.step_us, bins)

    def push(self, events: Events) -> Iterator[Frame]:
        return self._frames(self.cutter.push(events))

    def advance_to(self, time_us: int) -> Iterator[Frame]:
        return self._frames(self.cutter.advance_to(time_us))

    def finish(self) -> Iterator[Frame]:
        yield from self._frames(self.cutter.finish())

    def _frames(self, cut: Iterator[Window]) -> Iterator[Frame]:
        for piece in cut:
            if self.buffer is None:
                canvas = self._canvas or whole_sensor(piece.width, piece.height)
                self.buffer = FrameBuffer(self.windows, self.cutter.grid.step_us, canvas, **self._settings)  # type: ignore[arg-type]
            self.buffer.add(piece)
            frame = self.buffer.take()
            if frame.outside and not self._warned:
                self._warned = True
                log.warning("frames: events outside the sensor are left out, %d of %d in the first such frame", frame.outside, frame.events)
            yield frame


def frames(
    source: Iterable[Events],
    rate_hz: Rate,
    kind: WindowKind = "sliding",
    window_us: int = 50_000,
    bins: int = 10,
    clip: int = 10,
    *,
    canvas: Canvas | None = None,
    mode: Mode = "exact",
    reuse: bool = False,
    origin_us: int = 0,
    slack_us: int = 0,
    max_gap_us: int = HOUR_US,
) -> Iterator[Frame]:
    """`stacked_histogram` of each window of `windows`, bit for bit, without counting shared events again.

    for frame in saccade.frames(recording, rate_hz=200): frame.data  # uint8 (20, height, width)

    With `reuse` the data of a frame is only valid until the next one is asked for: no copies, for streams.
    """
    options = {"canvas": canvas, "mode": mode, "reuse": reuse, "origin_us": origin_us, "slack_us": slack_us, "max_gap_us": max_gap_us}
    framer = Framer(rate_hz, kind, window_us, bins, clip, **options)  # type: ignore[arg-type]
    return framer._frames(pieces(framer.cutter, source))


def frames_between(
    source: Iterable[Events], starts_us: WindowEnds, ends_us: WindowEnds, canvas: Canvas, bins: int, clip: int, mode: Mode = "exact"
) -> FrameArray:
    """The frames of windows [start, end) that follow no grid, one by one, from a source that is read once; empty ones stay zero."""
    out = np.zeros((len(ends_us), 2 * bins, canvas.height, canvas.width), np.uint8)
    held: list[list[Events]] = [[] for _ in ends_us]
    counted = np.zeros((2, bins), np.int64)
    for events in source:
        if not len(events):
            continue
        ordered = events.ordered
        for i in np.flatnonzero((starts_us <= events.t.max()) & (ends_us > events.t.min())).tolist():
            start_us, end_us = int(starts_us[i]), int(ends_us[i])
            part = events.between(start_us, end_us, ordered)
            if mode == "published":  # its bins begin with the window's first event: all events are needed at once
                held[i].append(part)
            else:
                add_events(out[i], counted, part, start_us, end_us, clip, canvas)
    for i, parts in enumerate(held):
        if parts:
            add_events(out[i], counted, Events.join(parts), int(starts_us[i]), int(ends_us[i]), clip, canvas, mode)
    return out
