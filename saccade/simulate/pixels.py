"""The pixels' own loop: low-pass, thresholds, refractory time, leak, noise. All times in us, all rates in 1/us."""

import math
from typing import NamedTuple

import numpy as np

from saccade.machine import compiled

SETTLED = 1e-4  # of log intensity: so near its goal a pixel has arrived


class Pixels(NamedTuple):
    """One value per pixel; the first four never change."""

    on: np.ndarray  # thresholds
    off: np.ndarray
    leak: np.ndarray  # drift of `change`
    hot: np.ndarray  # rate of a hot pixel's events
    change: np.ndarray  # log intensity since the last event, with the leak
    level: np.ndarray  # log intensity behind the low-pass
    goal: np.ndarray  # ... and before it
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
    """New light in some rectangles: what the low-pass goes for and how fast, and how noisy the pixel is."""
    width = intensity.shape[1]
    for i in range(len(rectangles)):
        for y in range(rectangles[i, 1], rectangles[i, 3]):
            for x in range(rectangles[i, 0], rectangles[i, 2]):
                light = max(float(intensity[y, x]), 1e-3)
                pixel = y * width + x
                pixels.goal[pixel] = math.log(light)
                pixels.pace[pixel] = 2e-6 * math.pi * max(cutoff_hz * light, dark_cutoff_hz)
                pixels.noise[pixel] = 1e-6 * shot_hz * (1 - 0.75 * min(light, 1.0)) + pixels.hot[pixel]


@compiled
def advance(pixels, key, start_us, end_us, refractory_us, bursts, first, out_t, out_pixel, out_p, room):
    """Events of [start_us, end_us) of the pixels from `first` on; returns how many (-1: one has no room), and the pixel to go on with."""
    count, elapsed = 0, end_us - start_us
    for pixel in range(first, len(pixels.level)):
        if count + room > len(out_t):
            return count, pixel
        old, goal = pixels.level[pixel], pixels.goal[pixel]
        new = old
        if old != goal:
            new = goal + (old - goal) * math.exp(-elapsed * pixels.pace[pixel])
            if abs(new - goal) < SETTLED:
                new = goal
            pixels.level[pixel] = new
        slope = (new - old) / elapsed + pixels.leak[pixel]
        change = pixels.change[pixel] + slope * elapsed
        wait_left = pixels.wait_left[pixel] - pixels.noise[pixel] * elapsed
        if -pixels.off[pixel] < change < pixels.on[pixel] and wait_left > 0 and pixels.ready_us[pixel] <= start_us:
            pixels.change[pixel], pixels.wait_left[pixel] = change, wait_left
        else:
            count = _events_of(
                pixels, key, pixel, slope, start_us, end_us, refractory_us, bursts, count, count + room, out_t, out_pixel, out_p
            )
            if count < 0:
                return count, pixel
    return count, len(pixels.level)


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
        if pixels.ready_us[pixel] > now:  # blind; what changes meanwhile is lost
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
