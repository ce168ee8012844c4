"""CAMERA + CUT-OUTS AT A TIME -> WHERE THEY ARE IN THE IMAGE: the geometry that drawing and labels of photographs share.

World coordinates are those of the image while the camera hasn't moved, in pixels of the labels ("canvas"); the image itself may be
`finer` times as fine.
"""

import math
from typing import NamedTuple

import numpy as np

from saccade.machine import compiled
from saccade.simulate.motion import camera_at, distance_at

NEAREST = 0.25  # smallest fraction of its first distance; only what is far below the image comes so near
HALF_STEP = 0.3  # of a cut-out's width: farther from its middle than this, a leg swings as a whole


class PhotoCamera(NamedTuple):
    """Pan x and y (px), roll (rad) and drive (of the distance to the nearest) as speeds, linear between knots; shakes as in `Camera`."""

    knot_us: np.ndarray  # (k,)
    velocity: np.ndarray  # (k, 4) per s
    offset: np.ndarray  # (k, 4) at the knots
    shakes: np.ndarray  # (m, 8)
    centre_x: float  # of the roll
    centre_y: float
    vanish_x: float  # the point that it drives to
    vanish_y: float
    far: float  # inverse distance of what isn't ground
    near: float  # inverse distance of the ground, per px below the vanishing point; 0 = all is equally far


class Movers(NamedTuple):
    """Cut-outs that move on their own, farthest first; one value each, n of them."""

    class_id: np.ndarray  # int64, -1 = distractor
    start_us: np.ndarray
    end_us: np.ndarray
    x: np.ndarray  # middle of its feet in the world at distance 0
    y: np.ndarray
    along_x: np.ndarray  # direction of travel, unit length or 0
    along_y: np.ndarray
    growth: np.ndarray  # size and place relative to the vanishing point grow by exp(growth * distance)
    vanish_x: np.ndarray
    vanish_y: np.ndarray
    follows: np.ndarray  # 1 = keeps its place in the image while the camera pans and drives: a car ahead, someone walked behind
    scale: np.ndarray  # px of the canvas per texel at distance 0
    phase: np.ndarray  # of the gait, rad at distance 0
    stride: np.ndarray  # rad per px of distance
    swing: np.ndarray  # how far feet swing apart, of the width
    lean: np.ndarray  # ... and both together
    bob: np.ndarray  # up and down, of the height
    sway: np.ndarray  # rad to the sides
    first_knot: np.ndarray  # (n + 1,) int64
    knot_us: np.ndarray  # (k,)
    speed: np.ndarray  # (k,) px/s
    distance: np.ndarray  # (k,) px
    rows: np.ndarray  # int64, of the texture
    columns: np.ndarray
    first_texel: np.ndarray  # (n,) int64
    texel: np.ndarray  # (texels, 2) float32: intensity, coverage
    first_row: np.ndarray  # (n,) int64, into the two below
    left: np.ndarray  # (rows,) outline: column at which the row's first texel begins, NaN if the row is empty
    right: np.ndarray
    top: np.ndarray  # (n,) row at which it begins ...
    bottom: np.ndarray  # ... and ends: on which it stands


class Fixtures(NamedTuple):
    """Objects of the photograph itself: convex outlines in the world."""

    class_id: np.ndarray  # (n,) int64
    first_point: np.ndarray  # (n + 1,) int64
    point: np.ndarray  # (points, 2)
    seen_us: np.ndarray  # (n,) when its image had first moved by a pixel: before, it made no events; inf = never


@compiled
def view_at(camera, time_us):
    """Pan x and y, cosine and sine of the roll, drive; and of the pan what is shaking."""
    x, y = camera_at(camera, time_us)
    shake_x = x - distance_at(camera.knot_us, camera.velocity[:, 0], camera.offset[:, 0], time_us)
    shake_y = y - distance_at(camera.knot_us, camera.velocity[:, 1], camera.offset[:, 1], time_us)
    roll = distance_at(camera.knot_us, camera.velocity[:, 2], camera.offset[:, 2], time_us)
    drive = distance_at(camera.knot_us, camera.velocity[:, 3], camera.offset[:, 3], time_us)
    return x, y, math.cos(roll), math.sin(roll), drive, shake_x, shake_y


