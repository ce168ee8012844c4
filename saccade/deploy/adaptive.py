"""WINDOW ENDS -> which of them get a step: all, or, at an adaptive rate, those by which enough has happened."""

from dataclasses import dataclass

from saccade.types import InputError

SHARE = 0.1  # of the sensor's pixels: as many events make a step due


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


def pace_of(min_rate_hz: float | None, max_rate_hz: float, events_per_step: int | None) -> Pace:
    """Constant without a lower limit; else between the two, by activity."""
    if min_rate_hz is None:
        return Pace()
    if not 0 < min_rate_hz <= max_rate_hz:
        raise InputError(f"stream: min_rate_hz={min_rate_hz} and max_rate_hz={max_rate_hz} must be positive and in this order")
    if events_per_step is not None and events_per_step < 1:
        raise InputError(f"stream: events_per_step={events_per_step} must be at least 1")
    return Pace(int(1e6 / min_rate_hz), events_per_step)
