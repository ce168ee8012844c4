"""SCENE + SENSOR -> EVENTS: what a sensor looks at, drawn or photographed, and its events: a source like a file or a camera."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from saccade.simulate.sensor import Sensor, SensorConfig
from saccade.types import Boxes, Events, Ids, InputError, Labels, Scores, Times

IntensityImage = Float32[np.ndarray, "height width"]
Rectangles = Int64[np.ndarray, "n 4"]  # left, top, right, bottom in pixels, right and bottom excluded
TimedImage = tuple[int, IntensityImage, Rectangles]  # time in us, intensities, where they may differ from the picture before

SMALLEST, LARGEST = 32, 4096  # px, sides of the sensor
LEAST_VISIBLE = 0.25  # objects with a smaller visible fraction have no label ...
LEAST_SIDE = 3.0  # ... nor those whose box inside the image is narrower or lower than this, px
CHUNK_US = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Boxes and motion of the objects in the image, rows in the order of time and, at one time, of track."""

    t: Times
    boxes: Boxes  # of the silhouette inside the image, whether other objects hide parts of it or not
    classes: Ids
    tracks: Ids
    still_us: Times  # how long its image hasn't moved, neither by itself nor by the camera
    visible: Scores  # fraction of the silhouette inside the image and in front of the others
    speed_px_s: Scores  # of the object in the world; the camera's motion is not in it

    def labels(self) -> Labels:
        return Labels(self.t, self.boxes, self.classes, self.tracks, self.still_us, self.visible, self.speed_px_s)


@runtime_checkable
class Scene(Protocol):
    """Drawn streets (`plan.make_scene`) and photographs (`photo_scene.make_photo_scene`) as the sensor and the labels need them."""

    @property
    def seed(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def duration_us(self) -> int: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def finer(self) -> int:
        """Sensor pixels per pixel of labels and events, in x and in y: events of a large sensor scaled down. 1: they are the same."""
        ...

    def intensity(self, time_us: int) -> IntensityImage: ...

    def pictures(self) -> Iterator[TimedImage]:
        """From 0 to the end, as close in time as the sensor needs them; the image is the same memory every time."""
        ...

    def truth(self, t_us: Times) -> Truth: ...


def check_scene(seed: int, width: int, height: int, seconds: float) -> None:
    """Refuse sizes, lengths and seeds that no scene can have."""
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise InputError(f"scene: size {width}x{height} must be within {SMALLEST}x{SMALLEST} and {LARGEST}x{LARGEST}")
    if not 0.05 <= seconds <= 3600 or seed < 0:
        raise InputError(f"scene: seconds={seconds} must be within 0.05 and 3600, seed={seed} 0 or more")


def check_times(t_us: Times, duration_us: int) -> Times:
    t_us = np.ascontiguousarray(t_us, np.int64)
    if len(t_us) and not (t_us.min() >= 0 and t_us.max() <= duration_us and (np.diff(t_us) >= 0).all()):
        raise InputError(f"Scene.truth: times must be in order and within 0 to {duration_us} us, got {t_us.min()} to {t_us.max()}")
    return t_us


def as_truth(t_us: Times, row: np.ndarray, track: np.ndarray, values: np.ndarray, classes: np.ndarray) -> Truth:
    """Rows of a query (left, top, right, bottom, visible, still_us, speed) as Truth, without what is too small or mostly hidden."""
    sides = values[:, 2:4] - values[:, 0:2]
    kept = (values[:, 4] >= LEAST_VISIBLE) & (sides >= LEAST_SIDE).all(axis=1)
    row, track, values = row[kept], track[kept], values[kept]
    return Truth(
        t_us[row],
        values[:, :4].astype(np.float32),
        classes[track],
        track,
        np.rint(np.minimum(values[:, 5], t_us[row] + 1.0)).astype(np.int64),  # who never moved has stood since before the start
        values[:, 4].astype(np.float32),
        values[:, 6].astype(np.float32),
    )


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
