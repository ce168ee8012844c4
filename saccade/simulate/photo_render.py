"""CAMERA + CUT-OUTS AT A TIME -> INTENSITIES AND BOXES: the compiled half of `photo_scene`.

World coordinates are those of the image while the camera hasn't moved, in pixels of the labels ("canvas"); the image itself may be
`finer` times as fine.
"""

import math
from typing import NamedTuple

import numpy as np

from saccade.machine import compiled
from saccade.simulate.motion import camera_at, distance_at, last_moved, speed_at
from saccade.simulate.truth import cut_polygon

LATTICE = 16  # points per side of the box on which the visible fraction is counted
NEAREST = 0.25  # of its first distance: nothing comes nearer; only what is far below the image would
HALF_STEP = 0.3  # of a cut-out's width: so far from its middle a leg swings as a whole
LONGEST_STEP_US = 5_000
SHORTEST_STEP_US = 250
FARTHEST_PX = 0.7  # of the canvas that anything moves in a step, less on a finer sensor


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
    foot: np.ndarray  # row on which it stands
    first_texel: np.ndarray  # (n,) int64
    texel: np.ndarray  # (texels, 2) float32: intensity, coverage
    first_row: np.ndarray  # (n,) int64, into the two below
    left: np.ndarray  # (rows,) outline: column at which the row's first texel begins, NaN if the row is empty
    right: np.ndarray
    top: np.ndarray  # (n,) row at which it begins, and ends
    bottom: np.ndarray


class Fixtures(NamedTuple):
    """Objects of the photograph itself: convex outlines in the world."""

    class_id: np.ndarray  # (n,) int64
    first_point: np.ndarray  # (n + 1,) int64
    point: np.ndarray  # (points, 2)
    seen_us: np.ndarray  # (n,) since when its image has moved by a pixel: before, nobody could know of it; inf = never


@compiled
def view_at(camera, time_us):
    """Pan x and y, cosine and sine of the roll, drive."""
    x, y = camera_at(camera, time_us)
    roll = distance_at(camera.knot_us, camera.velocity[:, 2], camera.offset[:, 2], time_us)
    drive = distance_at(camera.knot_us, camera.velocity[:, 3], camera.offset[:, 3], time_us)
    return x, y, math.cos(roll), math.sin(roll), drive


@compiled
def view_last_moved(camera, time_us):
    """When the camera last moved, up to `time_us`; minus infinity if it never has."""
    latest = -math.inf
    for axis in range(4):
        moved = last_moved(camera.knot_us, camera.velocity[:, axis], time_us)
        if moved > camera.knot_us[0] or camera.velocity[0, axis] != 0:
            latest = max(latest, moved)
    for i in range(len(camera.shakes)):
        if camera.shakes[i, 0] < time_us:
            latest = max(latest, min(camera.shakes[i, 1], time_us))
    return latest


@compiled
def to_image(camera, view, x, y):
    """World -> image, and how much larger it is there."""
    pan_x, pan_y, cosine, sine, drive = view
    x, y = x - camera.vanish_x, y - camera.vanish_y
    larger = 1 / max(1 - drive * max(camera.far, camera.near * y), NEAREST)
    x, y = camera.vanish_x + x * larger - camera.centre_x, camera.vanish_y + y * larger - camera.centre_y
    return camera.centre_x + cosine * x - sine * y - pan_x, camera.centre_y + sine * x + cosine * y - pan_y, larger


@compiled
def to_world(camera, view, x, y):
    """Image -> world, the inverse."""
    pan_x, pan_y, cosine, sine, drive = view
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
    hip = 0.52 * movers.foot[k]
    return min(max((row - hip) / (movers.foot[k] - hip), 0.0), 1.0)


@compiled
def texel_to_image(movers, k, pose, column, row):
    middle, below = 0.5 * movers.columns[k], leg(movers, k, row)
    side = min(max((column - middle) / (HALF_STEP * movers.columns[k]), -1.0), 1.0)
    x = column - middle + below * (pose[4] * side + pose[5])
    y = row - movers.foot[k] - pose[6]
    return pose[0] + pose[2] * x - pose[3] * y, pose[1] + pose[3] * x + pose[2] * y


