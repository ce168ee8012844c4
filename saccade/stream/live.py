"""LIVE SOURCES: a thread listens while the network computes, the queue between is bounded, windows that come too fast are merged."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Literal

from saccade.types import Events, InputError

log = logging.getLogger("saccade")

WAIT_S = 0.5  # for the reading thread to end
SILENT_S = 5.0  # without a portion, after which it is said that the source is silent
SOURCE_COUNTS = {"lost_packets": "lost", "bad_portions": "bad", "foreign_packets": "foreign"}  # counter: attribute of a source


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How a stream treats a source that doesn't wait."""

    overload: Literal["merge", "wait"] = "merge"  # merge windows if steps take longer than the period; wait: answers may come ever later
    most_waiting: int = 4  # complete windows before they are merged, however fast steps are
    queue: int = 8_000_000  # events that wait at most
    patience_us: int = 100_000  # without events, after which the clock goes on without them; of a faster replay, as long by the wall clock
    stall_s: float | None = None  # without events, after which the source counts as broken; None = never

    def __post_init__(self) -> None:
        if self.overload not in ("merge", "wait"):
            raise InputError(f"stream: unknown overload={self.overload!r}; expected merge or wait")
        if self.most_waiting < 1:
            raise InputError(f"stream: most_waiting={self.most_waiting} must be at least 1 window")
        if self.queue < 1:
            raise InputError(f"stream: queue={self.queue} must be at least 1 event")


@dataclass(frozen=True, eq=False, slots=True)
class Portion:
    events: Events
    arrived_s: float  # time.perf_counter()


class Feed:
    """Reads a source in a thread of its own. At most MOST events wait.

    Beyond that a source that can wait (`patient`: a pipe, a connection, a file) does; of others the oldest events are dropped and counted,
    because a camera's driver would drop the newest without saying so.
    """

    def __init__(self, source: Iterable[Events], most: int) -> None:
        self.source, self.most = source, most
        self.patient = bool(getattr(source, "patient", False))
        self.dropped = 0
        self.error: BaseException | None = None
        self.ended = False
        self._told = dict.fromkeys(("dropped_events", *SOURCE_COUNTS), 0)
        self._portions: deque[Portion] = deque()
        self._events = 0
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="saccade-feed", daemon=True)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        close = getattr(self.source, "close", None)
        if close is not None:
            close()
        self._thread.join(WAIT_S)  # a source that hangs inside a driver is left behind: the thread is a daemon

    def take(self, timeout_s: float) -> list[Portion]:
        """All portions that wait; after at most so long none. `ended` is true when none will come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._portions or self.ended, max(timeout_s, 0))
            portions, self._events = list(self._portions), 0
            self._portions.clear()
            self._changed.notify_all()
            return portions

    def losses(self) -> dict[str, int]:
        """What was dropped here, and what the source knows of losses before it, since this was last asked."""
        before = {name: getattr(self.source, attribute, 0) for name, attribute in SOURCE_COUNTS.items()}
        now = {"dropped_events": self.dropped, **before}
        new = {name: number - self._told[name] for name, number in now.items()}
        self._told = now
        return new

    @property
    def waits(self) -> bool:
        """Whether `take` would return at once."""
        return bool(self._portions) or self.ended

    @property
    def over(self) -> bool:
        """Whether all was taken."""
        return self.ended and not self._portions

    def _read(self) -> None:
        try:
            for events in self.source:
                self._put(events)
                if self._stopped:
                    break
        except BaseException as error:  # it belongs to whoever takes the portions
            self.error = error
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _put(self, events: Events) -> None:
        portion = Portion(events, time.perf_counter())
        with self._changed:
            if self.patient:
                self._changed.wait_for(lambda: self._stopped or not self._portions or self._events + len(events) <= self.most)
            self._portions.append(portion)
            self._events += len(events)
            while self._events > self.most and len(self._portions) > 1:
                dropped = len(self._portions.popleft().events)
                self.dropped += dropped
                self._events -= dropped
            self._changed.notify_all()


class Overload:
    """Whether windows that wait should be merged: when steps take longer than the period, or when more than MOST wait after a hiccup."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.speed = 1.0  # of the source: in slow motion there is more time for a step, in a pause all the time
        self._took_s: deque[float] = deque([0.0] * 5, maxlen=5)

    def stepped(self, seconds: float) -> None:
        self._took_s.append(seconds)

    def merges(self, waiting: int, period_s: float) -> bool:
        """WAITING windows are complete, the next one included; one passes every PERIOD_S of event time."""
        return waiting > 1 and self.speed > 0 and (waiting > self.most or median(self._took_s) * self.speed > period_s)


class Silence:
    """How long nothing came from a source, by its own clock, which may be paused (`speed` 0); said once when it lasts."""

    def __init__(self, source: Iterable[Events]) -> None:
        self.source = source
        self.quiet_us = 0.0  # of event time since the newest event
        self._heard_s = self._asked_s = time.perf_counter()
        self._speed = self.speed
        self._said = False

    @property
    def speed(self) -> float:
        """Event time per wall-clock time, as the source says; it may change."""
        return float(getattr(self.source, "speed", 1.0))

    def heard(self, arrived_s: float, events: bool) -> None:
        """A portion came then, with EVENTS or without."""
        if self._said:
            log.warning("%r: sends again, after %.0f s", self.source, arrived_s - self._heard_s)
        self._heard_s, self._said = arrived_s, False
        if events:
            self.quiet_us, self._asked_s = 0.0, arrived_s

    def lasts(self, now_s: float, stall_s: float | None) -> float:
        """Microseconds without events; InputError after STALL_S seconds without anything."""
        speed = min(self._speed, self.speed)  # since it was last asked; behind the source's clock is better than ahead of it
        self._speed = self.speed
        passed_s, self._asked_s = now_s - self._asked_s, now_s
        self.quiet_us += passed_s * speed * 1e6
        if not speed:
            self._heard_s += passed_s
        silent_s = now_s - self._heard_s
        if stall_s is not None and silent_s > stall_s:
            raise InputError(f"stream: nothing came from {self.source!r} for {stall_s:g} s; is it still there?")
        if silent_s > SILENT_S and not self._said:
            log.warning("%r: is silent, nothing came for %.0f s; waiting", self.source, silent_s)
            self._said = True
        return self.quiet_us
