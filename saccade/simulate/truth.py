"""TRACKS + TIMES -> BOXES, how much of each is to be seen, how fast it is, and since when it stands still."""

import numpy as np

from saccade.machine import compiled
from saccade.simulate.motion import camera_at, camera_last_moved, distance_at, last_moved, speed_at
from saccade.simulate.shapes import ALONG_X, ALONG_Y, MOST_PARTS, PART, X, Y, place
from saccade.simulate.silhouette import bounds, bounds_in_image, covers

LATTICE = 20  # points per side of the box on which the visible fraction is counted


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