@compiled
def image_to_texel(movers, k, pose, x, y):
    """Column and row, the inverse."""
    squared = pose[2] * pose[2] + pose[3] * pose[3]
    x, y = x - pose[0], y - pose[1]
    x, y = (pose[2] * x + pose[3] * y) / squared, (pose[2] * y - pose[3] * x) / squared
    row = y + movers.foot[k] + pose[6]
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
    """The same for what lies inside the image: its outline is cut line by line."""
    left, top, right, bottom = math.inf, math.inf, -math.inf, -math.inf
    first = movers.first_row[k]
    for i in range(movers.rows[k]):
        if math.isnan(movers.left[first + i]):
            continue
        row = _outline_row(movers, k, i)
        x0, y0 = texel_to_image(movers, k, pose, movers.left[first + i], row)
        x1, y1 = texel_to_image(movers, k, pose, movers.right[first + i], row)
        start, end = _cut_line(x0, y0, x1, y1, width, height)
        if start <= end:
            for part in (start, end):
                x, y = x0 + part * (x1 - x0), y0 + part * (y1 - y0)
                left, top, right, bottom = min(left, x), min(top, y), max(right, x), max(bottom, y)
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
def _moved(before, after):
    return math.sqrt((before[0] - after[0]) ** 2 + (before[1] - after[1]) ** 2)


@compiled
def next_step(movers, camera, time_us, width, height, finer):
    """Microseconds until something in the image may have moved by FARTHEST_PX, judged by where it will be in 5 ms, and half-way."""
    here, fastest = view_at(camera, time_us), 0.0
    for part in (0.5, 1.0):
        later_us = time_us + part * LONGEST_STEP_US
        there = view_at(camera, later_us)
        if there != here:
            for i in range(3):
                for j in range(3):
                    x, y = to_world(camera, here, j * width / 2, i * height / 2)
                    fastest = max(fastest, _moved((j * width / 2, i * height / 2), to_image(camera, there, x, y)) / part)
        for k in range(len(movers.class_id)):
            if not (is_there(movers, k, time_us) and is_there(movers, k, later_us)):
                continue
            if there == here and travelled(movers, k, time_us) == travelled(movers, k, later_us):
                continue
            before, after = pose_at(movers, camera, here, k, time_us), pose_at(movers, camera, there, k, later_us)
            left, top, right, bottom = mover_bounds(movers, k, before)
            if left < width + 4 and right > -4 and top < height + 4 and bottom > -4:
                rows, columns = movers.rows[k], movers.columns[k]
                for column, row in ((0, 0), (columns, 0), (0, rows), (columns, rows)):
                    one, other = texel_to_image(movers, k, before, column, row), texel_to_image(movers, k, after, column, row)
                    fastest = max(fastest, _moved(one, other) / part)
    farthest = FARTHEST_PX / math.sqrt(finer)  # fine pixels see what the lens has blurred
    if fastest <= farthest:
        return LONGEST_STEP_US
    return max(int(LONGEST_STEP_US * farthest / fastest), SHORTEST_STEP_US)


@compiled
def draw_changes(movers, camera, background, origin_x, origin_y, density, before_us, time_us, finer, boxes, image):
    """Draw what may have changed since `before_us` (all if that is negative); keeps the boxes of all movers; returns the rectangles."""
    height, width = image.shape
    view, count = view_at(camera, time_us), len(movers.class_id)
    rectangles = np.zeros((max(count, 1), 4), np.int64)
    poses = np.zeros((count, 7))
    everything = before_us < 0 or view_last_moved(camera, time_us) > before_us
    n = 0
    for k in range(count):
        old_left, old_top, old_right, old_bottom = boxes[k]
        there = is_there(movers, k, time_us)
        first, end = movers.first_knot[k], movers.first_knot[k + 1]
        was = old_right > old_left
        moved = last_moved(movers.knot_us[first:end], movers.speed[first:end], time_us) > before_us
        if there:
            pose = pose_at(movers, camera, view, k, time_us)
            for i in range(7):
                poses[k, i] = pose[i]
            if everything or moved or not was:
                left, top, right, bottom = mover_bounds(movers, k, pose)
                soft = 3 * movers.scale[k] + 2  # the edge's softness is outside of the outline
                boxes[k, 0], boxes[k, 1], boxes[k, 2], boxes[k, 3] = left - soft, top - soft, right + soft, bottom + soft
        else:
            boxes[k] = 0.0
        if everything or (there == was and not (there and moved)):
            continue
        if not was:
            old_left, old_top, old_right, old_bottom = boxes[k]
        left, top, right, bottom = boxes[k]
        if not there:
            left, top, right, bottom = old_left, old_top, old_right, old_bottom
        rectangles[n, 0] = max(0, math.floor(min(left, old_left) * finer))
        rectangles[n, 1] = max(0, math.floor(min(top, old_top) * finer))
        rectangles[n, 2] = min(width, math.ceil(max(right, old_right) * finer))
        rectangles[n, 3] = min(height, math.ceil(max(bottom, old_bottom) * finer))
        if rectangles[n, 0] < rectangles[n, 2] and rectangles[n, 1] < rectangles[n, 3]:
            n += 1
    if everything:
        rectangles[0, 0], rectangles[0, 1], rectangles[0, 2], rectangles[0, 3] = 0, 0, width, height
        n = 1
    for i in range(n):
        left, top, right, bottom = rectangles[i]
        _draw_background(camera, view, background, origin_x, origin_y, density, finer, left, top, right, bottom, image)
        for k in range(count):
            if boxes[k, 2] > boxes[k, 0]:
                inner_left, inner_right = max(left, math.floor(boxes[k, 0] * finer)), min(right, math.ceil(boxes[k, 2] * finer))
                inner_top, inner_bottom = max(top, math.floor(boxes[k, 1] * finer)), min(bottom, math.ceil(boxes[k, 3] * finer))
                _draw_mover(movers, k, poses[k], finer, inner_left, inner_top, inner_right, inner_bottom, image)
    return rectangles[:n].copy()


