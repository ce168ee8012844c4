"""WINDOW ENDS -> which of them get a step: all, or, at an adaptive rate, those by which enough has happened."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from saccade.representation.windows import Rate
from saccade.types import InputError

LOWEST_HZ = 1e-6  # of windows
SHARE = 0.1  # of the sensor's pixels: as many events make a step due


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """A rate that follows the activity: a step once enough events came, within the limits."""

    min_rate_hz: float | None = None  # None = the stream's rate_hz
    max_rate_hz: float | None = None
    events_per_step: int | None = None  # None = a tenth as many as the sensor has pixels

    def __post_init__(self) -> None:
        if self.events_per_step is not None and self.events_per_step < 1:
            raise InputError(f"stream: events_per_step={self.events_per_step} must be at least 1")


@dataclass(frozen=True)
class Pace:
    """A step is due once EVENTS came since the one before (None: a tenth as many as the sensor has pixels), or MOST_US passed.

    The grid is that of the highest rate, so ends stay on it whatever the pace, and a burst is answered at the next end.
    """

    most_us: int = 0  # 0 = at every end
    events: int | None = None

    def due(self, elapsed_us: int, events: int, pixels: int) -> bool:
        enough = max(int(SHARE * pixels), 1) if self.events is None else self.events
        return elapsed_us >= self.most_us or events >= enough


def steps_due(pace: Pace, ends_us: Int64[np.ndarray, "n"], events: Int64[np.ndarray, "n"], pixels: int) -> Bool[np.ndarray, "n"]:
    """Which ends of a whole recording get a step, as a stream would choose them: the first, those that are due, what is left at the end.

    events: how many came in the window's own period, up to its end.
    """
    due = np.zeros(len(ends_us), np.bool_)
    last_us, since = None, 0
    for i, (end_us, count) in enumerate(zip(ends_us.tolist(), events.tolist(), strict=True)):
        since += count
        if last_us is None or pace.due(end_us - last_us, since, pixels):
            due[i], last_us, since = True, end_us, 0
    if since:
        due[-1] = True
    return due


def pace_of(adaptive: Adaptive | None, rate_hz: Rate) -> Pace:
    """A step at every end, or, at an adaptive rate, by activity."""
    if adaptive is None:
        return Pace()
    lowest_hz, highest_hz = (float(rate_hz) if limit is None else limit for limit in (adaptive.min_rate_hz, adaptive.max_rate_hz))
    if not LOWEST_HZ <= lowest_hz <= highest_hz < float("inf"):
        raise InputError(f"stream: min_rate_hz={lowest_hz} and max_rate_hz={highest_hz} must be at least {LOWEST_HZ} and in this order")
    return Pace(int(1e6 / lowest_hz), adaptive.events_per_step)
