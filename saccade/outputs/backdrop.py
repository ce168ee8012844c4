"""EVENTS on their way to a detector -> pictures of the newest window, in the resolution of the sensor."""

from collections import deque
from collections.abc import Iterable, Iterator

from saccade.representation.histogram import Histogram, stacked_histogram
from saccade.types import Events, Window


class Backdrop:
    """Passes a source's events on and keeps those that a picture may still need: a detector that is ahead of its source has seen them."""

    def __init__(self, source: Iterable[Events], width: int, height: int, window_us: int = 50_000) -> None:
        self.source, self.width, self.height, self.window_us = source, width, height, window_us
        self.recent: deque[tuple[int, Events]] = deque()  # (time of the newest event, portion)

    def __iter__(self) -> Iterator[Events]:
        for events in self.source:
            if len(events):
                self.recent.append((int(events.t.max()), events))
            yield events

    def forget(self, end_us: int) -> None:
        """Let go of what is too old for windows that end at END_US or later."""
        while self.recent and self.recent[0][0] < end_us - self.window_us:
            self.recent.popleft()

    def frame(self, end_us: int) -> Histogram:
        start_us = end_us - self.window_us
        pieces = [events[(events.t >= start_us) & (events.t < end_us)] for newest_us, events in self.recent if newest_us >= start_us]
        events = Events.join(pieces) if pieces else Events.empty(self.width, self.height)
        return stacked_histogram(Window(events.t, events.x, events.y, events.p, events.width, events.height, start_us, end_us))