@compiled
def _draw_background(camera, view, background, origin_x, origin_y, density, finer, left, top, right, bottom, image):
    """Between four texels; beyond the photograph its border goes on."""
    rows, columns = background.shape
    for y in range(top, bottom):
        for x in range(left, right):
            u, v = to_world(camera, view, (x + 0.5) / finer, (y + 0.5) / finer)
            u = min(max((u - origin_x) * density - 0.5, 0.0), columns - 1.001)
            v = min(max((v - origin_y) * density - 0.5, 0.0), rows - 1.001)
            j, i = int(u), int(v)
            u, v = np.float32(u - j), np.float32(v - i)
            above = background[i, j] + (background[i, j + 1] - background[i, j]) * u
            below = background[i + 1, j] + (background[i + 1, j + 1] - background[i + 1, j]) * u
            image[y, x] = above + (below - above) * v


@compiled
def _draw_mover(movers, k, pose, finer, left, top, right, bottom, image):
    rows, columns, first = movers.rows[k], movers.columns[k], movers.first_texel[k]
    for y in range(top, bottom):
        for x in range(left, right):
            u, v = image_to_texel(movers, k, pose, (x + 0.5) / finer, (y + 0.5) / finer)
            u, v = u - 0.5, v - 0.5
            j, i = math.floor(u), math.floor(v)
            if j < 0 or i < 0 or j + 1 >= columns or i + 1 >= rows:
                continue
            u, v = np.float32(u - j), np.float32(v - i)
            one, at = np.float32(1), first + i * columns + j
            texel, a, b, c, d = movers.texel, (one - u) * (one - v), u * (one - v), (one - u) * v, u * v
            covered = a * texel[at, 1] + b * texel[at + 1, 1] + c * texel[at + columns, 1] + d * texel[at + columns + 1, 1]
            if covered > 0:
                shade = a * texel[at, 0] + b * texel[at + 1, 0] + c * texel[at + columns, 0] + d * texel[at + columns + 1, 0]
                image[y, x] += covered * (shade - image[y, x])


@compiled
def _hidden(movers, poses, boxes, nearer, x, y):
    """Whether one of the movers from number `nearer` on covers a point."""
    for k in range(nearer, len(movers.class_id)):
        if boxes[k, 0] <= x <= boxes[k, 2] and boxes[k, 1] <= y <= boxes[k, 3]:
            column, row = image_to_texel(movers, k, poses[k], x, y)
            if coverage(movers, k, column, row) >= 0.5:
                return True
    return False


@compiled
def _inside(points, x, y):
    """Whether a point lies in a polygon: a ray to the right crosses its sides an odd number of times."""
    odd = False
    for i in range(len(points)):
        x0, y0 = points[i]
        x1, y1 = points[i - 1]
        if (y0 > y) != (y1 > y) and x < (x1 - x0) * (y - y0) / (y1 - y0) + x0:
            odd = not odd
    return odd


@compiled
def _visible(movers, poses, boxes, track, points, box, width, height):
    """Fraction of an outline inside the image and not covered. `track` is a mover's number, -1 for one of the photograph's own objects."""
    left, top, right, bottom = box
    covered = not (left >= 0 and top >= 0 and right <= width and bottom <= height)
    for k in range(track + 1, len(movers.class_id)):
        if boxes[k, 0] < right and boxes[k, 2] > left and boxes[k, 1] < bottom and boxes[k, 3] > top:
            covered = True
    if not covered:
        return 1.0
    whole, seen = 0, 0
    for i in range(LATTICE):
        y = top + (i + 0.5) * (bottom - top) / LATTICE
        for j in range(LATTICE):
            x = left + (j + 0.5) * (right - left) / LATTICE
            if track >= 0:
                column, row = image_to_texel(movers, track, poses[track], x, y)
                if coverage(movers, track, column, row) < 0.5:
                    continue
            elif not _inside(points, x, y):
                continue
            whole += 1
            if 0 <= x < width and 0 <= y < height and not _hidden(movers, poses, boxes, track + 1, x, y):
                seen += 1
    return seen / max(whole, 1)


