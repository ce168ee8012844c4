"""SEED -> SCENE: who drives, walks and rides where, when they stop, and how the camera moves."""

import numpy as np

from saccade.simulate.camera import plan_camera
from saccade.simulate.routes import Route, plan_route
from saccade.simulate.shapes import SHADES, Y
from saccade.simulate.street import Street, Tracks
from saccade.simulate.texture import background, grain
from saccade.types import InputError

GENERATOR = 2  # raised whenever the same seed gives another scene
MOST_OBJECTS = 8
CALM = 0.38  # how likely it is that no further object comes
SMALLEST = 32  # px, sides of the sensor


def make_scene(seed: int, width: int = 160, height: int = 128, seconds: float = 8.0, *, camera_moves: bool | None = None) -> Street:
    """A street with one to eight objects at a time. The camera stands still for even seeds and moves for odd ones, unless stated."""
    if not (SMALLEST <= width <= 4096 and SMALLEST <= height <= 4096):
        raise InputError(f"scene: size {width}x{height} must be within {SMALLEST}x{SMALLEST} and 4096x4096")
    if not 0.05 <= seconds <= 3600 or seed < 0:
        raise InputError(f"scene: seconds={seconds} must be within 0.05 and 3600, seed={seed} 0 or more")
    rng = np.random.default_rng([GENERATOR, seed])
    duration_us = round(seconds * 1e6)
    horizon = rng.uniform(0.28, 0.42) * height
    brightness = np.exp(rng.uniform(np.log(0.25), 0))  # from dusk to day
    image = background(rng, width, height, horizon) * np.float32(brightness)
    camera = plan_camera(rng, width, height, duration_us, seed % 2 == 1 if camera_moves is None else camera_moves)
    margin = float(np.abs(camera.offset).max() + (camera.shakes[:, 2:4].sum(axis=0).max() if len(camera.shakes) else 0)) + 2
    routes: list[Route] = []
    for _ in range(min(1 + rng.geometric(CALM), MOST_OBJECTS)):  # seldom are all of them in the image
        start_us = 0.0
        while start_us < duration_us:
            routes.append(plan_route(rng, width, height, horizon, margin, start_us, duration_us))
            start_us = routes[-1].end_us + float(np.rint(rng.uniform(0.1e6, 1.2e6)))
    return Street(seed, width, height, duration_us, image, grain(rng), camera, _tracks(routes, float(brightness)))


def _tracks(routes: list[Route], brightness: float) -> Tracks:
    routes = sorted(routes, key=lambda route: route.traits[Y])  # the lower on the image, the nearer
    traits = np.array([route.traits for route in routes])
    traits[:, SHADES : SHADES + 6] *= brightness
    lengths = [len(route.knot_us) for route in routes]
    return Tracks(
        np.array([route.kind for route in routes], np.int64),
        traits,
        np.array([route.start_us for route in routes]),
        np.array([route.end_us for route in routes]),
        np.cumsum([0, *lengths]),
        np.concatenate([route.knot_us for route in routes]),
        np.concatenate([route.speed for route in routes]),
        np.concatenate([route.distance for route in routes]),
    )
