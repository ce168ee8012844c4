"""CAMERA + CUT-OUTS AT A TIME -> INTENSITIES AND BOXES: the compiled loops of `photo_scene`."""

import math

import numpy as np

from saccade.machine import compiled
from saccade.simulate.motion import camera_last_moved, last_moved, speed_at
from saccade.simulate.photo_motion import (
    HALF_STEP,
    coverage,
    extent,
    image_to_texel,
    is_there,
    mover_bounds,
    mover_bounds_inside,
    outline_at,
    pose_at,
    texel_to_image,
    to_image,
    to_world,
    travelled,
    view_at,
)
from saccade.simulate.truth import cut_polygon

LATTICE = 16  # points per side of the box on which the visible fraction is counted
LONGEST_STEP_US = 5_000
SHORTEST_STEP_US = 250
FARTHEST_PX = 0.7  # of the canvas that anything moves in a step, less on a finer sensor


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
    everything = before_us < 0 or camera_last_moved(camera, time_us) > before_us
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
    n = _merge(rectangles, n)
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
def _merge(rectangles, n):
    """Join rectangles that overlap, until none do: each pixel is then drawn once. Returns how many are left."""
    i = 0
    while i < n:
        joined = False
        for j in range(i + 1, n):
            a, b = rectangles[i], rectangles[j]
            if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
                a[0], a[1], a[2], a[3] = min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])
                rectangles[j] = rectangles[n - 1]
                n, joined = n - 1, True
                break
        i = 0 if joined else i + 1
    return n


@compiled
def _draw_background(camera, view, background, origin_x, origin_y, density, finer, left, top, right, bottom, image):
    """`to_world` of every pixel, between four texels; beyond the photograph its border goes on.

    Without branches inside the loops: what lies below the vanishing point is either ground, at an inverse distance that rises downwards,
    or as far as all else, whichever is nearer.
    """
    pan_x, pan_y, cosine, sine, drive = view[0], view[1], view[2], view[3], view[4]
    zero, one, pixels = np.float32(0), np.float32(1), np.float32(1 / finer)
    last_u, last_v = np.float32(background.shape[1] - 1.001), np.float32(background.shape[0] - 1.001)
    far, ground, density_of = np.float32(1 - drive * camera.far), np.float32(drive * camera.near), np.float32(density)
    along_u, along_v = np.float32(cosine) * pixels, np.float32(-sine) * pixels
    offset_u = np.float32((camera.vanish_x - origin_x) * density - 0.5)
    offset_v = np.float32((camera.vanish_y - origin_y) * density - 0.5)
    u_of, v_of = np.empty(right, np.float32), np.empty(right, np.float32)
    for y in range(top, bottom):
        x, down = 0.5 / finer + pan_x - camera.centre_x, (y + 0.5) / finer + pan_y - camera.centre_y
        first_u = np.float32(camera.centre_x + cosine * x + sine * down - camera.vanish_x)
        first_v = np.float32(camera.centre_y - sine * x + cosine * down - camera.vanish_y)
        if ground == 0:
            smaller = far * density_of
            for k in range(left, right):
                u_of[k] = (first_u + along_u * np.float32(k)) * smaller + offset_u
                v_of[k] = (first_v + along_v * np.float32(k)) * smaller + offset_v
        else:
            for k in range(left, right):
                v = first_v + along_v * np.float32(k)
                near = one / (one + ground * max(v, zero))
                smaller = (min(far, near) if ground > 0 else max(far, near)) * density_of
                u_of[k] = (first_u + along_u * np.float32(k)) * smaller + offset_u
                v_of[k] = v * smaller + offset_v
        for k in range(left, right):
            u, v = min(max(u_of[k], zero), last_u), min(max(v_of[k], zero), last_v)
            j, i = np.uint32(u), np.uint32(v)
            u, v = u - np.float32(np.int32(j)), v - np.float32(np.int32(i))
            next_j, next_i = j + np.uint32(1), i + np.uint32(1)
            above = background[i, j] + (background[i, next_j] - background[i, j]) * u
            below = background[next_i, j] + (background[next_i, next_j] - background[next_i, j]) * u
            image[y, k] = above + (below - above) * v


