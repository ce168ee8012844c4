"""RANDOM NUMBERS -> CAMERA: pans from place to place and shakes, with rests between."""

import numpy as np

from saccade.simulate.motion import Camera

FASTEST_PX_S = 350.0  # of a pan, at a width of 160
REACH = 0.3  # of the image: how far the camera turns away


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
    steps = np.diff(times)[:, None] * 1e-6 * (velocity[1:] + velocity[:-1]) / 2
    return Camera(times, velocity, np.concatenate((np.zeros((1, 2)), np.cumsum(steps, axis=0))), np.array(shakes).reshape(-1, 8))


def shake(rng: np.random.Generator, scale: float, start_us: float, end_us: float) -> tuple[float, ...]:
    amplitude = np.exp(rng.uniform(np.log(0.3), np.log(3.0), 2)) * scale
    frequency = rng.uniform(1.5, 9.0, 2)
    amplitude *= np.minimum(1, 4 / frequency)
    return (start_us, end_us, *amplitude, *(2 * np.pi * frequency), *rng.uniform(0, 2 * np.pi, 2))
