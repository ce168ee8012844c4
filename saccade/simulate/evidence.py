"""EVENTS + TRUTH -> which labels count: an object has none until it has made events enough to be seen by them.

A dark car before a dark wall, or one over which the camera passes by a pixel, is in the picture, but nothing in the events tells of it.
Trained on such labels, a detector learns to see what isn't there.
"""

import math
from dataclasses import fields
from itertools import pairwise

import numpy as np

from saccade.machine import compiled
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.simulation import Truth
from saccade.types import Events, Times

LEAST_EVENTS = 12.0
OUTLINE_EVENTS = 2.0  # per px of width and height: about all of its outline ...
MEMORY_US = 150_000.0  # ... within about so long: sparse events over seconds draw nothing


class Evidence:
    """Counts events in the boxes of a recording's truth while they are written; `seen` then leaves out what none had told of."""

    def __init__(self, truth: Truth, times_us: Times, width: int, height: int, noise: float) -> None:
        """NOISE: events a second and pixel that mean nothing. TIMES_US: the instants of the truth; events count for the next of them."""
        self.truth, self.times_us, self.noise = truth, times_us, noise
        self._first_row = np.searchsorted(truth.t, np.append(times_us, np.iinfo(np.int64).max))
        self._counts = np.zeros(len(truth.t))
        self._image = np.zeros((height, width), np.int32)
        self._instant = 0  # that the events in the image belong to

    def add(self, events: Events) -> None:
        """Portions in the order of time."""
        if not len(events):
            return
        passed = self.times_us[self._instant : np.searchsorted(self.times_us, events.t[-1])]
        limits = np.searchsorted(events.t, passed, side="right")
        for number, (start, end) in enumerate(pairwise([0, *limits, len(events)])):
            np.add.at(self._image, (events.y[start:end], events.x[start:end]), 1)
            if number < len(limits):
                self._close()

    def _close(self) -> None:
        first, end = self._first_row[self._instant], self._first_row[self._instant + 1]
        _count(self._image, self.truth.boxes[first:end], self._counts[first:end])
        self._image[:] = 0
        self._instant += 1

    def seen(self) -> Truth:
        while self._instant < len(self.times_us):
            self._close()
        kept = _enough(self._counts, self.truth.boxes, self.truth.tracks, self.truth.t, self.noise * 1e-6)
        return Truth(**{item.name: getattr(self.truth, item.name)[kept] for item in fields(Truth)})


def noise_rate(sensor: SensorConfig, finer: int) -> float:
    """Events a second and pixel of the canvas that a sensor makes of nothing."""
    per_pixel = sensor.shot_hz + sensor.leak_hz + sensor.hot_fraction * sensor.hot_hz
    return per_pixel * finer * finer / max(1.0 - sensor.burst, 0.05)


@compiled
def _count(image, boxes, counts):
    height, width = image.shape
    for n in range(len(boxes)):
        total = 0
        for y in range(max(int(boxes[n, 1]), 0), min(int(boxes[n, 3]) + 1, height)):
            for x in range(max(int(boxes[n, 0]), 0), min(int(boxes[n, 2]) + 1, width)):
                total += image[y, x]
        counts[n] = total


@compiled
def _enough(counts, boxes, tracks, t, noise_per_us):
    """For every row whether its track has, by then, once made more events than its outline needs, beyond twice the expected noise."""
    most = 0
    for n in range(len(tracks)):
        most = max(most, tracks[n] + 1)
    made, before, seen = np.zeros(most), np.full(most, -1, np.int64), np.zeros(most, np.bool_)
    kept = np.zeros(len(counts), np.bool_)
    for n in range(len(counts)):
        k = tracks[n]
        wide, tall = boxes[n, 2] - boxes[n, 0], boxes[n, 3] - boxes[n, 1]
        elapsed = t[n] - before[k] if before[k] >= 0 else 5_000
        before[k] = t[n]
        made[k] = made[k] * math.exp(-elapsed / MEMORY_US) + max(counts[n] - 2 * noise_per_us * elapsed * wide * tall, 0.0)
        seen[k] |= made[k] >= max(LEAST_EVENTS, OUTLINE_EVENTS * (wide + tall))
        kept[n] = seen[k]
    return kept
