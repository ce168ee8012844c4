"""INTENSITIES -> EVENTS: a pixel that follows the logarithm of its light and says when that has changed by its threshold."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float32, Int64

from saccade.simulate.pixels import Pixels, advance, expose
from saccade.types import Events, InputError

BUFFER = 1 << 16
ROOM = 4096  # events that one pixel may make in one step; only absurd noise comes near


@dataclass(frozen=True, kw_only=True)
class SensorConfig:
    """The sensor's effects; each can be switched off with 0 (cutoff_hz: with inf)."""

    threshold_on: float = 0.2
    """Change of log intensity that makes an event of rising intensity."""
    threshold_off: float = 0.2
    """The same for falling intensity."""
    mismatch: float = 0.04
    """Standard deviation of the thresholds over the pixels, as a fraction."""
    refractory_us: float = 200.0
    """After an event the pixel is blind for so long, and starts anew from the light it then sees."""
    cutoff_hz: float = 300.0
    """Bandwidth (-3 dB) at intensity 1; proportional to the intensity."""
    dark_cutoff_hz: float = 20.0
    """Bandwidth that is left in the dark."""
    shot_hz: float = 0.2
    """Rate per pixel of events of noise, of either polarity, in the dark; a quarter of it at intensity 1."""
    leak_hz: float = 0.05
    """Rate per pixel of rising events of a pixel whose light doesn't change."""
    hot_fraction: float = 0.0003
    """Fraction of the pixels that make events all the time."""
    hot_hz: float = 100.0
    """Mean rate of a hot pixel; single ones differ (exponentially distributed)."""
    burst: float = 0.0
    """Probability that the readout repeats an event of a pixel at once, and then perhaps again."""
    burst_us: float = 1.0
    """Within so many microseconds."""
    burst_flip: float = 0.0
    """Probability that the repeated event has the other polarity."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not value >= 0 or (value == float("inf") and item.name != "cutoff_hz"):
                raise InputError(f"sensor: {item.name}={value} must be a number of 0 or more")
        if min(self.threshold_on, self.threshold_off) < 0.01:
            raise InputError(f"sensor: thresholds {self.threshold_on}, {self.threshold_off} must be at least 0.01")
        if self.burst > 0.95 or self.burst_flip > 1:
            raise InputError(f"sensor: burst={self.burst} must be at most 0.95, burst_flip={self.burst_flip} at most 1")
        if self.hot_fraction > 1 or self.mismatch > 0.5 or self.cutoff_hz == 0:
            raise InputError("sensor: hot_fraction must be at most 1, mismatch at most 0.5, cutoff_hz above 0")


class Sensor:
    """All pixels, from one picture to the next. The same seed makes the same events, however they are fetched."""

    def __init__(self, width: int, height: int, config: SensorConfig | None = None, seed: int = 0) -> None:
        self.width, self.height, self.config = width, height, config or SensorConfig()
        rng = np.random.default_rng([0x5E4504, seed])
        count = width * height
        thresholds = [
            np.maximum(threshold * (1 + self.config.mismatch * rng.standard_normal(count)), 0.01)
            for threshold in (self.config.threshold_on, self.config.threshold_off)
        ]
        hot = np.where(rng.random(count) < self.config.hot_fraction, rng.exponential(self.config.hot_hz, count), 0.0) * 1e-6
        # Where between its thresholds a pixel is when the recording begins is chance; else all would leak at the same time
        change = (rng.random(count) * thresholds[0]) if self.config.leak_hz else np.zeros(count)
        self._pixels = Pixels(
            on=thresholds[0],
            off=thresholds[1],
            leak=thresholds[0] * self.config.leak_hz * 1e-6,
            hot=hot,
            change=change,
            level=np.zeros(count),
            goal=np.zeros(count),
            pace=np.zeros(count),
            noise=np.zeros(count),
            wait_left=rng.exponential(1.0, count),
            ready_us=np.zeros(count),
            draws=np.zeros(count, np.uint64),
        )
        self._key = np.uint64(rng.integers(1 << 63))
        self._time_us: int | None = None
        self._t, self._pixel, self._p = np.empty(BUFFER, np.int64), np.empty(BUFFER, np.int64), np.empty(BUFFER, np.bool_)

    def see(
        self, intensity: Float32[np.ndarray, "height width"], time_us: int, rectangles: Int64[np.ndarray, "n 4"] | None = None
    ) -> Events:
        """The events in [time of the last picture, time_us), in order, while the light goes over to this picture, new only in `rectangles`.

        The first picture makes no events: the pixels settle on it.
        """
        if intensity.shape != (self.height, self.width):
            raise InputError(f"Sensor.see: picture of {intensity.shape[::-1]}, expected {self.width} x {self.height}")
        if rectangles is None:
            rectangles = np.array([[0, 0, self.width, self.height]], np.int64)
        config, pixels = self.config, self._pixels
        expose(pixels, intensity, rectangles, min(config.cutoff_hz, 1e6), config.dark_cutoff_hz, config.shot_hz)
        if self._time_us is None:
            pixels.level[:] = pixels.goal
            pixels.ready_us[:] = time_us
            self._time_us = time_us
            return Events.empty(self.width, self.height)
        if time_us <= self._time_us:
            raise InputError(f"Sensor.see: a picture at {time_us} us after one at {self._time_us} us; times must rise")
        return self._advance(time_us)

    def _advance(self, time_us: int) -> Events:
        parts, first = [], 0
        while first < self.width * self.height:
            count, first = advance(
                self._pixels, self._key, float(self._time_us or 0), float(time_us), self.config.refractory_us,
                (self.config.burst, self.config.burst_us, self.config.burst_flip), first, self._t, self._pixel, self._p, ROOM,
            )  # fmt: skip
            if count < 0:
                step_us = time_us - (self._time_us or 0)
                raise InputError(f"sensor: more than {ROOM} events of one pixel in {step_us} us; lower shot_hz, hot_hz or leak_hz")
            parts.append((self._t[:count].copy(), self._pixel[:count].copy(), self._p[:count].copy()))
        self._time_us = time_us
        t, pixel, p = (np.concatenate(columns) for columns in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
        order = np.argsort(t, kind="stable")
        t, pixel, p = t[order], pixel[order], p[order]
        return Events(t, (pixel % self.width).astype(np.uint16), (pixel // self.width).astype(np.uint16), p, self.width, self.height)
