"""Make saccade/samples/street.h5, the recording that comes with saccade: a car that stops, a cyclist and a pedestrian before a wall.

    python examples/make_sample.py

A contrast-threshold camera looks at a scene drawn from formulas; the same script gives the same events,
but for a few that depend on the last digit of a logarithm.
"""

from pathlib import Path

import numpy as np

from saccade.events.write import write_events
from saccade.types import Events

WIDTH, HEIGHT = 160, 128
STEP_US, STEPS = 500, 5000
CONTRAST = 0.22  # log intensity between two events of a pixel
NOISE_HZ = 0.4  # events a pixel and second without a cause
OUT = Path(__file__).parents[1] / "saccade" / "samples" / "street.h5"

COLUMNS, ROWS = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """Coverage of each pixel by a rectangle, 0 to 1."""
    across = np.clip(np.minimum(COLUMNS - left, right - COLUMNS) + 0.5, 0, 1)
    return across * np.clip(np.minimum(ROWS - top, bottom - ROWS) + 0.5, 0, 1)


def disc(x: float, y: float, radius: float) -> np.ndarray:
    return np.clip(radius - np.hypot(COLUMNS - x, ROWS - y) + 0.5, 0, 1)


def wheel(x: float, y: float, radius: float, turn: float) -> np.ndarray:
    """A disc with four spokes, so that it makes events where it turns."""
    angle = np.arctan2(ROWS - y, COLUMNS - x)
    return disc(x, y, radius) * (0.75 + 0.25 * np.cos(4 * (angle - turn)))


def car(image: np.ndarray, x: float, y: float) -> np.ndarray:
    body = np.maximum(box(x - 26, y - 12, x + 26, y), box(x - 15, y - 22, x + 13, y - 11))
    image = image * (1 - body) + 0.75 * body
    windows = np.maximum(box(x - 12, y - 20, x - 2, y - 13), box(x + 1, y - 20, x + 10, y - 13))
    image = image * (1 - windows) + 0.2 * windows
    for hub in (x - 16, x + 16):
        tyre = wheel(hub, y, 6, x / 6)
        image = image * (1 - disc(hub, y, 6)) + 0.15 * tyre
    return image


def cyclist(image: np.ndarray, x: float, y: float) -> np.ndarray:
    rider = np.maximum.reduce([disc(x + 2, y - 25, 3.2), box(x - 3, y - 22, x + 2, y - 10), box(x - 7, y - 9, x + 7, y - 7)])
    image = image * (1 - rider) + 0.9 * rider
    for hub in (x - 8, x + 8):
        ring = disc(hub, y - 3, 6) * (1 - disc(hub, y - 3, 4.5))
        image = image * (1 - ring) + 0.1 * ring
    return image


def pedestrian(image: np.ndarray, x: float, y: float) -> np.ndarray:
    swing = 4 * np.sin(x / 3)
    legs = np.maximum(box(x - 2 + swing, y - 10, x + swing, y), box(x - swing, y - 10, x + 2 - swing, y))
    walker = np.maximum.reduce([disc(x, y - 26, 3), box(x - 3, y - 23, x + 3, y - 10), legs])
    return image * (1 - walker) + 0.1 * walker


def scene(seconds: float, wall: np.ndarray) -> np.ndarray:
    """Linear intensity of every pixel. The car brakes to a stop at 1.2 s and drives on at 1.8 s."""
    image = pedestrian(wall, 30 + 22 * seconds, 82)
    driven = min(seconds, 1.2) + max(seconds - 1.8, 0.0)
    image = car(image, 20 + 62 * driven, 108)
    return cyclist(image, 150 - 55 * seconds, 120)


def record(seed: int = 0, steps: int = STEPS) -> Events:
    random = np.random.default_rng(seed)
    bricks = 0.4 + 0.12 * ((COLUMNS // 12 + (ROWS // 6) % 2 * 0.5) % 2 > 1) * (ROWS % 6 > 1)
    wall = np.where(ROWS < 86, bricks, 0.3) + random.normal(0, 0.01, COLUMNS.shape)
    threshold = CONTRAST * np.exp(random.normal(0, 0.05, COLUMNS.shape))
    level = np.log(scene(0.0, wall))
    parts = []
    for step in range(1, steps + 1):
        change = (np.log(scene(step * STEP_US * 1e-6, wall)) - level) / threshold
        count = np.trunc(change).astype(int)
        level += count * threshold
        for k in range(1, int(np.abs(count).max()) + 1):
            y, x = np.nonzero(np.abs(count) >= k)
            share = k / np.maximum(np.abs(change[y, x]), k)  # of the step, until the k-th threshold is crossed
            parts.append((step * STEP_US - STEP_US + (share * (STEP_US - 1)).astype(int), x, y, count[y, x] > 0))
        noisy = random.poisson(NOISE_HZ * WIDTH * HEIGHT * STEP_US * 1e-6)
        times = (step - 1) * STEP_US + random.integers(0, STEP_US, noisy)
        parts.append((times, random.integers(0, WIDTH, noisy), random.integers(0, HEIGHT, noisy), random.random(noisy) < 0.5))
    t, x, y, p = (np.concatenate([part[column] for part in parts]) for column in range(4))
    order = np.argsort(t, kind="stable")
    return Events(t[order], x[order].astype(np.uint16), y[order].astype(np.uint16), p[order].astype(np.bool_), WIDTH, HEIGHT)


if __name__ == "__main__":
    write_events([record()], OUT, overwrite=True)
