"""SCENE: textures, camera and tracks as numbers, and what is true of them at any microsecond."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from saccade.simulate.motion import Camera
from saccade.simulate.shapes import CLASS_OF_KIND, CLASSES
from saccade.simulate.truth import query
from saccade.types import Boxes, Ids, InputError, Labels, Scores, Times

LEAST_VISIBLE = 0.15  # objects of which less is to be seen have no label ...
LEAST_SIDE = 3.0  # ... nor those whose box inside the image is narrower or lower than this, px


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
class Truth:
    """All that is known of the objects in the image, rows in the order of time and, at one time, of track."""

    t: Times
    boxes: Boxes  # of the silhouette inside the image, whether other objects hide parts of it or not
    classes: Ids
    tracks: Ids
    still_us: Times  # how long its image hasn't moved, neither by itself nor by the camera
    visible: Scores  # fraction of the silhouette inside the image and in front of the others
    speed_px_s: Scores  # of the object in the world; the camera's motion is not in it

    def labels(self) -> Labels:
        return Labels(self.t, self.boxes, self.classes, self.tracks, self.still_us, self.visible, self.speed_px_s)


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
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

    @property
    def camera_moves(self) -> bool:
        return bool((self.camera.velocity != 0).any()) or len(self.camera.shakes) > 0

    def truth(self, t_us: Times) -> Truth:
        """Boxes and the rest at any times, in order; exact, but for `visible`, which is counted on a lattice (to about 0.03)."""
        t_us = np.ascontiguousarray(t_us, np.int64)
        if len(t_us) and not (t_us.min() >= 0 and t_us.max() <= self.duration_us and (np.diff(t_us) >= 0).all()):
            raise InputError(f"Scene.truth: times must be in order and within 0 to {self.duration_us} us, got {t_us.min()} to {t_us.max()}")
        row, track, values = query(self.tracks, self.camera, t_us, self.width, self.height)
        sides = values[:, 2:4] - values[:, 0:2]
        kept = (values[:, 4] >= LEAST_VISIBLE) & (sides >= LEAST_SIDE).all(axis=1)
        row, track, values = row[kept], track[kept], values[kept]
        classes = np.array(CLASS_OF_KIND, np.int64)[self.tracks.kind[track]]
        return Truth(
            t_us[row],
            values[:, :4].astype(np.float32),
            classes,
            track,
            np.rint(values[:, 5]).astype(np.int64),
            values[:, 4].astype(np.float32),
            values[:, 6].astype(np.float32),
        )

    def labels(self, t_us: Times) -> Labels:
        return self.truth(t_us).labels()
