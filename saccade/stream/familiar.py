"""WHAT THE WEIGHTS KNOW, WHAT THEY GET: a sensor, a scale or an event rate far from those of the training is said, once."""

import logging
from math import sqrt

from saccade.config import DetectorConfig
from saccade.representation.canvas import Canvas
from saccade.stream.fit import MUCH_LARGER, known_size
from saccade.types import Window

log = logging.getLogger("saccade")

MUCH_SMALLER = 0.5  # sides of the sensor, or the scale at which it is shown
USUAL = (0.2, 100.0)  # events per pixel and second: five times beyond what simulated streets (1.9 in the calm) and Gen1 (18) have
JUDGED_US = 1_000_000  # of a stream: its event rate is that of the beginning


class Familiar:
    """Of one stream. `said` has what was said already; streams that are one to the user may share it."""

    def __init__(self, config: DetectorConfig) -> None:
        self.config, self.said = config, set[str]()
        self._began_us: int | None = None
        self._events, self._judged = 0, False

    def sensor(self, canvas: Canvas) -> None:
        """Once the sensor's size is known, and where its pixels go."""
        width, height, name = canvas.sensor_width, canvas.sensor_height, self.config.name
        known, natural = known_size(self.config), 1.0 if self.config.halved == "no" else 0.5
        trained = f"{name} was trained on {known[0]} x {known[1]}"
        as_large = canvas.scale * sqrt(width * height / (known[0] * known[1]))
        if canvas.scale < natural * MUCH_SMALLER:
            self._say("scale", f"a sensor of {width} x {height} is shown at {canvas.scale:.2f} of its size: {trained}, small objects "
                      "may be lost; tiles (--fit tile) keep them, weights for this sensor find more")  # fmt: skip
        elif as_large > MUCH_LARGER:
            self._say("size", f"a sensor of {width} x {height} is shown pixel by pixel, but {trained}: larger objects than any there "
                      "may be missed; detect and Stream scale them with fit auto")  # fmt: skip
        elif as_large < MUCH_SMALLER:
            self._say("size", f"a sensor of {width} x {height} is much smaller than the {known[0]} x {known[1]} that {name} knows: objects "
                      "may be too small for it")  # fmt: skip

    def events(self, piece: Window, canvas: Canvas) -> None:
        """Pieces in the order of time; judged after the first second."""
        if self._judged:
            return
        self._began_us = piece.start_us if self._began_us is None else self._began_us
        self._events += len(piece)
        elapsed_us = piece.end_us - self._began_us
        if elapsed_us < JUDGED_US:
            return
        self._judged = True
        rate = self._events / (elapsed_us / 1e6) / (canvas.sensor_width * canvas.sensor_height * canvas.scale**2)
        if not USUAL[0] <= rate <= USUAL[1]:
            low, high = USUAL
            self._say("rate", f"{rate:.3g} events per second and pixel in the first second, where {low:g} to {high:g} are usual: "
                      f"{'the scene may be too calm, or the sensor too insensitive' if rate < low else 'noise, flicker or a burst'}; "
                      "boxes may be poor")  # fmt: skip

    def _say(self, kind: str, text: str) -> None:
        if kind not in self.said:
            self.said.add(kind)
            log.warning("%s", text)
