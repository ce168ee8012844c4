"""SCENE + SENSOR -> EVENTS: a source like a file or a camera."""

from collections.abc import Iterator

import numpy as np

from saccade.simulate.scene import Scene
from saccade.simulate.sensor import Sensor, SensorConfig
from saccade.types import Events

CHUNK_US = 20_000


class Simulation:
    """The events of a scene in chunks, in the order of time; iterating again begins again, with the same events."""

    def __init__(self, scene: Scene, sensor: SensorConfig | None = None, seed: int | None = None, *, chunk_us: int = CHUNK_US) -> None:
        self.scene, self.sensor, self.chunk_us = scene, sensor or SensorConfig(), chunk_us
        self.seed = scene.seed if seed is None else seed
        self.width, self.height, self.duration_us = scene.width, scene.height, scene.duration_us

    def __iter__(self) -> Iterator[Events]:
        finer = self.scene.finer
        sensor = Sensor(self.width * finer, self.height * finer, self.sensor, self.seed)
        parts: list[Events] = []
        due_us = self.chunk_us
        for time_us, image, changed in self.scene.pictures():
            parts.append(self._scaled(sensor.see(image, time_us, changed), finer))
            if time_us >= due_us:
                yield Events.join(parts)
                parts, due_us = [], time_us - time_us % self.chunk_us + self.chunk_us
        if parts:
            yield Events.join(parts)

    def _scaled(self, events: Events, finer: int) -> Events:
        """Events of the sensor's pixels on those of the labels."""
        if finer == 1:
            return events
        step = np.uint16(finer)
        return Events(events.t, events.x // step, events.y // step, events.p, self.width, self.height)


def simulate(scene: Scene, sensor: SensorConfig | None = None, seed: int | None = None, *, chunk_us: int = CHUNK_US) -> Simulation:
    """Events of a scene as a sensor sees it; `seed` is of the sensor's random numbers, the scene's own if not given."""
    return Simulation(scene, sensor, seed, chunk_us=chunk_us)