@compiled
def outline_at(fixtures, camera, view, n):
    """The points of one of the photograph's objects in the image."""
    first, end = fixtures.first_point[n], fixtures.first_point[n + 1]
    points = np.empty((end - first, 2))
    for i in range(end - first):
        points[i, 0], points[i, 1], _ = to_image(camera, view, fixtures.point[first + i, 0], fixtures.point[first + i, 1])
    return points


@compiled
def _extent(points):
    left, top, right, bottom = math.inf, math.inf, -math.inf, -math.inf
    for i in range(len(points)):
        left, right = min(left, points[i, 0]), max(right, points[i, 0])
        top, bottom = min(top, points[i, 1]), max(bottom, points[i, 1])
    return left, top, right, bottom


@compiled
def first_seen(fixtures, camera, duration_us, width, height, step_us):
    """When each of the photograph's objects has moved a pixel in the image while at least a quarter of its box was inside."""
    count = len(fixtures.class_id)
    seen, way = np.full(count, math.inf), np.zeros(count)
    old = np.zeros((count, 4))
    for step in range(int(duration_us // step_us) + 1):
        view = view_at(camera, float(step * step_us))
        for n in range(count):
            if seen[n] < math.inf:
                continue
            left, top, right, bottom = _extent(outline_at(fixtures, camera, view, n))
            inside = max(0.0, min(right, width) - max(left, 0.0)) * max(0.0, min(bottom, height) - max(top, 0.0))
            if step > 0 and inside >= 0.25 * (right - left) * (bottom - top):
                way[n] += max(abs(left - old[n, 0]), abs(top - old[n, 1]), abs(right - old[n, 2]), abs(bottom - old[n, 3]))
                if way[n] >= 1.0:
                    seen[n] = step * step_us
            old[n, 0], old[n, 1], old[n, 2], old[n, 3] = left, top, right, bottom
    return seen


@compiled
def query(movers, fixtures, camera, times_us, width, height):
    """One row per object that touches the image: which time, which track, and left, top, right, bottom, visible, still_us, speed.

    Tracks are movers first, then the photograph's own objects.
    """
    count, fixed = len(movers.class_id), len(fixtures.class_id)
    most = len(times_us) * (count + fixed)
    row, track, values = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros((most, 7))
    poses, boxes, no_points = np.zeros((count, 7)), np.zeros((count, 4)), np.zeros((0, 2))
    n = 0
    for i in range(len(times_us)):
        time_us = float(times_us[i])
        view, view_moved = view_at(camera, time_us), view_last_moved(camera, time_us)
        for k in range(count):
            boxes[k] = 0.0
            if is_there(movers, k, time_us):
                pose = pose_at(movers, camera, view, k, time_us)
                for j in range(7):
                    poses[k, j] = pose[j]
                boxes[k, 0], boxes[k, 1], boxes[k, 2], boxes[k, 3] = mover_bounds(movers, k, pose)
        for k in range(count):
            left, top, right, bottom = boxes[k]
            if movers.class_id[k] < 0 or right <= left or right <= 0 or left >= width or bottom <= 0 or top >= height:
                continue
            box = mover_bounds_inside(movers, k, poses[k], width, height)
            row[n], track[n] = i, k
            values[n, 0], values[n, 1], values[n, 2], values[n, 3] = box
            values[n, 4] = _visible(movers, poses, boxes, k, no_points, (left, top, right, bottom), width, height)
            first, end = movers.first_knot[k], movers.first_knot[k + 1]
            moved = last_moved(movers.knot_us[first:end], movers.speed[first:end], time_us)
            values[n, 5] = time_us - max(moved, view_moved)
            speed = abs(speed_at(movers.knot_us[first:end], movers.speed[first:end], time_us))
            reach = abs(movers.growth[k]) * max(right - left, bottom - top)  # an edge moves with the growth, too
            values[n, 6] = speed * (math.sqrt(movers.along_x[k] ** 2 + movers.along_y[k] ** 2) + reach)
            n += 1
        for k in range(fixed):
            if fixtures.seen_us[k] > time_us:
                continue
            points = outline_at(fixtures, camera, view, k)
            left, top, right, bottom = _extent(points)
            if right <= 0 or left >= width or bottom <= 0 or top >= height:
                continue
            row[n], track[n] = i, count + k
            values[n, 4] = _visible(movers, poses, boxes, -1, points, (left, top, right, bottom), width, height)
            inside = cut_polygon(cut_polygon(points, 0, 0.0, -1.0), 0, float(width), 1.0)
            inside = cut_polygon(cut_polygon(inside, 1, 0.0, -1.0), 1, float(height), 1.0)
            if len(inside) == 0:
                continue
            values[n, 0], values[n, 1], values[n, 2], values[n, 3] = _extent(inside)
            values[n, 5] = time_us - view_moved
            n += 1
    return row[:n], track[:n], values[:n]