@compiled
def to_image(camera, view, x, y):
    """World -> image, and how much larger it is there."""
    pan_x, pan_y, cosine, sine, drive = view[0], view[1], view[2], view[3], view[4]
    x, y = x - camera.vanish_x, y - camera.vanish_y
    larger = 1 / max(1 - drive * max(camera.far, camera.near * y), NEAREST)
    x, y = camera.vanish_x + x * larger - camera.centre_x, camera.vanish_y + y * larger - camera.centre_y
    return camera.centre_x + cosine * x - sine * y - pan_x, camera.centre_y + sine * x + cosine * y - pan_y, larger


@compiled
def to_world(camera, view, x, y):
    """Image -> world, the inverse."""
    pan_x, pan_y, cosine, sine, drive = view[0], view[1], view[2], view[3], view[4]
    x, y = x + pan_x - camera.centre_x, y + pan_y - camera.centre_y
    x, y = camera.centre_x + cosine * x + sine * y - camera.vanish_x, camera.centre_y - sine * x + cosine * y - camera.vanish_y
    smaller = 1 - drive * camera.far
    if camera.near > 0 and y * camera.near * smaller > camera.far:
        smaller = 1 / (1 + drive * camera.near * y)
    return camera.vanish_x + x * smaller, camera.vanish_y + y * smaller


@compiled
def is_there(movers, k, time_us):
    return movers.start_us[k] <= time_us < movers.end_us[k]


@compiled
def travelled(movers, k, time_us):
    first, end = movers.first_knot[k], movers.first_knot[k + 1]
    return distance_at(movers.knot_us[first:end], movers.speed[first:end], movers.distance[first:end], time_us)


@compiled
def pose_at(movers, camera, view, k, time_us):
    """Feet in the image (x, y), size times cosine and sine of the tilt, swing and lean in texels, bob in texels."""
    distance = travelled(movers, k, time_us)
    grown = math.exp(movers.growth[k] * distance)
    x = movers.x[k] + movers.along_x[k] * distance + (movers.x[k] - movers.vanish_x[k]) * (grown - 1)
    y = movers.y[k] + movers.along_y[k] * distance + (movers.y[k] - movers.vanish_y[k]) * (grown - 1)
    if movers.follows[k] > 0:
        view = (view[5], view[6], view[2], view[3], 0.0, view[5], view[6])
    x, y, larger = to_image(camera, view, x, y)
    size = movers.scale[k] * grown * larger
    phase = movers.phase[k] + movers.stride[k] * distance
    sway = movers.sway[k] * math.sin(phase)
    cosine = view[2] * math.cos(sway) - view[3] * math.sin(sway)
    sine = view[3] * math.cos(sway) + view[2] * math.sin(sway)
    swing, lean = movers.swing[k] * movers.columns[k] * math.sin(phase), movers.lean[k] * movers.columns[k] * math.cos(phase)
    return x, y, size * cosine, size * sine, swing, lean, movers.bob[k] * movers.rows[k] * math.sin(phase) ** 2


@compiled
def leg(movers, k, row):
    """0 above the hip, 1 at the feet."""
    hip = 0.52 * movers.bottom[k]
    return min(max((row - hip) / (movers.bottom[k] - hip), 0.0), 1.0)


@compiled
def texel_to_image(movers, k, pose, column, row):
    middle, below = 0.5 * movers.columns[k], leg(movers, k, row)
    side = min(max((column - middle) / (HALF_STEP * movers.columns[k]), -1.0), 1.0)
    x = column - middle + below * (pose[4] * side + pose[5])
    y = row - movers.bottom[k] - pose[6]
    return pose[0] + pose[2] * x - pose[3] * y, pose[1] + pose[3] * x + pose[2] * y


@compiled
def image_to_texel(movers, k, pose, x, y):
    """Column and row, the inverse."""
    squared = pose[2] * pose[2] + pose[3] * pose[3]
    x, y = x - pose[0], y - pose[1]
    x, y = (pose[2] * x + pose[3] * y) / squared, (pose[2] * y - pose[3] * x) / squared
    row = y + movers.bottom[k] + pose[6]
    below = leg(movers, k, row)
    x -= below * pose[5]
    half, apart = HALF_STEP * movers.columns[k], below * pose[4]
    if abs(x) >= half + apart:
        x -= apart if x > 0 else -apart
    else:
        x *= half / (half + apart)
    return x + 0.5 * movers.columns[k], row


