"""EVENTS -> FRAMES at any rate. Sliding frames grow by the newest events: at 200 Hz an event is counted once, not ten times."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from saccade.representation.canvas import Canvas, whole_sensor
from saccade.representation.histogram import Histogram, Mode, add_events, check_settings
from saccade.representation.windows import HOUR_US, Cutter, Rate, WindowKind
from saccade.types import Events, InputError, Window

log = logging.getLogger("saccade")


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The histogram of the window [start_us, end_us)."""

    data: Histogram
    start_us: int
    end_us: int
    events: int  # in the window, those outside the sensor included
    outside: int  # of them, outside the sensor: not in the data
    late: int  # that came too late for any window, since the previous frame


class _Scratch:
    """Each window from nothing: for windows that share no bins with the one before."""

    def __init__(self, bins: int, clip: int, canvas: Canvas, mode: Mode, reuse: bool) -> None:
        self.clip, self.canvas, self.mode, self.reuse = clip, canvas, mode, reuse
        self.shape = (2 * bins, canvas.height, canvas.width)
        self.data = np.zeros(self.shape, np.uint8)
        self.empty = True

    def frame(self, window: Window) -> Frame:
        if not self.reuse:
            self.data = np.zeros(self.shape, np.uint8)
        elif not self.empty:
            self.data.fill(0)
        self.empty = not len(window)
        tally = np.zeros((2, self.shape[0] // 2), np.int64)
        add_events(self.data, tally, window, window.start_us, window.end_us, self.clip, self.canvas, self.mode)
        return Frame(self.data, window.start_us, window.end_us, len(window), int(tally[1].sum()), window.late)


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
        self.tally = np.zeros((2, bins), np.int64)
        self.quiet = 6 * bins  # moves since something was counted

    def add(self, events: Events, window_us: int, clip: int, canvas: Canvas) -> None:
        """Count events, all of which lie in the newest bins: the older ones are finished."""
        if len(events):
            add_events(self.data, self.tally, events, self.end_us - window_us, self.end_us, clip, canvas)
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
            self.tally[:, :-fresh] = self.tally[:, fresh:]
            self.tally[:, -fresh:] = 0


class _Rings:
    """As many rings as the bins' borders have positions relative to the grid: each frame continues the one that shares its borders."""

    def __init__(self, bins: int, clip: int, canvas: Canvas, reuse: bool, window_us: int, step_us: int) -> None:
        self.bins, self.clip, self.canvas, self.reuse = bins, clip, canvas, reuse
        self.window_us, self.step_us = window_us, step_us
        self.cycle_us = lcm(step_us, window_us // bins)
        self.rings: list[_Ring] = []

    def frame(self, step: Window) -> Frame:
        """The frame that ends with STEP = the events since the frame before."""
        if not self.rings:
            ends_us = range(step.end_us, step.end_us + self.cycle_us, self.step_us)
            self.rings = [_Ring(self.bins, self.cycle_us * self.bins // self.window_us, self.canvas, end_us) for end_us in ends_us]
        done = self.rings[0]
        for ring in self.rings:
            if ring.end_us < step.end_us:
                ring.move(ring.end_us + self.cycle_us)
            ring.add(step, self.window_us, self.clip, self.canvas)
            if ring.end_us == step.end_us:
                done = ring
        events, outside = (sum(counts) for counts in done.tally.tolist())  # Python's sum: numpy's takes longer for ten numbers
        data = done.data
        if not self.reuse:
            data = data.copy() if events else np.zeros_like(data)  # untouched zeros cost nothing
        return Frame(data, step.end_us - self.window_us, step.end_us, events, outside, step.late)


class Framer:
    """Turns a stream into frames: `push`, `advance_to` and `finish` as of the Cutter; `cutter.late` is the total."""

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
        self.cutter = Cutter(rate_hz, kind, window_us, origin_us=origin_us, slack_us=slack_us, max_gap_us=max_gap_us)
        shortest_us = window_us if kind == "sliding" else int(self.cutter.grid.step_us)
        if shortest_us < bins:
            raise InputError(f"frames: a window of {shortest_us} us has less than 1 us for each of {bins} bins; lower bins or rate_hz")
        self.bins, self.clip, self.canvas, self.mode, self.reuse = bins, clip, canvas, mode, reuse
        self.incremental = kind == "sliding" and mode == "exact" and _rings_pay(self.cutter.grid.step_us, window_us, bins)
        if self.incremental:  # the rings remember the window: they need each event once
            self.cutter.kind = "disjoint"
        self._warned = False
        self._builder: _Scratch | _Rings | None = None

    def push(self, events: Events) -> Iterator[Frame]:
        return self._frames(self.cutter.push(events))

    def advance_to(self, time_us: int) -> Iterator[Frame]:
        return self._frames(self.cutter.advance_to(time_us))

    def finish(self) -> Iterator[Frame]:
        yield from self._frames(self.cutter.finish())

    def _frames(self, windows: Iterator[Window]) -> Iterator[Frame]:
        for window in windows:
            if self._builder is None:
                self._builder = self._make_builder(window)
            frame = self._builder.frame(window)
            if frame.outside and not self._warned:
                self._warned = True
                log.warning("frames: events outside the sensor are left out, %d of %d in the first such frame", frame.outside, frame.events)
            yield frame

    def _make_builder(self, window: Window) -> _Scratch | _Rings:
        canvas = self.canvas or whole_sensor(window.width, window.height)
        if not self.incremental:
            return _Scratch(self.bins, self.clip, canvas, self.mode, self.reuse)
        return _Rings(self.bins, self.clip, canvas, self.reuse, self.cutter.window_us, int(self.cutter.grid.step_us))


def _rings_pay(step_us: Fraction, window_us: int, bins: int) -> bool:
    """Rings count an event once per ring, scratch once per window it is in: window / step times."""
    if window_us % bins or step_us.denominator != 1:
        return False
    return lcm(int(step_us), window_us // bins) < window_us


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

    With `reuse` the data of a frame is only valid until the next one is asked for: no copies, for streams.
    """
    options = {"canvas": canvas, "mode": mode, "reuse": reuse, "origin_us": origin_us, "slack_us": slack_us, "max_gap_us": max_gap_us}
    return _frames(Framer(rate_hz, kind, window_us, bins, clip, **options), source)  # type: ignore[arg-type]


def _frames(framer: Framer, source: Iterable[Events]) -> Iterator[Frame]:
    for events in source:
        yield from framer.push(events)
    yield from framer.finish()
