"""PORTIONS -> PIECES on the stream's grid: what arrives is checked, counted, and cut; jumps of time and damage are named or skipped."""

import logging
from collections import deque
from dataclasses import dataclass

import numpy as np

from saccade.representation.windows import Cutter, Rate
from saccade.stream.counters import CountersUnderWay
from saccade.types import Events, Faults, InputError

log = logging.getLogger("saccade")

BACKWARDS_US = 1_000_000  # events up to so much older than the newest are late; a portion older than that means that the clock was set back


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Where the grid of window ends lies, and which times are believed."""

    origin_us: int = 0  # an end of the grid
    slack_us: int = 0  # wait so long for events out of order
    max_gap_us: int = 600_000_000  # the longest pause that is believed


class Intake:
    """`cutter` cuts what was taken into pieces, one for every end of the grid, each event in one."""

    def __init__(self, rate_hz: Rate, faults: Faults, counted: CountersUnderWay, timing: Timing) -> None:
        self.cutter = Cutter(rate_hz, **vars(timing))
        self.faults, self.counted = faults, counted
        self.size: tuple[int, int] | None = None
        self.now_s = 0.0  # when the newest portion came, or the clock went on
        self._arrivals: deque[tuple[int, float]] = deque()  # (newest time by then, when), for portions whose windows aren't stepped yet

    def take(self, events: Events, arrived_s: float) -> None:
        self.now_s = arrived_s
        if not len(events):
            return
        size = (events.width, events.height)
        if self.size not in (None, size):
            raise InputError(f"the sensor changed from {self.size} to {size}; reset() the stream before another source")
        self.cutter.push(events)
        self.size = size
        outside = int(np.count_nonzero((events.x >= events.width) | (events.y >= events.height)))
        self.counted.add(events=len(events), outside_events=outside)
        newest_us = self.cutter.newest_us
        assert newest_us is not None
        if not self._arrivals or newest_us > self._arrivals[-1][0]:
            self._arrivals.append((newest_us, arrived_s))

    def jumps(self, events: Events) -> bool:
        """Whether time starts again with this portion; InputError if it mustn't."""
        newest_us = self.cutter.newest_us
        if newest_us is None or not len(events):
            return False
        first_us, last_us = int(events.t.min()), int(events.t.max())
        backwards, forwards = last_us < newest_us - BACKWARDS_US, first_us > newest_us + self.cutter.max_gap_us
        if not (backwards or forwards):
            return False
        if self.faults == "raise":
            advice = 'cut the recording there, raise max_gap_us if the pause is real, or begin anew there with faults="skip"'
            raise InputError(f"time jumps from {newest_us} to {last_us if backwards else first_us} us; {advice}")
        log.warning("stream: time jumps from %d to %d us; the memory begins anew", newest_us, first_us)
        self.counted.add(restarts=1)
        return True

    def fault(self, error: InputError) -> None:
        """Raise it again with the place, or count it."""
        where = f"portion {self.counted['portions']}, after {self.counted['events']:,} events, at {self.cutter.newest_us} us"
        if self.faults == "raise":
            raise InputError(f"stream: {where}: {error}") from error
        self.counted.add(bad_portions=1)
        log.warning("stream: %s: left out: %s", where, error)

    def arrived_s(self, last_us: int | None) -> float:
        """When the event of that time came; None, in silence: when the window was known to be complete."""
        if last_us is None:
            return self.now_s
        while len(self._arrivals) > 1 and self._arrivals[0][0] < last_us:
            self._arrivals.popleft()
        return self._arrivals[0][1] if self._arrivals else self.now_s
