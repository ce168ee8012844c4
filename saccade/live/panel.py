"""ONE DETECTOR OF THE PAGE: its share of the source, its newest answer, and how well it keeps up."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from saccade.events.open import open_events
from saccade.live import FASTEST_HZ
from saccade.live.surface import Surface
from saccade.samples import STREET
from saccade.sources.source import Source
from saccade.stream.counters import Counters, Latencies
from saccade.stream.fit import known_size
from saccade.stream.stream import Stream
from saccade.types import Detections, Events

MOST_WAITING = 4_000_000  # events, 52 MB
WARM_US = 50_000  # of events
RECENT_S = 1.0  # over which rates are measured
FEW = 5  # answers that a rate is measured of, at the least
LATENCIES = 1000  # answers whose latencies are looked at
COUNTED = (  # that pages show
    "events", "steps", "merged_windows", "dropped_events", "late_events", "outside_events", "unseen_events", "lost_packets", "bad_portions",
    "foreign_packets", "restarts",
)  # fmt: skip


class Branch(Source):
    """What one of several readers of a source gets. It ends with every round of a recording, and can be read again in the next.

    Rounds that wait while a slow reader is still in an earlier one are bounded: beyond MOST events the oldest are dropped and counted.
    """

    def __init__(self, name: str, most: int = MOST_WAITING) -> None:
        self.name, self.most, self.dropped = name, most, 0
        self._portions: deque[Events | None] = deque()
        self._events = 0  # that wait
        self._changed = threading.Condition()

    def put(self, portion: Events | None) -> None:
        """None: the end of a round."""
        with self._changed:
            self._portions.append(portion)
            self._events += 0 if portion is None else len(portion)
            while self._events > self.most:
                oldest = next(place for place, waiting in enumerate(self._portions) if waiting is not None)
                number = len(self._portions[oldest] or ())
                del self._portions[oldest]
                self._events, self.dropped = self._events - number, self.dropped + number
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Events]:
        while (events := self._get()) is not None:
            yield events

    def _get(self) -> Events | None:
        with self._changed:
            self._changed.wait_for(lambda: self._portions)
            portion = self._portions.popleft()
            self._events -= 0 if portion is None else len(portion)
            return portion

    def __repr__(self) -> str:
        return self.name


class Panel:
    """A detector on the events of the session."""

    def __init__(self, name: str, stream: Stream, branch: Branch) -> None:
        self.name, self.stream, self.branch = name, stream, branch
        self.found: Detections | None = None  # the newest answer
        self.arrived_s: float | None = None  # when the last event of its window came, on the clock of the day
        self.problem = ""  # why it ended
        self.heard: list[Callable[[Panel, Detections], None]] = []  # called with every answer, in the detector's thread: must be quick
        self._before = Counters()  # of earlier rounds
        self._latencies = Latencies()  # of all answers
        self._latencies_s: deque[float] = deque(maxlen=LATENCIES)
        self._answered_us: deque[int] = deque(maxlen=2 * int(FASTEST_HZ))

    def run(self) -> None:
        """One round of the source, in the caller's thread."""
        for found in self.stream.run(self.branch):
            self.found, self.arrived_s = found, time.time() - self.stream.latency_s
            self._latencies.add(self.stream.latency_s)
            self._latencies_s.append(self.stream.latency_s)
            self._answered_us.append(found.time_us)
            for hear in tuple(self.heard):
                hear(self, found)

    def begin_again(self) -> None:
        """The recording starts anew: memory, tracks and time do, too; what was counted stays."""
        self._before = self._counted()
        self._answered_us.clear()
        self.found = None
        self.stream.reset()

    def measure_anew(self) -> None:
        """The rate is another one: what was reached before says nothing."""
        self._answered_us.clear()

    def reached_hz(self) -> float:
        """Answers per second of event time, of about the last second of the clock; 0 while there are too few."""
        times = list(self._answered_us)
        span_s = max(RECENT_S * self.branch.speed, FEW / float(self.stream.rate_hz))
        recent = [time_us for time_us in times if time_us >= times[-1] - span_s * 1e6]
        recent = recent if len(recent) >= FEW else times[-FEW:]
        return (len(recent) - 1) * 1e6 / (recent[-1] - recent[0]) if len(recent) > 2 and recent[-1] > recent[0] else 0.0

    def figures(self) -> dict[str, Any]:
        latencies = np.array(self._latencies_s)
        p50, p99 = (np.percentile(latencies, (50, 99)) * 1000).round(2).tolist() if len(latencies) else (None, None)
        counts = asdict(self._counted())
        counts["dropped_events"] += self.branch.dropped
        shown = {name: counts[name] for name in COUNTED}
        return {"latency_p50_ms": p50, "latency_p99_ms": p99, "reached_hz": round(self.reached_hz(), 2), **shown}

    @property
    def counters(self) -> Counters:
        """Of all rounds."""
        counted = self._counted()
        p50, p95, p99 = (self._latencies.percentile_ms(percent) for percent in (50, 95, 99))
        dropped = counted.dropped_events + self.branch.dropped
        return replace(counted, dropped_events=dropped, latency_p50_ms=p50, latency_p95_ms=p95, latency_p99_ms=p99)

    def _counted(self) -> Counters:
        """By the stream, in all rounds."""
        now, before = asdict(self.stream.counters), asdict(self._before)
        return Counters(**{name: before[name] + value for name, value in now.items() if isinstance(value, int)})

    def boxes(self) -> list[list[float]]:
        """Left, top, right, bottom, score, class, track (-1: none)."""
        found = self.found
        if found is None:
            return []
        tracks = np.full(len(found), -1) if found.tracks is None else found.tracks
        return np.column_stack([found.boxes, found.scores, found.classes, tracks]).astype(np.float64).round(3).tolist()


def warm_up(stream: Stream, sensor: tuple[int, int] | None) -> None:
    """Compile, build the network for a sensor of this size, if it is known, and compute: a first answer takes up to ten seconds.

    By a stream of its own, so that STREAM begins with empty memory, tracks and counters.
    """
    width, height = known_size(stream.runtime.config) if sensor is None else sensor
    with open_events(STREET) as reader:
        events = reader.between(reader.start_us, reader.start_us + WARM_US)
    inside = (events.x < width) & (events.y < height)
    first = Stream(stream.runtime, stream.rate_hz, faults="skip")
    first.familiar.said = stream.familiar.said  # what is unusual about this sensor is said once
    events = Events(events.t[inside], events.x[inside], events.y[inside], events.p[inside], width, height)
    first.push(events)
    surface = Surface(width, height)
    surface.add(events)
    surface.shades(WARM_US, WARM_US)
