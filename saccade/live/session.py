"""ONE SOURCE, READ ONCE -> one detector or two on the same events, in threads of their own, and what a page sees of them.

Nothing here waits for a page: whoever looks takes what is newest.
"""

import json
import logging
import struct
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from saccade.live import FASTEST_HZ, SLOWEST_HZ
from saccade.live.panel import RECENT_S, Branch, Panel
from saccade.live.surface import Surface
from saccade.sources.source import Replay, Source
from saccade.stream.stream import Stream
from saccade.types import Events, InputError

log = logging.getLogger("saccade")

SLOWEST, FASTEST = 0.01, 10.0  # speed of a recording, times its own
SHOWN_US = 50_000  # of events in a picture
SILENT_S = 2.0  # without events, after which the page says so


class Session:
    """`start` it, look at it with `message`, change it with `play`, `pause`, `step` and `rate_hz`, `close` it.

    streams: by the name that the page shows. A recording (`Replay`) begins again at its end if it REPEATS.
    """

    def __init__(self, name: str, source: Source, streams: dict[str, Stream], *, repeats: bool = False) -> None:
        self.name, self.source, self.repeats = name, source, repeats
        self.panels = [Panel(label, stream, Branch(name)) for label, stream in streams.items()]
        self.surface: Surface | None = None
        self.ended, self.problem, self.rounds = False, "", 1
        self._speed = source.speed
        self._closed = False
        self._events, self._newest_us, self._heard_s = 0, 0, time.monotonic()
        self._heard: deque[tuple[float, int]] = deque(maxlen=200)  # when, how many events by then
        self._figures: tuple[float, dict[str, Any]] = (-1.0, {})
        self._threads = [threading.Thread(target=self._read, name="saccade-source", daemon=True)]
        self._threads += [
            threading.Thread(target=self._detect, args=(panel,), name=f"saccade-{panel.name}", daemon=True) for panel in self.panels
        ]

    def start(self) -> None:
        self._set_speed(self._speed)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed = True
        self.source.close()
        for panel in self.panels:
            panel.branch.portions.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2)

    @property
    def rate_hz(self) -> float:
        return float(self.panels[0].stream.rate_hz)

    @rate_hz.setter
    def rate_hz(self, rate_hz: float) -> None:
        if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
            raise InputError(f"rate: {rate_hz:g} Hz, expected {SLOWEST_HZ:g} to {FASTEST_HZ:g}")
        for panel in self.panels:
            panel.stream.rate_hz = rate_hz

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

    def step(self) -> None:
        """Pause, and go on by one window."""
        self.pause()
        assert self.playable is not None
        self.playable.step(1e6 / self.rate_hz)

    def _set_speed(self, speed: float) -> None:
        if self.playable is None:
            if speed != self.source.speed:
                raise InputError(f"{self.name}: a live source has its own speed; only recordings can be paused, stepped and slowed down")
            return
        for panel in self.panels:
            panel.branch.speed = speed
        self.playable.play(speed)
        self._heard_s = time.monotonic()

    def _read(self) -> None:
        try:
            while not self._closed:
                before = self._events
                for events in self.source:
                    self._take(events)
                if self._closed or not self.repeats or self._events == before:
                    break
                self.rounds += 1
                for panel in self.panels:
                    panel.branch.portions.put(None)
                if self.surface is not None:
                    self.surface.clear()
        except InputError as error:
            self._end(str(error))
        except Exception as error:  # of a driver; the page must not show a source that is gone
            log.exception("%s: ended", self.name)
            self._end(f"{type(error).__name__}: {error}")
        self.ended = True
        for panel in self.panels:
            panel.branch.portions.put(None)

    def _take(self, events: Events) -> None:
        if len(events):
            if self.surface is None or (self.surface.width, self.surface.height) != (events.width, events.height):
                self.surface = Surface(events.width, events.height)
            self.surface.add(events)
            self._newest_us = int(events.t[-1])
            self._events, self._heard_s = self._events + len(events), time.monotonic()
            if not self._heard or self._heard_s - self._heard[-1][0] > RECENT_S / 50:
                self._heard.append((self._heard_s, self._events))
        for panel in self.panels:
            for count in ("lost", "bad", "foreign"):
                setattr(panel.branch, count, getattr(self.source, count))
            if not panel.problem:
                panel.branch.portions.put(events)

    def _detect(self, panel: Panel) -> None:
        rounds = 1
        try:
            while not self._closed:
                panel.run()
                if rounds == self.rounds:
                    break
                rounds += 1
                panel.begin_again()
        except InputError as error:
            panel.problem = str(error)
        except Exception as error:
            panel.problem = f"{type(error).__name__}: {error}"
            log.exception("%s: ended", panel.name)

    def _end(self, problem: str) -> None:
        self.problem = problem
        log.warning("%s: ended: %s", self.name, problem)

    @property
    def version(self) -> tuple[Any, ...]:
        """Differs when there is something new to see."""
        return (self._events, self.ended, self.paused, *(id(panel.found) for panel in self.panels))

    def state(self) -> str:
        if self.ended:
            return "ended"
        if self.paused:
            return "paused"
        if not self._events:
            return "waiting"
        return "silent" if time.monotonic() - self._heard_s > SILENT_S else "playing"

    def event_rate(self) -> float:
        """Events per second of event time, of late."""
        now_s = time.monotonic()
        before = [(when_s, events) for when_s, events in list(self._heard) if when_s > now_s - RECENT_S]
        speed = self.source.speed
        if len(before) < 2 or not speed:
            return 0.0
        return (self._events - before[0][1]) / (now_s - before[0][0]) / speed

    def figures(self) -> dict[str, Any]:
        """What changes slowly, measured four times a second at the most."""
        now_s = time.monotonic()
        if now_s - self._figures[0] > 0.25:
            panels = [
                {"name": panel.name, "classes": panel.stream.classes, "problem": panel.problem, **panel.figures()} for panel in self.panels
            ]
            shown: dict[str, Any] = {
                "events_per_s": round(self.event_rate()),
                "silent_s": round(now_s - self._heard_s, 1),
                "panels": panels,
            }
            self._figures = (now_s, shown)
        return self._figures[1]

    def message(self) -> bytes:
        """A picture with all that belongs to it: length of the JSON (uint32, little-endian), JSON, one byte a pixel (see `surface`)."""
        surface = self.surface
        # In silence the detectors' clock goes on; one that has stopped, or is still in the round before, has none.
        clocks_us = [panel.found.time_us for panel in self.panels if panel.found is not None and not panel.problem]
        now_us = max([self._newest_us, *clocks_us])
        shades = np.zeros((0, 0), np.uint8) if surface is None else surface.shades(now_us, SHOWN_US)
        header = {
            "source": self.name, "state": self.state(), "problem": self.problem, "time_us": now_us, "round": self.rounds,
            "rate_hz": self.rate_hz, "speed": self.speed, "playable": self.playable is not None,
            "score": self.panels[0].stream.runtime.config.least_score,
            "width": 0 if surface is None else surface.width, "height": 0 if surface is None else surface.height,
            "rows": shades.shape[0], "columns": shades.shape[1],
            "boxes": [panel.boxes() for panel in self.panels], **self.figures(),
        }  # fmt: skip
        text = json.dumps(header, allow_nan=False).encode()
        return struct.pack("<I", len(text)) + text + shades.tobytes()
