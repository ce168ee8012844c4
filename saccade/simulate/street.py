"""STREET: a drawn scene: textures, camera and tracks as numbers, pictures and truth of them at any microsecond."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from saccade.simulate.motion import Camera
from saccade.simulate.render import draw_changes, next_step
from saccade.simulate.scene import IntensityImage, Rectangles, TimedImage, Truth, as_truth, check_times
from saccade.simulate.shapes import CLASS_OF_KIND, CLASSES
from saccade.simulate.truth import query
from saccade.types import Labels, Times


class Tracks(NamedTuple):
    """The objects, farthest first: the order in which they are drawn."""

    kind: np.ndarray  # (n,) int64, the silhouette
    traits: np.ndarray  # (n, TRAITS) float64
    start_us: np.ndarray  # (n,) float64: not there before ...
    end_us: np.ndarray  # ... nor from this on
    first_knot: np.ndarray  # (n + 1,) int64, into the columns below
    knot_us: np.ndarray  # (k,) float64
    speed: np.ndarray  # (k,) px/s along the track; negative is backwards
    distance: np.ndarray  # (k,) px travelled at the knots


@dataclass(frozen=True, slots=True, eq=False)
class Street:
    """What `saccade.simulate.plan.make_scene` made out of a seed."""

    seed: int
    width: int
    height: int
    duration_us: int
    background: Float32[np.ndarray, "rows columns"]  # intensities, both sides powers of two: the world repeats
    grain: Float32[np.ndarray, "side side"]  # texture of the objects, around 0
    camera: Camera
    tracks: Tracks

    classes = CLASSES
    finer = 1

    @property
    def camera_moves(self) -> bool:
        return bool((self.camera.velocity != 0).any()) or len(self.camera.shakes) > 0

    def truth(self, t_us: Times) -> Truth:
        """Boxes and the rest at any times, in order; exact, but for `visible`, which is counted on a lattice (to about 0.03)."""
        t_us = check_times(t_us, self.duration_us)
        row, track, values = query(self.tracks, self.camera, t_us, self.width, self.height)
        return as_truth(t_us, row, track, values, np.array(CLASS_OF_KIND, np.int64)[self.tracks.kind])

    def labels(self, t_us: Times) -> Labels:
        return self.truth(t_us).labels()

    def pictures(self) -> Iterator[TimedImage]:
        renderer = Renderer(self)
        for time_us in steps(self):
            yield time_us, *renderer.draw(time_us)

    def intensity(self, time_us: int) -> IntensityImage:
        return Renderer(self).draw(time_us)[0]


class Renderer:
    """Pictures of a street at times that only go forward."""

    def __init__(self, street: Street) -> None:
        self.street = street
        self._image = np.zeros((street.height, street.width), np.float32)
        self._boxes = np.zeros((len(street.tracks.kind), 4))
        self._time_us: int | None = None

    def draw(self, time_us: int) -> tuple[IntensityImage, Rectangles]:
        """The picture (the same memory every time) and where it differs, perhaps, from the one before."""
        before = -1.0 if self._time_us is None else float(self._time_us)
        tracks, camera = self.street.tracks, self.street.camera
        rectangles = draw_changes(
            tracks, camera, self.street.background, self.street.grain, before, float(time_us), self._boxes, self._image
        )
        self._time_us = time_us
        return self._image, rectangles


def steps(street: Street) -> Iterator[int]:
    """Times from 0 to the end, so close that no edge moves more than half a pixel from one to the next."""
    time_us = 0
    while time_us < street.duration_us:
        yield time_us
        time_us += next_step(street.tracks, street.camera, float(time_us), street.width, street.height)
    yield street.duration_us
