"""SCENE + SENSOR -> EVENTS: a source like a file or a camera."""

from collections.abc import Iterator

from saccade.simulate.render import Renderer, steps
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
        renderer, sensor = Renderer(self.scene), Sensor(self.width, self.height, self.sensor, self.seed)
        parts: list[Events] = []
        due_us = self.chunk_us
        for time_us in steps(self.scene):
            image, changed = renderer.draw(time_us)
            parts.append(sensor.see(image, time_us, changed))
            if time_us >= due_us:
                yield Events.join(parts)
                parts, due_us = [], time_us - time_us % self.chunk_us + self.chunk_us
        if parts:
            yield Events.join(parts)


def simulate(scene: Scene, sensor: SensorConfig | None = None, seed: int | None = None, *, chunk_us: int = CHUNK_US) -> Simulation:
    """Events of a scene as a sensor sees it; `seed` is of the sensor's chance, the scene's own if not given."""
    return Simulation(scene, sensor, seed, chunk_us=chunk_us)
