"""TRACKS + TIMES -> BOXES, visible fraction, speed and time since the last movement of each object.

Drawing uses the same geometry of parts, so boxes are exactly what is drawn.
"""

import math

import numpy as np

from saccade.machine import compiled
from saccade.simulate.motion import camera_at, camera_last_moved, distance_at, last_moved, speed_at
from saccade.simulate.shapes import ALONG_X, ALONG_Y, CAPSULE, MOST_PARTS, PART, QUADRILATERAL, X, Y, place

ARC = 40  # corners of a circle where it has to be cut
LATTICE = 20  # points per side of the box on which the visible fraction is counted


@compiled
def part_bounds(part):
    """Left, top, right, bottom of one part."""
    if part[0] == QUADRILATERAL:
        left, top, right, bottom = part[1], part[2], part[1], part[2]
        for i in range(1, 4):
            left, right = min(left, part[1 + 2 * i]), max(right, part[1 + 2 * i])
            top, bottom = min(top, part[2 + 2 * i]), max(bottom, part[2 + 2 * i])
        return left, top, right, bottom
    if part[0] == CAPSULE:
        radius = part[5]
        return (
            min(part[1], part[3]) - radius,
            min(part[2], part[4]) - radius,
            max(part[1], part[3]) + radius,
            max(part[2], part[4]) + radius,
        )
    radius = part[3] + part[4]
    return part[1] - radius, part[2] - radius, part[1] + radius, part[2] + radius


@compiled
def bounds(parts, number):
    """Left, top, right, bottom of all parts together."""
    left, top, right, bottom = part_bounds(parts[0])
    for n in range(1, number):
        part_left, part_top, part_right, part_bottom = part_bounds(parts[n])
        left, top = min(left, part_left), min(top, part_top)
        right, bottom = max(right, part_right), max(bottom, part_bottom)
    return left, top, right, bottom