@compiled
def _inside_range(first, step, limit, left, right):
    """The pixels j of [left, right) with 0 <= first + step * j < limit, as a range."""
    if abs(step) < 1e-12:
        return (left, right) if 0 <= first < limit else (left, left)
    one, other = -first / step, (limit - first) / step
    start, end = math.ceil(max(min(one, other), left)), math.ceil(min(max(one, other), right))
    return (start, max(start, end))


@compiled
def _draw_mover(movers, k, pose, finer, left, top, right, bottom, image):
    """`image_to_texel` of every pixel, with what is the same for all of them, or for a row, taken out of the loop."""
    rows, columns = movers.rows[k], movers.columns[k]
    texel = movers.texel[movers.first_texel[k] : movers.first_texel[k] + rows * columns]
    squared = pose[2] * pose[2] + pose[3] * pose[3]
    along, across = pose[2] / squared, pose[3] / squared
    middle, foot = 0.5 * columns - 0.5, movers.bottom[k] + pose[6] - 0.5
    walks, one, zero = pose[4] != 0 or pose[5] != 0, np.float32(1), np.float32(0)
    hip, half_step = 0.52 * movers.bottom[k], np.float32(HALF_STEP * columns)
    legs_from, per_row = np.float32(hip - 0.5), np.float32(1 / (movers.bottom[k] - hip))
    swing, lean, centre = np.float32(pose[4]), np.float32(pose[5]), np.float32(middle)
    u_step, v_step = along / finer, -across / finer
    most_u, most_v, wide = np.float32(columns - 1), np.float32(rows - 1.001), np.uint32(columns)
    for y in range(top, bottom):
        down, first_x = (y + 0.5) / finer - pose[1], 0.5 / finer - pose[0]
        first_u, first_v = along * first_x + across * down + middle, along * down - across * first_x + foot
        start, end = _inside_range(first_v, v_step, rows - 1, left, right)
        reach = abs(pose[4]) + abs(pose[5]) if walks else 0.0
        start, end = _inside_range(first_u + reach, u_step, columns - 1 + 2 * reach, start, end)
        u_of, v_of, of_u, of_v = np.float32(first_u), np.float32(first_v), np.float32(u_step), np.float32(v_step)
        for x in range(start, end):
            u, v = u_of + of_u * np.float32(x), v_of + of_v * np.float32(x)
            if walks:
                below = min(max((v - legs_from) * per_row, zero), one)
                aside, apart = u - centre - below * lean, below * swing
                shift = apart if aside > zero else -apart
                aside = aside - shift if abs(aside) >= half_step + apart else aside * (half_step / (half_step + apart))
                u = aside + centre
            if u < zero or u >= most_u:
                continue
            v = min(max(v, zero), most_v)
            j, i = np.uint32(u), np.uint32(v)
            u, v = u - np.float32(np.int32(j)), v - np.float32(np.int32(i))
            at = i * wide + j
            low = at + wide
            a, b, c, d = (one - u) * (one - v), u * (one - v), (one - u) * v, u * v
            covered = a * texel[at, 1] + b * texel[at + np.uint32(1), 1] + c * texel[low, 1] + d * texel[low + np.uint32(1), 1]
            if covered > zero:
                shade = a * texel[at, 0] + b * texel[at + np.uint32(1), 0] + c * texel[low, 0] + d * texel[low + np.uint32(1), 0]
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
            left, top, right, bottom = extent(outline_at(fixtures, camera, view, n))
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
        view, view_moved = view_at(camera, time_us), camera_last_moved(camera, time_us)
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
            left, top, right, bottom = extent(points)
            if right <= 0 or left >= width or bottom <= 0 or top >= height:
                continue
            row[n], track[n] = i, count + k
            values[n, 4] = _visible(movers, poses, boxes, -1, points, (left, top, right, bottom), width, height)
            inside = cut_polygon(cut_polygon(points, 0, 0.0, -1.0), 0, float(width), 1.0)
            inside = cut_polygon(cut_polygon(inside, 1, 0.0, -1.0), 1, float(height), 1.0)
            if len(inside) == 0:
                continue
            values[n, 0], values[n, 1], values[n, 2], values[n, 3] = extent(inside)
            values[n, 5] = time_us - view_moved
            n += 1
    return row[:n], track[:n], values[:n]
