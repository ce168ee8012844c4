"""STREET: a drawn scene: textures, camera and tracks as numbers, pictures and truth of them at any microsecond.

Pixels at edges are covered in part; where nothing moved since the last picture, nothing is drawn again.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from saccade.machine import compiled
from saccade.simulate.motion import Camera, camera_at, camera_fastest, camera_last_moved, fastest, last_moved
from saccade.simulate.shapes import (
    CAPSULE,
    CLASS_OF_KIND,
    CLASSES,
    GRAIN,
    GRAIN_X,
    GRAIN_Y,
    GROWTH,
    MOST_PARTS,
    PACE,
    PART,
    SHADE,
    SIZE,
    WIDEST,
)
from saccade.simulate.simulation import IntensityImage, Rectangles, TimedImage, Truth, as_truth, check_times
from saccade.simulate.truth import bounds, depth_inside, part_bounds, place_track, query, standing_at
from saccade.types import Times

LONGEST_STEP_US = 5_000
SHORTEST_STEP_US = 10  # never needed: nothing moves that fast, even on a sensor 4096 wide
FARTHEST_PX = 0.5  # that an edge moves in a step


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


@compiled
def next_step(tracks, camera, time_us, width, height):
    """Microseconds until something in the image may have moved half a pixel."""
    horizon_us = time_us + LONGEST_STEP_US
    camera_speed = camera_fastest(camera, time_us, horizon_us)
    speed = 0.0
    for k in range(len(tracks.kind)):
        if not (tracks.start_us[k] < horizon_us and time_us < tracks.end_us[k]):
            continue
        first, end = tracks.first_knot[k], tracks.first_knot[k + 1]
        own = fastest(tracks.knot_us[first:end], tracks.speed[first:end], time_us, horizon_us) * tracks.traits[k, PACE]
        if own <= speed:
            continue
        distance, centre_x, centre_y = standing_at(tracks, camera, k, time_us)
        size = tracks.traits[k, SIZE] * (1 + tracks.traits[k, GROWTH] * distance)
        reach = WIDEST * size + (own + camera_speed) * LONGEST_STEP_US * 1e-6 + 2
        if -reach < centre_x < width + reach and -reach < centre_y < height + reach:
            speed = own
    speed += camera_speed
    if speed * LONGEST_STEP_US * 1e-6 <= FARTHEST_PX:
        return LONGEST_STEP_US
    return max(int(FARTHEST_PX * 1e6 / speed), SHORTEST_STEP_US)


@compiled
def draw_changes(tracks, camera, background, grain, before_us, time_us, boxes, image):
    """Draw what may have changed since `before_us` (all if that is negative); keeps the boxes of all tracks; returns the rectangles."""
    height, width = image.shape
    count = len(tracks.kind)
    parts, numbers = np.zeros((count, MOST_PARTS, PART)), np.zeros(count, np.int64)
    rectangles = np.zeros((max(count, 1), 4), np.int64)
    everything = before_us < 0 or camera_last_moved(camera, time_us) > before_us
    n = 0
    for k in range(count):
        numbers[k] = place_track(tracks, camera, k, time_us, parts[k])
        old_left, old_top, old_right, old_bottom = boxes[k]
        if numbers[k] > 0:
            boxes[k, 0], boxes[k, 1], boxes[k, 2], boxes[k, 3] = bounds(parts[k], numbers[k])
        else:
            boxes[k] = 0.0
        if everything:
            continue
        first, end = tracks.first_knot[k], tracks.first_knot[k + 1]
        appears = (numbers[k] > 0) != (old_right > old_left)
        if not appears and (numbers[k] == 0 or last_moved(tracks.knot_us[first:end], tracks.speed[first:end], time_us) <= before_us):
            continue
        if old_right <= old_left:
            old_left, old_top, old_right, old_bottom = boxes[k]
        left, top, right, bottom = boxes[k]
        if numbers[k] == 0:
            left, top, right, bottom = old_left, old_top, old_right, old_bottom
        rectangles[n, 0] = max(0, math.floor(min(left, old_left) - 1))
        rectangles[n, 1] = max(0, math.floor(min(top, old_top) - 1))
        rectangles[n, 2] = min(width, math.ceil(max(right, old_right) + 1))
        rectangles[n, 3] = min(height, math.ceil(max(bottom, old_bottom) + 1))
        if rectangles[n, 0] < rectangles[n, 2] and rectangles[n, 1] < rectangles[n, 3]:
            n += 1
    if everything:
        rectangles[0, 0], rectangles[0, 1], rectangles[0, 2], rectangles[0, 3] = 0, 0, width, height
        n = 1
    shift_x, shift_y = camera_at(camera, time_us)
    for i in range(n):
        left, top, right, bottom = rectangles[i]
        _draw_background(background, shift_x, shift_y, left, top, right, bottom, image)
        for k in range(count):
            if numbers[k] > 0 and boxes[k, 0] < right + 1 and boxes[k, 2] > left - 1 and boxes[k, 1] < bottom + 1 and boxes[k, 3] > top - 1:
                _, x, y = standing_at(tracks, camera, k, time_us)
                _draw_object(parts[k], numbers[k], tracks.traits[k], x, y, grain, left, top, right, bottom, image)
    return rectangles[:n].copy()


@compiled
def _draw_background(background, shift_x, shift_y, left, top, right, bottom, image):
    """Between four texels; as the whole image is shifted, the weights are the same for all pixels."""
    last_row, last_column = background.shape[0] - 1, background.shape[1] - 1  # sides are powers of two: & wraps around
    whole_x, whole_y = math.floor(shift_x), math.floor(shift_y)
    part_x, part_y = np.float32(shift_x - whole_x), np.float32(shift_y - whole_y)
    one = np.float32(1)
    for y in range(top, bottom):
        upper, lower = background[(y + whole_y) & last_row], background[(y + whole_y + 1) & last_row]
        for x in range(left, right):
            u, v = (x + whole_x) & last_column, (x + whole_x + 1) & last_column
            above = upper[u] * (one - part_x) + upper[v] * part_x
            below = lower[u] * (one - part_x) + lower[v] * part_x
            image[y, x] = above * (one - part_y) + below * part_y


@compiled
def _draw_object(parts, number, traits, origin_x, origin_y, grain, left, top, right, bottom, image):
    """All parts, one over the other, inside a rectangle of the image."""
    last = grain.shape[0] - 1
    for n in range(number):
        part = parts[n]
        part_left, part_top, part_right, part_bottom = part_bounds(part)
        # What is thinner than a pixel covers none wholly
        thin = min(1.0, 2 * part[5]) if part[0] == CAPSULE else 1.0
        for y in range(max(top, math.floor(part_top - 0.5)), min(bottom, math.ceil(part_bottom + 0.5))):
            for x in range(max(left, math.floor(part_left - 0.5)), min(right, math.ceil(part_right + 0.5))):
                coverage = min(depth_inside(part, x + 0.5, y + 0.5) + 0.5, 1.0) * thin
                if coverage <= 0:
                    continue
                u, v = x - origin_x + traits[GRAIN_X], y - origin_y + traits[GRAIN_Y]
                whole_u, whole_v = math.floor(u), math.floor(v)
                u, v = u - whole_u, v - whole_v
                a, b = whole_u & last, (whole_u + 1) & last
                c, d = whole_v & last, (whole_v + 1) & last
                texture = (grain[c, a] * (1 - u) + grain[c, b] * u) * (1 - v) + (grain[d, a] * (1 - u) + grain[d, b] * u) * v
                shade = part[SHADE] * max(1 + traits[GRAIN] * texture, 0.2)
                image[y, x] += np.float32(coverage * (shade - image[y, x]))