@compiled
def _outline_row(movers, k, i):
    """Where line number i of the outline is: in the middle of its row, the first and the last one at the very edge."""
    if i + 1.5 > movers.bottom[k]:
        return movers.bottom[k]
    if i - 0.5 < movers.top[k]:
        return movers.top[k]
    return i + 0.5


@compiled
def mover_bounds(movers, k, pose):
    """Left, top, right, bottom of the outline in the image."""
    left, top, right, bottom = math.inf, math.inf, -math.inf, -math.inf
    first = movers.first_row[k]
    for i in range(movers.rows[k]):
        if math.isnan(movers.left[first + i]):
            continue
        row = _outline_row(movers, k, i)
        for column in (movers.left[first + i], movers.right[first + i]):
            x, y = texel_to_image(movers, k, pose, column, row)
            left, top, right, bottom = min(left, x), min(top, y), max(right, x), max(bottom, y)
    return left, top, right, bottom


@compiled
def _cut_line(x0, y0, x1, y1, width, height):
    """The part of a line inside the image as fractions of it; from > to if none is."""
    start, end = 0.0, 1.0
    for place, step, limit in ((x0, x1 - x0, width), (y0, y1 - y0, height)):
        if step == 0:
            if place < 0 or place > limit:
                return 1.0, 0.0
            continue
        one, other = -place / step, (limit - place) / step
        start, end = max(start, min(one, other)), min(end, max(one, other))
    return start, end


@compiled
def mover_bounds_inside(movers, k, pose, width, height):
    """The same for what lies inside the image: the lines of its outline, and its sides from line to line, are cut at the border."""
    left, top, right, bottom = math.inf, math.inf, -math.inf, -math.inf
    first = movers.first_row[k]
    above = (math.nan, math.nan, math.nan, math.nan)
    for i in range(movers.rows[k]):
        if math.isnan(movers.left[first + i]):
            above = (math.nan, math.nan, math.nan, math.nan)
            continue
        row = _outline_row(movers, k, i)
        x0, y0 = texel_to_image(movers, k, pose, movers.left[first + i], row)
        x1, y1 = texel_to_image(movers, k, pose, movers.right[first + i], row)
        for a, b, c, d in ((x0, y0, x1, y1), (above[0], above[1], x0, y0), (above[2], above[3], x1, y1)):
            if math.isnan(a):
                continue
            start, end = _cut_line(a, b, c, d, width, height)
            if start <= end:
                for part in (start, end):
                    x, y = a + part * (c - a), b + part * (d - b)
                    left, top, right, bottom = min(left, x), min(top, y), max(right, x), max(bottom, y)
        above = (x0, y0, x1, y1)
    return left, top, right, bottom


@compiled
def coverage(movers, k, column, row):
    """Between four texels; 0 outside."""
    column, row = column - 0.5, row - 0.5
    j, i = math.floor(column), math.floor(row)
    rows, columns = movers.rows[k], movers.columns[k]
    if j < 0 or i < 0 or j + 1 >= columns or i + 1 >= rows:
        return 0.0
    u, v = column - j, row - i
    at = movers.first_texel[k] + i * columns + j
    above = movers.texel[at, 1] * (1 - u) + movers.texel[at + 1, 1] * u
    below = movers.texel[at + columns, 1] * (1 - u) + movers.texel[at + columns + 1, 1] * u
    return above * (1 - v) + below * v


@compiled
def outline_at(fixtures, camera, view, n):
    """The points of one of the photograph's objects in the image."""
    first, end = fixtures.first_point[n], fixtures.first_point[n + 1]
    points = np.empty((end - first, 2))
    for i in range(end - first):
        points[i, 0], points[i, 1], _ = to_image(camera, view, fixtures.point[first + i, 0], fixtures.point[first + i, 1])
    return points


@compiled
def extent(points):
    left, top, right, bottom = math.inf, math.inf, -math.inf, -math.inf
    for i in range(len(points)):
        left, right = min(left, points[i, 0]), max(right, points[i, 0])
        top, bottom = min(top, points[i, 1]), max(bottom, points[i, 1])
    return left, top, right, bottom
