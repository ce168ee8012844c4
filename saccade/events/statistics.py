"""Statistics of a recording for `saccade info` and `saccade check`: one pass, bounded memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.events.counting import (
    BACKWARDS,
    BARS,
    COUNT,
    DUPLICATES,
    EARLIEST,
    EVENTS,
    FIRST_BACKWARDS,
    HOLE_CLASSES,
    HOLE_US,
    LARGEST_STEP,
    LATEST,
    LISTED,
    NUMBERS,
    OUTSIDE,
    POSITIVE,
    count_bars,
    count_pixels,
    count_pixels_plainly,
    count_times,
    count_times_plainly,
    goes_on,
)
from saccade.events.mend import NEVER, check_table
from saccade.events.reader import Reader
from saccade.machine import compiler_pays
from saccade.types import Events, InputError

UNUSUAL = 50  # x the usual gap
HOT = 50  # x the mean count of the active pixels
HOT_COUNT = 1000  # least events of a hot pixel
BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Hole:
    """A gap without any event of the whole sensor, from start_us to start_us + length_us."""

    start_us: int
    length_us: int


@dataclass(frozen=True)
class Statistics:
    """A recording in numbers. All times in microseconds, rates in events per second.

    A gap is the time from one event to the next. The usual gap is the time-weighted median: half of the recording's time passes in shorter
    gaps. So a recording that is sparse throughout, or comes in bursts, has long usual gaps. A hole is a gap of at least `hole_us`: 10 ms,
    doubled until it is 50 usual gaps.
    """

    width: int
    height: int
    count: int
    start_us: int
    end_us: int  # one after the last event
    positive: int
    active_pixels: int
    hot_pixels: int  # with over 50 times the mean count of the active pixels, and at least 1000 events
    hot_events: int  # events of the hot pixels
    duplicates: int  # same time as the previous event of their pixel and polarity
    outside: int  # events outside the sensor
    backwards: int  # events earlier than a previous one
    first_backwards: int  # number of the first such event, -1 if there is none
    largest_step_us: int  # largest step back
    hole_us: int
    hole_count: int
    holes: tuple[Hole, ...]  # the first few
    rates: tuple[float, ...]  # at most 60, each over bar_us, the last one over the rest
    bar_us: int

    @property
    def duration_us(self) -> int:
        return self.end_us - self.start_us

    @property
    def mean_rate(self) -> float:
        return self.count * 1e6 / self.duration_us if self.count else 0.0

    @property
    def peak_rate(self) -> float:
        """Largest of `rates`; the last one is ignored if it covers less than half of bar_us."""
        left_us = self.duration_us - (len(self.rates) - 1) * self.bar_us
        whole = self.rates if len(self.rates) < 2 or left_us * 2 >= self.bar_us else self.rates[:-1]
        return max(whole, default=0.0)

    def warnings(self, path: Path | str = "FILE") -> list[str]:
        """Problems of the recording, each with the command that repairs it."""
        repair = f"`saccade convert {path} OUT"
        found = []
        if self.count == 0:
            found.append("no events")
        if self.backwards:
            found.append(
                f"time runs backwards at {_of(self.backwards, self.count)}, first at event {self.first_backwards}, "
                f"by up to {self.largest_step_us} us; repair it with {repair} --sort`"
            )
        if self.duplicates:
            found.append(
                f"{_of(self.duplicates, self.count)} repeat the one before of their pixel, with the same time and polarity; "
                f"remove them with {repair} --drop-duplicates`"
            )
        if self.outside:
            found.append(
                f"{_of(self.outside, self.count)} lie outside the sensor of {self.width} x {self.height}; "
                f"remove them with {repair} --clip-to-sensor`, or state the true size with --width and --height"
            )
        if self.hole_count:
            listed = ", ".join(f"{hole.length_us / 1000:.1f} ms at {hole.start_us / 1e6:.6f} s" for hole in self.holes[:3])
            more = f" and {self.hole_count - 3} more" if self.hole_count > 3 else ""
            found.append(
                f"{self.hole_count} times no event at all for {self.hole_us // 1000} ms or more: {listed}{more}; that can't be mended"
            )
        return found


def measure(
    source: Reader | Iterable[Events],
    *,
    width: int | None = None,
    height: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Statistics:
    """Statistics of all events. `progress` is called with the number of events so far."""
    if isinstance(source, Reader):
        width, height = width or source.width, height or source.height
    counters: _Measurement | None = _Measurement(width, height) if width and height else None
    for events in source:
        counters = counters or _Measurement(events.width, events.height)
        counters.add(events)
        if progress:
            progress(int(counters.numbers[COUNT]))
    if counters is None:
        raise InputError("no events to measure, and the size of the sensor isn't known; state width and height")
    return counters.result()


def sparkline(rates: Iterable[float]) -> str:
    """One character per rate, from blank (zero) to a full block (the largest)."""
    values = list(rates)
    top = max(values, default=0.0)
    return "".join(BLOCKS[0 if value <= 0 else max(1, round(value / top * 8))] for value in values)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} events ({part / whole * 100:.2g} %)"


class _Measurement:
    """The counters of one pass."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.numbers = np.zeros(NUMBERS, np.int64)
        self.numbers[FIRST_BACKWARDS], self.numbers[EARLIEST], self.numbers[LATEST] = -1, -NEVER - 1, NEVER
        # Per pixel, in 16 bytes: the last time of either polarity (48 bits, nine years) and the count. Most of the pass is spent waiting
        # for this table; with 64-bit times it was half as fast. Zero, the initial value, means no event yet.
        check_table(width, height)
        self.pixels = np.zeros((width * height, 4), np.uint32)
        self.bars = np.zeros(BARS, np.int64)
        self.origin_us = 0  # start of the first bar
        self.doublings = 0  # a bar is 2^doublings microseconds
        self.gap_time_us = np.zeros(64, np.int64)  # in gaps of up to 2^k us
        self.hole_counts = np.zeros(HOLE_CLASSES, np.int64)
        self.hole_list = np.zeros((HOLE_CLASSES, LISTED, 2), np.int64)

    def add(self, events: Events) -> None:
        if not len(events):
            return
        self._make_room(int(events.t.min()), int(events.t.max()))
        times = self.numbers, self.gap_time_us, self.hole_counts, self.hole_list
        columns = events.t, events.x, events.y, events.p
        if not compiler_pays(int(self.numbers[COUNT])) and goes_on(events.t, self.numbers):
            count_pixels_plainly(*columns, self.width, self.height, self.numbers, self.pixels)  # looks at LATEST before it moves
            count_times_plainly(events.t, *times)
            self.bars += np.bincount((events.t - self.origin_us) >> self.doublings, minlength=BARS)
            return
        count_times(events.t, *times)
        count_bars(events.t, self.origin_us, self.doublings, self.bars)
        count_pixels(*columns, self.width, self.height, self.numbers, self.pixels)

    def _make_room(self, earliest_us: int, latest_us: int) -> None:
        """Double the bars' length until they cover all times; a time before the first bar moves the origin back by whole bars."""
        if self.numbers[COUNT] == 0:
            self.origin_us = earliest_us
        while True:
            before = max(0, -((earliest_us - self.origin_us) >> self.doublings))
            used = max(int(np.flatnonzero(self.bars)[-1]) if self.bars.any() else 0, (latest_us - self.origin_us) >> self.doublings)
            if before + used < BARS:
                break
            self.bars[: BARS // 2], self.bars[BARS // 2 :] = self.bars[::2] + self.bars[1::2], 0
            self.doublings += 1
        if before:
            self.bars = np.roll(self.bars, before)
            self.origin_us -= before << self.doublings

    def result(self) -> Statistics:
        numbers = [int(number) for number in self.numbers]
        start_us, end_us = (numbers[EARLIEST], numbers[LATEST] + 1) if numbers[COUNT] else (0, 0)
        pixel_counts = self.pixels[:, EVENTS].astype(np.int64)
        active = int(np.count_nonzero(pixel_counts))
        hot = pixel_counts[(pixel_counts >= HOT_COUNT) & (pixel_counts > HOT * pixel_counts.sum() / max(active, 1))]
        first = self._first_hole_class()
        holes = self.hole_list[first:].reshape(-1, 2)
        holes = holes[holes[:, 1] > 0]
        bar_us = 1 << self.doublings
        bars = -(-(end_us - self.origin_us) // bar_us) if numbers[COUNT] else 0
        lengths = [min(bar_us, end_us - self.origin_us - i * bar_us) for i in range(bars)]
        return Statistics(
            width=self.width,
            height=self.height,
            count=numbers[COUNT],
            start_us=start_us,
            end_us=end_us,
            positive=numbers[POSITIVE],
            active_pixels=active,
            hot_pixels=len(hot),
            hot_events=int(hot.sum()),
            duplicates=numbers[DUPLICATES],
            outside=numbers[OUTSIDE],
            backwards=numbers[BACKWARDS],
            first_backwards=numbers[FIRST_BACKWARDS],
            largest_step_us=numbers[LARGEST_STEP],
            hole_us=HOLE_US << first,
            hole_count=int(self.hole_counts[first:].sum()),
            holes=tuple(Hole(int(start), int(length)) for start, length in holes[np.argsort(holes[:, 0], kind="stable")][:LISTED]),
            rates=tuple(float(self.bars[i]) * 1e6 / length for i, length in enumerate(lengths)),
            bar_us=bar_us,
        )

    def _first_hole_class(self) -> int:
        """The smallest class whose gaps are holes."""
        passed = np.cumsum(self.gap_time_us)
        usual_us = 1 << int(np.searchsorted(passed, passed[-1] / 2)) if passed[-1] else 1
        return next((k for k in range(HOLE_CLASSES) if HOLE_US << k >= UNUSUAL * usual_us), HOLE_CLASSES)
