"""PLAYING A RECORDING: pause, step, speed and place, for every page that shows it; a live source has none of these."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from saccade.live.panel import Branch
from saccade.sources.source import Replay, Source
from saccade.types import InputError

log = logging.getLogger("saccade")

SLOWEST, FASTEST = 0.01, 10.0  # times its own speed
SHOWN_US = 50_000  # of events in a picture
Limits = tuple[int, int]  # time of the first event, and one microsecond after the last


class Playback:
    """Of one source. MEASURE finds the limits of a recording on disk, which may take a pass over the file: in a thread of its own."""

    def __init__(self, name: str, source: Source, branches: Sequence[Branch], measure: Callable[[], Limits] | None = None) -> None:
        self.name, self.source, self.branches = name, source, branches
        self.limits_us: Limits | None = None
        self.changed_s = time.monotonic()  # when it was last paused or played
        self._speed = source.speed
        self._measure = measure

    def start(self) -> None:
        self._set_speed(self._speed)
        if self._measure is not None:
            threading.Thread(target=self._find_limits, args=(self._measure,), name="saccade-limits", daemon=True).start()

    def _find_limits(self, measure: Callable[[], Limits]) -> None:
        try:
            self.limits_us = measure()
        except InputError as error:  # the page has no place to seek then, the recording plays as far as it can be read
            log.warning("%s: its length isn't known: %s", self.name, error)

    @property
    def playable(self) -> Replay | None:
        """What can be paused and slowed down: a recording or a simulation."""
        return self.source if isinstance(self.source, Replay) else None

    @property
    def paused(self) -> bool:
        return self.source.speed == 0

    @property
    def speed(self) -> float:
        """Of a recording, also while it is paused."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if not SLOWEST <= speed <= FASTEST:
            raise InputError(f"speed: {speed:g}, expected {SLOWEST:g} to {FASTEST:g} times its own")
        if not self.paused:
            self._set_speed(speed)
        self._speed = speed

    def play(self) -> None:
        self._set_speed(self._speed)

    def pause(self) -> None:
        self._set_speed(0.0)

    def step(self, step_us: float) -> None:
        """Pause, and go on by so much."""
        self.pause()
        assert self.playable is not None
        self.playable.step(step_us)

    def seek(self, seconds: float) -> None:
        """Go to a place, counted from the first event; memory and tracks begin anew there."""
        limits = self.limits_us
        if self.playable is None or limits is None:
            raise InputError(f"{self.name}: only recordings on disk have a place to go to, as soon as their length is known")
        length_us = limits[1] - limits[0]
        if not 0 <= seconds * 1e6 <= length_us:
            raise InputError(f"seek: {seconds:g} s, expected 0 to {length_us / 1e6:g}")
        self.playable.seek(limits[0] + round(seconds * 1e6), SHOWN_US)

    def _set_speed(self, speed: float) -> None:
        if self.playable is None:
            if speed != self.source.speed:
                raise InputError(f"{self.name}: a live source has its own speed; only recordings can be paused, stepped and slowed down")
            return
        for branch in self.branches:
            branch.speed = speed
        self.playable.play(speed)
        self.changed_s = time.monotonic()
