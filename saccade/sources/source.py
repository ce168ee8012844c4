"""SOURCE: an iterable of Events that live streams read, and `Replay`, which delivers a recording as a camera would."""

import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

from saccade.events.reader import Reader
from saccade.types import Events, InputError

POLL_S = 0.1  # poll interval for noticing close()
FASTEST = 1e6  # times real time
FINEST = 0.01  # of a portion, while it is slow or paused


class Source:
    """Base of the live sources: ended by `close()`, or by leaving a `with` block. `stream.run` reads it in a thread of its own."""

    live = True
    patient = False  # whether it can wait without losing events
    speed: float = 1.0  # event time per wall-clock time, by which the clock goes on without events
    closed = False
    lost = bad = foreign = 0  # packets that never arrived; that were damaged and left out; that another sender sent meanwhile

    def __iter__(self) -> Iterator[Events]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Replay(Source):
    """Ordered events of a recording or simulation, at SPEED times real time, as a camera would deliver them.

    Another thread may `play` it at another speed, or at 0, which pauses it, `step` it on, and `seek` another place of a recording on disk.
    """

    patient = True

    def __init__(self, source: Iterable[Events], speed: float = 1.0, portion_us: int = 2_000) -> None:
        if not 0 < speed <= FASTEST or portion_us < 1:
            raise InputError(f"replay: speed={speed} must be above 0 and at most a million, portion_us={portion_us} at least 1")
        self.source, self.speed, self.portion_us = source, speed, portion_us
        self._played: tuple[float, float] | None = None  # a wall-clock time in seconds, and the event time that is due by then
        self._from_us: int | None = None  # where the next pass begins, None: at the beginning
        self._shown_us = 0.0  # of a pass that begins paused
        self._changed = threading.Condition()

    def play(self, speed: float) -> None:
        """Go on at another speed from here; 0: pause."""
        if not 0 <= speed <= FASTEST:
            raise InputError(f"replay: speed={speed} must be from 0, a pause, to a million")
        self._move(0, speed)

    def step(self, step_us: float) -> None:
        """Deliver so much more at once, while paused or not."""
        self._move(step_us, self.speed)

    def seek(self, time_us: int, shown_us: float = 0.0) -> None:
        """End the pass under way; the next one begins there. If it is paused, SHOWN_US of it are delivered nevertheless."""
        if not isinstance(self.source, Reader):
            raise InputError(f"{self.source!r}: only recordings on disk have a place to go to")
        with self._changed:
            self._from_us, self._shown_us = time_us, shown_us
            self._changed.notify_all()

    @property
    def sought(self) -> bool:
        """Whether the next pass begins somewhere else than at the beginning."""
        return self._from_us is not None

    def _move(self, step_us: float, speed: float) -> None:
        with self._changed:
            if self._played is not None:
                now_s = time.perf_counter()
                self._played = (now_s, self._played[1] + (now_s - self._played[0]) * 1e6 * self.speed + step_us)
            self.speed = speed
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Events]:
        with self._changed:
            from_us, shown_us, self._from_us, self._shown_us, self._played = self._from_us, self._shown_us, None, 0.0, None
        began_s = time.perf_counter()
        for chunk in self.source if from_us is None or not isinstance(self.source, Reader) else self.source.stream(from_us):
            first = 0
            if self.closed:  # an endless source would go on making what nobody gets
                return
            while first < len(chunk) and not self.closed:
                portion_us = max(round(self.portion_us * min(max(self.speed, FINEST), 1.0)), 1)  # slow motion comes as often
                until_us = int(chunk.t[first]) // portion_us * portion_us + portion_us
                last = max(int(chunk.t.searchsorted(until_us)), first + 1)
                self._played = (began_s, int(chunk.t[first]) + shown_us) if self._played is None else self._played
                if not self._wait_until(until_us):
                    return
                yield chunk[first:last]
                first = last

    def _wait_until(self, until_us: int) -> bool:
        """False if the source was closed, or another place was sought, in the meantime."""
        with self._changed:
            while not (self.closed or self.sought):
                assert self._played is not None
                played_s, played_us = self._played
                if until_us <= played_us:  # stepped to here
                    break
                left_s = played_s + (until_us - played_us) / 1e6 / self.speed - time.perf_counter() if self.speed else POLL_S
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, POLL_S))
            return not (self.closed or self.sought)

    def close(self) -> None:
        super().close()
        if isinstance(self.source, Reader):
            self.source.close()

    def __repr__(self) -> str:
        return f"{self.source!r} at {self.speed:g} times its speed"
