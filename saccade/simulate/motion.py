"""TIME -> DISTANCE of objects and cameras: speeds are linear between knots, so positions are exact, and what stands is exactly still."""

import math
from typing import NamedTuple

import numpy as np

from saccade.machine import compiled

FASTEST_PX_S = 350.0  # of a pan, at a width of 160
REACH = 0.3  # how far the camera turns away, as a fraction of the image


class Camera(NamedTuple):
    """How the image moves over the world: pans (one velocity per axis, linear between knots) and shakes (windows of swinging)."""

    knot_us: np.ndarray  # (k,) float64
    velocity: np.ndarray  # (k, 2) px/s
    offset: np.ndarray  # (k, 2) px, at the knots
    shakes: np.ndarray  # (m, 8): start_us, end_us, amplitude x y in px, angular frequency x y in 1/s, phase x y


def distance_at_knots(knot_us: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """The integral of speeds (one per knot, or one per knot and axis) from the first knot to each."""
    seconds = (np.diff(knot_us) * 1e-6).reshape(-1, *[1] * (speed.ndim - 1))
    return np.concatenate((np.zeros_like(speed[:1]), np.cumsum(seconds * (speed[1:] + speed[:-1]) / 2, axis=0)))


@compiled
def segment_at(knot_us, time_us):
    """The last knot at or before a time."""
    low, high = 0, len(knot_us) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if knot_us[middle] <= time_us:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def distance_at(knot_us, speed, distance, time_us):
    """The integral of the speed, px. After the last knot its speed goes on."""
    k = segment_at(knot_us, time_us)
    elapsed = (time_us - knot_us[k]) * 1e-6
    if k + 1 == len(knot_us):
        return distance[k] + speed[k] * elapsed
    length = (knot_us[k + 1] - knot_us[k]) * 1e-6
    return distance[k] + speed[k] * elapsed + (speed[k + 1] - speed[k]) * elapsed * elapsed / (2 * length)


@compiled
def speed_at(knot_us, speed, time_us):
    k = segment_at(knot_us, time_us)
    if k + 1 == len(knot_us):
        return speed[k]
    return speed[k] + (speed[k + 1] - speed[k]) * (time_us - knot_us[k]) / (knot_us[k + 1] - knot_us[k])


@compiled
def fastest(knot_us, speed, start_us, end_us):
    """The largest absolute speed in an interval: a function linear between knots has it at a knot or at an end."""
    most = max(abs(speed_at(knot_us, speed, start_us)), abs(speed_at(knot_us, speed, end_us)))
    k = segment_at(knot_us, start_us) + 1
    while k < len(knot_us) and knot_us[k] < end_us:
        most = max(most, abs(speed[k]))
        k += 1
    return most


@compiled
def last_moved(knot_us, speed, time_us):
    """When it last had a speed, up to `time_us`; `time_us` itself while it moves."""
    k = segment_at(knot_us, time_us)
    following = speed[k] if k + 1 == len(knot_us) else speed[k + 1]
    if speed[k] != 0 or following != 0:
        return time_us
    while k > 0 and speed[k - 1] == 0:
        k -= 1
    return knot_us[k]


@compiled
def camera_at(camera, time_us):
    """Offset of the image's left top corner in the world, px."""
    x = distance_at(camera.knot_us, camera.velocity[:, 0], camera.offset[:, 0], time_us)
    y = distance_at(camera.knot_us, camera.velocity[:, 1], camera.offset[:, 1], time_us)
    for i in range(len(camera.shakes)):
        start, end = camera.shakes[i, 0], camera.shakes[i, 1]
        if start < time_us < end:
            swell = math.sin(math.pi * (time_us - start) / (end - start)) ** 2  # begins and ends at rest
            elapsed = (time_us - start) * 1e-6
            x += swell * camera.shakes[i, 2] * math.sin(camera.shakes[i, 4] * elapsed + camera.shakes[i, 6])
            y += swell * camera.shakes[i, 3] * math.sin(camera.shakes[i, 5] * elapsed + camera.shakes[i, 7])
    return x, y


@compiled
def camera_fastest(camera, start_us, end_us):
    """An upper bound of the camera's speed in an interval, px/s; 0 only if it stands still."""
    x = fastest(camera.knot_us, camera.velocity[:, 0], start_us, end_us)
    y = fastest(camera.knot_us, camera.velocity[:, 1], start_us, end_us)
    most = math.sqrt(x * x + y * y)
    for i in range(len(camera.shakes)):
        start, end = camera.shakes[i, 0], camera.shakes[i, 1]
        if start < end_us and start_us < end:
            swelling = math.pi * 1e6 / (end - start)
            vx = camera.shakes[i, 2] * (camera.shakes[i, 4] + swelling)
            vy = camera.shakes[i, 3] * (camera.shakes[i, 5] + swelling)
            most += math.sqrt(vx * vx + vy * vy)
    return most


@compiled
def camera_last_moved(camera, time_us):
    """When the camera last moved, up to `time_us`; minus infinity if it never has."""
    latest = -math.inf
    for axis in range(camera.velocity.shape[1]):
        moved = last_moved(camera.knot_us, camera.velocity[:, axis], time_us)
        if moved > camera.knot_us[0] or camera.velocity[0, axis] != 0:
            latest = max(latest, moved)
    for i in range(len(camera.shakes)):
        if camera.shakes[i, 0] < time_us:
            latest = max(latest, min(camera.shakes[i, 1], time_us))
    return latest


def plan_camera(rng: np.random.Generator, width: int, height: int, duration_us: int, moves: bool) -> Camera:
    """Where the camera looks over time. One that doesn't move has one knot and no shakes."""
    if not moves:
        return Camera(np.zeros(1), np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((0, 8)))
    knots, velocities, shakes = [0.0], [(0.0, 0.0)], []
    place, time_us = np.zeros(2), 0.0
    while time_us < duration_us:
        length_us = float(np.rint(rng.uniform(0.4e6, 2.2e6)))
        if rng.random() < 0.6:
            shakes.append(shake(rng, width / 160, time_us, time_us + length_us))
        if rng.random() < 0.8:
            goal = rng.uniform(-1, 1, 2) * (REACH * width, 0.3 * REACH * height)
            ramp_us = float(np.rint(rng.uniform(0.05, 0.3) * length_us))
            velocity = (goal - place) / ((length_us - ramp_us) * 1e-6)
            velocity *= min(1.0, FASTEST_PX_S * width / 160 / max(np.hypot(*velocity), 1e-9))
            knots += [time_us + ramp_us, time_us + length_us - ramp_us, time_us + length_us]
            velocities += [tuple(velocity), tuple(velocity), (0.0, 0.0)]
            place = place + velocity * (length_us - ramp_us) * 1e-6
        time_us += length_us
        if rng.random() < 0.4:
            time_us += float(np.rint(rng.uniform(0.2e6, 1.5e6)))
        if knots[-1] < time_us:
            knots.append(time_us)
            velocities.append((0.0, 0.0))
    times, velocity = np.array(knots), np.array(velocities)
    return Camera(times, velocity, distance_at_knots(times, velocity), np.array(shakes).reshape(-1, 8))


def shake(rng: np.random.Generator, scale: float, start_us: float, end_us: float) -> tuple[float, ...]:
    """One row of `Camera.shakes`."""
    amplitude = np.exp(rng.uniform(np.log(0.3), np.log(3.0), 2)) * scale
    frequency = rng.uniform(1.5, 9.0, 2)
    amplitude *= np.minimum(1, 4 / frequency)
    return (start_us, end_us, *amplitude, *(2 * np.pi * frequency), *rng.uniform(0, 2 * np.pi, 2))
