"""INTENSITIES -> EVENTS: a pixel follows the logarithm of its light and makes an event when that has changed by its threshold.

In the compiled loop over the pixels (low-pass, thresholds, refractory time, leak, noise) all times are in us, all rates in 1/us.
"""

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from saccade.machine import compiled
from saccade.types import Events, InputError

BUFFER = 1 << 16
ROOM = 4096  # events that one pixel may make in one step; only absurd noise comes near
SETTLED = 1e-4  # difference of log intensity below which the low-pass counts as settled


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
            if not 0 <= value <= 1e6 and not (item.name == "cutoff_hz" and value > 0):
                raise InputError(f"sensor: {item.name}={value} must be a number from 0 to 1e6")
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
        # A random start between the thresholds; otherwise all pixels would leak at the same time
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


class Pixels(NamedTuple):
    """One value per pixel; the first four never change."""

    on: np.ndarray  # thresholds
    off: np.ndarray
    leak: np.ndarray  # drift of `change`
    hot: np.ndarray  # rate of a hot pixel's events
    change: np.ndarray  # log intensity since the last event, with the leak
    level: np.ndarray  # log intensity behind the low-pass
    goal: np.ndarray  # ... and in front of it
    pace: np.ndarray  # 1 / time constant of the low-pass
    noise: np.ndarray  # rate of all events of noise
    wait_left: np.ndarray  # remaining waiting time until the next noise event, in units of 1 / rate: exponential, so a Poisson process
    ready_us: np.ndarray  # end of the refractory time
    draws: np.ndarray  # random numbers used so far


@compiled
def uniform(key, pixel, draw):
    """A random number in (0, 1) that depends on nothing but its arguments (splitmix64's finaliser)."""
    z = key + np.uint64(pixel) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(draw) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) / 9007199254740992.0


@compiled
def expose(pixels, intensity, rectangles, cutoff_hz, dark_cutoff_hz, shot_hz):
    """New intensities in some rectangles: set target and speed of the low-pass, and the rate of noise."""
    width = intensity.shape[1]
    for i in range(len(rectangles)):
        left, top, right, bottom = rectangles[i]
        for y in range(top, bottom):
            # Slices, because numba checks every index into a whole array for being negative
            row, pixel = intensity[y, left:right], y * width
            hot = pixels.hot[pixel + left : pixel + right]
            goal, pace = pixels.goal[pixel + left : pixel + right], pixels.pace[pixel + left : pixel + right]
            noise = pixels.noise[pixel + left : pixel + right]
            for x in range(len(row)):
                goal[x] = math.log(max(float(row[x]), 1e-3))
            for x in range(len(row)):
                light = max(float(row[x]), 1e-3)
                pace[x] = 2e-6 * math.pi * max(cutoff_hz * light, dark_cutoff_hz)
                noise[x] = 1e-6 * shot_hz * (1 - 0.75 * min(light, 1.0)) + hot[x]


@compiled
def advance(pixels, key, start_us, end_us, refractory_us, bursts, first, out_t, out_pixel, out_p, room):
    """Events of [start_us, end_us) of the pixels from `first` on; returns how many (-1: one has no room), and the pixel to go on with."""
    count, elapsed = 0, end_us - start_us
    level, change_of, wait_of = pixels.level, pixels.change, pixels.wait_left
    for number in range(first, len(level)):
        pixel = np.uint64(number)  # numba checks signed indices for being negative
        if count + room > len(out_t):
            return count, number
        old, goal = level[pixel], pixels.goal[pixel]
        new = old
        if old != goal:
            new = goal + (old - goal) * math.exp(-elapsed * pixels.pace[pixel])
            if abs(new - goal) < SETTLED:
                new = goal
            level[pixel] = new
        slope = (new - old) / elapsed + pixels.leak[pixel]
        change = change_of[pixel] + slope * elapsed
        wait_left = wait_of[pixel] - pixels.noise[pixel] * elapsed
        if -pixels.off[pixel] < change < pixels.on[pixel] and wait_left > 0 and pixels.ready_us[pixel] <= start_us:
            change_of[pixel], wait_of[pixel] = change, wait_left
        else:
            count = _events_of(
                pixels, key, number, slope, start_us, end_us, refractory_us, bursts, count, count + room, out_t, out_pixel, out_p
            )
            if count < 0:
                return count, number
    return count, len(level)


@compiled
def _repeat(pixels, key, pixel, now, end_us, bursts, count, most, out_t, out_pixel, out_p):
    """The readout's repetitions of the event before `count`: probability, delay and probability of the other polarity are in `bursts`."""
    while count < most:
        draw = pixels.draws[pixel]
        pixels.draws[pixel] = draw + np.uint64(3)
        if uniform(key, pixel, draw) >= bursts[0]:
            break
        later = now + bursts[1] * uniform(key, pixel, draw + np.uint64(1))
        out_t[count], out_pixel[count] = min(math.floor(later), math.ceil(end_us) - 1), pixel
        out_p[count] = out_p[count - 1] != (uniform(key, pixel, draw + np.uint64(2)) < bursts[2])
        count += 1
    return count


@compiled
def _events_of(pixels, key, pixel, slope, start_us, end_us, refractory_us, bursts, count, most, out_t, out_pixel, out_p):
    """From event to event: the next crossing of a threshold or the next event of noise, whichever comes first. -1 if there is no room."""
    now, change, wait_left = start_us, pixels.change[pixel], pixels.wait_left[pixel]
    while True:
        if pixels.ready_us[pixel] > now:  # refractory: changes meanwhile are lost
            change = 0.0
            now = pixels.ready_us[pixel]
            if now >= end_us:
                break
        crossing = math.inf
        if slope > 0:
            crossing = max((pixels.on[pixel] - change) / slope, 0.0)
        elif slope < 0:
            crossing = max((-pixels.off[pixel] - change) / slope, 0.0)
        noise = wait_left / pixels.noise[pixel] if pixels.noise[pixel] > 0 else math.inf
        wait = min(crossing, noise)
        if now + wait >= end_us:
            change += slope * (end_us - now)
            wait_left -= pixels.noise[pixel] * (end_us - now)
            break
        if count == most:
            return -1
        now += wait
        polarity = slope > 0
        if noise < crossing:
            draw = pixels.draws[pixel]
            wait_left = -math.log(uniform(key, pixel, draw))
            hot = uniform(key, pixel, draw + np.uint64(1)) * pixels.noise[pixel] < pixels.hot[pixel]
            polarity = hot or uniform(key, pixel, draw + np.uint64(2)) < 0.5  # a hot pixel is a strong leak: rising only
            pixels.draws[pixel] = draw + np.uint64(3)
        else:
            wait_left -= pixels.noise[pixel] * wait
        out_t[count], out_pixel[count], out_p[count] = math.floor(now), pixel, polarity
        count += 1
        if bursts[0] > 0:
            count = _repeat(pixels, key, pixel, now, end_us, bursts, count, most, out_t, out_pixel, out_p)
        change = 0.0
        pixels.ready_us[pixel] = now + refractory_us
    pixels.change[pixel], pixels.wait_left[pixel] = change, wait_left
    return count