@compiled
def _outline(part):
    """A convex polygon of the part's extent; a ring counts as its disc. Arcs have 40 corners, so lack 0.3 % of the radius."""
    if part[0] == QUADRILATERAL:
        return part[1:9].copy().reshape(4, 2)
    points = np.empty((ARC + 2, 2))
    if part[0] == CAPSULE:
        x0, y0, x1, y1, radius = part[1], part[2], part[3], part[4], part[5]
    else:
        x0, y0, x1, y1, radius = part[1], part[2], part[1], part[2], part[3] + part[4]
    start = math.atan2(y1 - y0, x1 - x0) + math.pi / 2
    for i in range(ARC // 2 + 1):
        turn = start + 2 * math.pi * i / ARC
        points[i, 0], points[i, 1] = x0 + radius * math.cos(turn), y0 + radius * math.sin(turn)
        points[ARC // 2 + 1 + i, 0], points[ARC // 2 + 1 + i, 1] = x1 - radius * math.cos(turn), y1 - radius * math.sin(turn)
    return points


@compiled
def cut_polygon(points, axis, limit, sign):
    """The polygon where sign * coordinate <= sign * limit."""
    kept = np.empty((2 * len(points), 2))
    n = 0
    for i in range(len(points)):
        here, there = points[i], points[(i + 1) % len(points)]
        over_here, over_there = sign * (here[axis] - limit), sign * (there[axis] - limit)
        if over_here <= 0:
            kept[n] = here
            n += 1
        if (over_here < 0 < over_there) or (over_there < 0 < over_here):
            kept[n] = here + (there - here) * (over_here / (over_here - over_there))
            n += 1
    return kept[:n].copy()


@compiled
def bounds_in_image(parts, number, width, height):
    """Left, top, right, bottom of what lies inside the image; left > right if nothing does."""
    box = (math.inf, math.inf, -math.inf, -math.inf)
    for n in range(number):
        left, top, right, bottom = part_bounds(parts[n])
        if right <= 0 or left >= width or bottom <= 0 or top >= height:
            continue
        if left < 0 or right > width or top < 0 or bottom > height:
            points = cut_polygon(cut_polygon(_outline(parts[n]), 0, 0.0, -1.0), 0, float(width), 1.0)
            points = cut_polygon(cut_polygon(points, 1, 0.0, -1.0), 1, float(height), 1.0)
            if len(points) == 0:
                continue
            left, right = max(points[:, 0].min(), 0.0), min(points[:, 0].max(), float(width))  # a cut is exact but for rounding
            top, bottom = max(points[:, 1].min(), 0.0), min(points[:, 1].max(), float(height))
        box = (min(box[0], left), min(box[1], top), max(box[2], right), max(box[3], bottom))
    return box


@compiled
def depth_inside(part, x, y):
    """How far a point lies inside a part, px; negative outside. Of a quadrilateral (convex, either way round): from its nearest side."""
    if part[0] == CAPSULE:
        along_x, along_y = part[3] - part[1], part[4] - part[2]
        length = along_x * along_x + along_y * along_y
        fraction = 0.0
        if length > 0:
            fraction = min(max(((x - part[1]) * along_x + (y - part[2]) * along_y) / length, 0.0), 1.0)
        return part[5] - math.sqrt((x - part[1] - fraction * along_x) ** 2 + (y - part[2] - fraction * along_y) ** 2)
    if part[0] == QUADRILATERAL:
        area = (part[5] - part[1]) * (part[8] - part[4]) - (part[6] - part[2]) * (part[7] - part[3])
        orientation = 1.0 if area > 0 else -1.0
        left, top, right, bottom = part_bounds(part)
        least = min(x - left, right - x, y - top, bottom - y)  # else an acute corner would reach out of its box
        for i in range(4):
            x0, y0 = part[1 + 2 * i], part[2 + 2 * i]
            j = (i + 1) % 4
            side_x, side_y = part[1 + 2 * j] - x0, part[2 + 2 * j] - y0
            side = math.sqrt(side_x * side_x + side_y * side_y)
            if side > 0:
                least = min(least, orientation * (side_x * (y - y0) - side_y * (x - x0)) / side)
        return least
    return part[4] - abs(math.sqrt((x - part[1]) ** 2 + (y - part[2]) ** 2) - part[3])


@compiled
def covers(parts, number, x, y):
    """Whether a point lies in the silhouette."""
    for n in range(number):  # noqa: SIM110 compiled: a loop is as clear, and any() isn't
        if depth_inside(parts[n], x, y) >= 0:
            return True
    return False


@compiled
def standing_at(tracks, camera, track, time_us):
    """How far a track has come, and the place on the ground where it stands, in pixels of the image."""
    first, end = tracks.first_knot[track], tracks.first_knot[track + 1]
    distance = distance_at(tracks.knot_us[first:end], tracks.speed[first:end], tracks.distance[first:end], time_us)
    x, y = camera_at(camera, time_us)
    traits = tracks.traits[track]
    return distance, traits[X] + traits[ALONG_X] * distance - x, traits[Y] + traits[ALONG_Y] * distance - y


@compiled
def place_track(tracks, camera, track, time_us, parts):
    """The parts of a track at a time, in pixels of the image; returns their number, 0 while it isn't there."""
    if not tracks.start_us[track] <= time_us < tracks.end_us[track]:
        return 0
    distance, x, y = standing_at(tracks, camera, track, time_us)
    return place(tracks.kind[track], tracks.traits[track], distance, x, y, parts)


@compiled
def _visible(parts, numbers, boxes, track, width, height):
    """Fraction of the lattice's points in the silhouette that lie inside the image and in no nearer silhouette."""
    left, top, right, bottom = boxes[track]
    covered = not (left >= 0 and top >= 0 and right <= width and bottom <= height)
    for nearer in range(track + 1, len(numbers)):
        if numbers[nearer] > 0 and boxes[nearer, 0] < right and boxes[nearer, 2] > left:
            covered = covered or (boxes[nearer, 1] < bottom and boxes[nearer, 3] > top)
    if not covered:
        return 1.0
    inside, seen = 0, 0
    for i in range(LATTICE):
        y = top + (i + 0.5) * (bottom - top) / LATTICE
        for j in range(LATTICE):
            x = left + (j + 0.5) * (right - left) / LATTICE
            if not covers(parts[track], numbers[track], x, y):
                continue
            inside += 1
            hidden = not (0 <= x < width and 0 <= y < height)
            for nearer in range(track + 1, len(numbers)):
                if hidden:
                    break
                if numbers[nearer] > 0 and boxes[nearer, 0] <= x <= boxes[nearer, 2] and boxes[nearer, 1] <= y <= boxes[nearer, 3]:
                    hidden = covers(parts[nearer], numbers[nearer], x, y)
            if not hidden:
                seen += 1
    return seen / max(inside, 1)


@compiled
def query(tracks, camera, times_us, width, height):
    """One row per object that touches the image: which time, which track, and left, top, right, bottom, visible, still_us, speed."""
    count = len(tracks.kind)
    parts, numbers, boxes = np.zeros((count, MOST_PARTS, PART)), np.zeros(count, np.int64), np.zeros((count, 4))
    most = len(times_us) * count
    row, track, values = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros((most, 7))
    n = 0
    for i in range(len(times_us)):
        time_us = float(times_us[i])
        for k in range(count):
            numbers[k] = place_track(tracks, camera, k, time_us, parts[k])
            if numbers[k] > 0:
                boxes[k, 0], boxes[k, 1], boxes[k, 2], boxes[k, 3] = bounds(parts[k], numbers[k])
        for k in range(count):
            if numbers[k] == 0 or boxes[k, 2] <= 0 or boxes[k, 0] >= width or boxes[k, 3] <= 0 or boxes[k, 1] >= height:
                continue
            row[n], track[n] = i, k
            values[n, 0], values[n, 1], values[n, 2], values[n, 3] = bounds_in_image(parts[k], numbers[k], width, height)
            values[n, 4] = _visible(parts, numbers, boxes, k, width, height)
            first, end = tracks.first_knot[k], tracks.first_knot[k + 1]
            moved = last_moved(tracks.knot_us[first:end], tracks.speed[first:end], time_us)
            values[n, 5] = time_us - max(moved, camera_last_moved(camera, time_us))
            values[n, 6] = abs(speed_at(tracks.knot_us[first:end], tracks.speed[first:end], time_us))
            n += 1
    return row[:n], track[:n], values[:n]
