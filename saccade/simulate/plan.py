"""SEED -> SCENE: who drives, walks and rides where, when they stop, how the camera moves, and what the street looks like."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from saccade.simulate import shapes
from saccade.simulate.motion import distance_at_knots, plan_camera
from saccade.simulate.simulation import check_scene
from saccade.simulate.street import Street, Tracks

Texture = Float32[np.ndarray, "rows columns"]

GENERATOR = 2  # raised whenever the same seed gives another scene
MOST_OBJECTS = 8
CALM = 0.38  # probability that no further object is added
SOFTNESS_PX = 0.6  # as a lens blurs: a texture sharper than its pixels would flicker when it moves by parts of a pixel

# Per silhouette: probability; height of an object on the lowest line of the image, of the part of the image below the horizon;
# slowest and fastest in px/s at a width of 160
KINDS = {
    shapes.CAR: (0.31, 0.50, 5.0, 500.0),
    shapes.PEDESTRIAN: (0.30, 0.80, 6.0, 90.0),
    shapes.BICYCLE: (0.20, 0.72, 8.0, 250.0),
    shapes.CAR_BEHIND: (0.06, 0.62, 3.0, 60.0),
    shapes.MOTORCYCLE: (0.13, 0.66, 8.0, 400.0),
}
STOPS = 0.8  # probability that a leg ends in a stop
STOP_US = (0.2e6, 4e6)
SHORTEST_LEG = 0.02  # of the width: before its first stop an object has moved enough to make events at all its edges


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    kind: int
    traits: np.ndarray
    start_us: float
    end_us: float
    knot_us: np.ndarray
    speed: np.ndarray
    distance: np.ndarray


def make_scene(seed: int, width: int = 160, height: int = 128, seconds: float = 8.0, *, camera_moves: bool | None = None) -> Street:
    """A street with one to eight objects at a time. The camera stands still for even seeds and moves for odd ones, unless stated."""
    check_scene(seed, width, height, seconds)
    rng = np.random.default_rng([GENERATOR, seed])
    duration_us = round(seconds * 1e6)
    horizon = rng.uniform(0.28, 0.42) * height
    brightness = np.exp(rng.uniform(np.log(0.25), 0))  # from dusk to day
    image = background(rng, width, height, horizon) * np.float32(brightness)
    camera = plan_camera(rng, width, height, duration_us, seed % 2 == 1 if camera_moves is None else camera_moves)
    margin = float(np.abs(camera.offset).max() + (camera.shakes[:, 2:4].sum(axis=0).max() if len(camera.shakes) else 0)) + 2
    routes: list[Route] = []
    for _ in range(min(1 + rng.geometric(CALM), MOST_OBJECTS)):  # they are rarely all in the image
        start_us = 0.0
        while start_us < duration_us:
            routes.append(plan_route(rng, width, height, horizon, margin, start_us, duration_us))
            start_us = routes[-1].end_us + float(np.rint(rng.uniform(0.1e6, 1.2e6)))
    return Street(seed, width, height, duration_us, image, grain(rng), camera, _tracks(routes, float(brightness)))


def _tracks(routes: list[Route], brightness: float) -> Tracks:
    routes = sorted(routes, key=lambda route: route.traits[shapes.Y])  # the lower on the image, the nearer
    traits = np.array([route.traits for route in routes])
    traits[:, shapes.SHADES] *= brightness
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


def plan_route(
    rng: np.random.Generator, width: int, height: int, horizon: float, margin: float, start_us: float, duration_us: int
) -> Route:
    """One object from `start_us` until it has left or the recording ends. The first ones of a recording may be in the image already."""
    kinds = list(KINDS)
    kind = int(rng.choice(kinds, p=[KINDS[k][0] for k in kinds]))
    if start_us > 0 and kind == shapes.CAR_BEHIND:
        kind = shapes.CAR  # it can't enter from the side, and must not appear from nowhere
    _, high, slowest, fastest = KINDS[kind]
    below = rng.uniform(0.35, 1.05) * (height - horizon)  # from the horizon to the ground under the object
    size = below * high * rng.uniform(0.8, 1.2)
    facing = 1.0 if rng.random() < 0.5 else -1.0
    traits = np.zeros(shapes.TRAITS)
    traits[shapes.Y], traits[shapes.SIZE], traits[shapes.FACING] = horizon + below, size, facing
    inside = start_us == 0 and rng.random() < 0.85
    if kind == shapes.CAR_BEHIND:
        traits[shapes.X], traits[shapes.ALONG_Y] = rng.uniform(0.15, 0.85) * width, 1.0
        limits = (-0.3 * below, 0.45 * below)
    else:
        outside = 1.4 * shapes.WIDEST * size + margin  # so far beyond the border nothing of it is visible
        entry = rng.uniform(0.05, 0.95) * width + outside if inside else 0.0
        limits = (0.0, width + 2 * outside - entry)
        traits[shapes.X] = entry - outside if facing > 0 else width + outside - entry
        slant = rng.uniform(-0.4, 0.4) * below / limits[1] if rng.random() < 0.5 else 0.0
        traits[shapes.ALONG_X], traits[shapes.ALONG_Y] = facing * np.cos(slant), np.sin(slant)
    traits[shapes.GROWTH] = traits[shapes.ALONG_Y] / below  # perspective: size is proportional to the distance below the horizon
    _set_looks(rng, traits)
    largest = size * (1 + abs(traits[shapes.GROWTH]) * max(abs(limits[0]), abs(limits[1])))
    traits[shapes.PACE] = shapes.PACES[kind] * largest / size + shapes.WIDEST * size * abs(traits[shapes.GROWTH])
    pace = slowest * (fastest / slowest) ** rng.beta(1.5, 1.5) * width / 160  # the slowest and the fastest are rare
    times, speeds = legs(rng, pace, width, limits, start_us, duration_us, kind == shapes.CAR_BEHIND)
    return Route(kind, traits, start_us, float(times[-1]), times, speeds, distance_at_knots(times, speeds))


def legs(
    rng: np.random.Generator,
    pace: float,
    width: int,
    limits: tuple[float, float],
    start_us: float,
    duration_us: int,
    returns: bool,
    *,
    stops: float = STOPS,
    stop_us: tuple[float, float] = STOP_US,
    leg_s: tuple[float, float] = (0.15, 1.2),
) -> tuple[np.ndarray, np.ndarray]:
    """Knots of the speed: legs of going and stops between, until the farthest distance or the end. It begins in motion: what has never
    moved has made no events and can't be detected."""
    times, speeds, travelled = [start_us], [pace], 0.0
    time_us, direction = start_us, 1.0
    while time_us < duration_us and (returns or travelled < limits[1]):
        speed = pace * rng.uniform(0.6, 1.0) if len(times) > 1 else pace
        ramp_s = rng.uniform(0.05, 0.3)
        length = min(speed * np.exp(rng.uniform(np.log(leg_s[0]), np.log(leg_s[1]))), rng.uniform(0.1, 0.6) * width)
        length = max(length, SHORTEST_LEG * width)
        if returns:
            room = limits[1] - travelled if direction > 0 else travelled - limits[0]
            length = min(length, room * rng.uniform(0.2, 0.9))
            ramp_s = min(ramp_s, 0.8 * length / speed)
        elif limits[1] - travelled < length or rng.random() > stops:
            length = limits[1] - travelled + 1.0  # it leaves without another stop
        if len(times) > 1:
            time_us += ramp_s * 1e6
            times.append(time_us)
            speeds.append(direction * speed)
        cruise_s = length / speed
        time_us += cruise_s * 1e6
        times += [time_us, time_us + ramp_s * 1e6]
        speeds += [direction * speed, 0.0]
        travelled += direction * (length + speed * ramp_s * (1.0 if len(times) > 3 else 0.5))
        time_us += ramp_s * 1e6
        if returns or travelled < limits[1]:
            time_us += rng.uniform(*stop_us)
            times.append(time_us)
            speeds.append(0.0)
        if returns:
            direction = 1.0 if travelled < (limits[0] + limits[1]) / 2 else -1.0
    return np.rint(times), np.array(speeds)


def _set_looks(rng: np.random.Generator, traits: np.ndarray) -> None:
    """Intensities that differ from part to part, phase of the gait, form, grain."""
    body, second = rng.uniform(0.06, 0.95), rng.uniform(0.05, 0.8)
    if abs(np.log(body / second)) < 0.5:
        second = body * 0.35 if body > 0.4 else min(0.95, body * 2.5)
    shades = [body, second, rng.uniform(0.1, 0.95), rng.uniform(0.04, 0.1), rng.uniform(0.55, 1.0), rng.uniform(0.2, 0.8)]
    traits[shapes.SHADES] = shades
    traits[shapes.PHASE] = rng.uniform(0, 2 * np.pi)
    traits[shapes.FORM], traits[shapes.DETAIL] = rng.random(2)
    traits[shapes.GRAIN_X], traits[shapes.GRAIN_Y] = rng.uniform(0, 64, 2)
    traits[shapes.GRAIN] = rng.uniform(0.03, 0.15)


def background(rng: np.random.Generator, width: int, height: int, horizon: float) -> Texture:
    """Intensities in [0.04, 1]: sky, buildings with windows, road with marks, poles, and noise on all scales."""
    rows, columns = _power_of_two(height * 1.5), _power_of_two(width * 1.5)
    image = np.empty((rows, columns))
    line = int(horizon)
    image[:line] = rng.uniform(0.45, 0.9)
    image[line:] = rng.uniform(0.15, 0.45)
    image[rows - (rows - height) // 2 :] = image[0, 0]  # above the top, where the texture repeats, is sky again
    for _ in range(rng.integers(4, 12)):
        _building(image, rng, line, width)
    for _ in range(rng.integers(2, 10)):  # marks and kerbs
        y, thickness = rng.integers(line, height + 8), rng.integers(1, 4)
        shade, period, duty = rng.uniform(0.1, 0.95), rng.integers(16, 60), rng.uniform(0.3, 1.2)
        across = (np.arange(columns) + rng.integers(period)) % period < duty * period
        image[y : y + thickness, across] = shade
    for _ in range(rng.integers(2, 8)):  # poles and trunks
        x, thickness = rng.integers(columns), rng.integers(1, 5)
        image[max(0, line - rng.integers(10, 60)) : line + rng.integers(2, 16), x : x + thickness] = rng.uniform(0.05, 0.6)
    noise = _noise(rng, rows, columns, 1.1)
    image *= np.exp(rng.uniform(0.04, 0.2) * noise)
    return np.clip(_soften(image, SOFTNESS_PX), 0.04, 1).astype(np.float32)


def grain(rng: np.random.Generator) -> Texture:
    """Noise around 0 of unit deviation, a little smoother than white."""
    return _soften(_noise(rng, 64, 64, 0.7), 0.8).astype(np.float32)


def _building(image: np.ndarray, rng: np.random.Generator, line: int, width: int) -> None:
    columns = image.shape[1]
    left, wide, high = rng.integers(columns), rng.integers(width // 10 + 2, width // 2 + 3), rng.integers(line // 4 + 1, line + 1)
    across = (left + np.arange(wide)) % columns
    image[line - high : line + 3, across] = rng.uniform(0.12, 0.7)
    step_x, step_y, shade = rng.integers(6, 16), rng.integers(7, 18), rng.uniform(0.05, 0.9)
    for y in range(line - high + 3, line - 4, step_y):
        for x in range(3, wide - 4, step_x):
            image[y : y + step_y // 2, across[x : x + step_x // 2]] = shade


def _noise(rng: np.random.Generator, rows: int, columns: int, slope: float) -> np.ndarray:
    """Noise with an amplitude spectrum of 1 / frequency^slope, deviation 1, periodic."""
    vertical, horizontal = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None]
    frequency = np.hypot(vertical, horizontal)
    frequency[0, 0] = np.inf
    values = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((rows, columns))) / frequency**slope, (rows, columns))
    return values / values.std()


def _soften(image: np.ndarray, deviation_px: float) -> np.ndarray:
    vertical, horizontal = np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])[None]
    response = np.exp(-2 * (np.pi * deviation_px) ** 2 * (vertical**2 + horizontal**2))
    return np.fft.irfft2(np.fft.rfft2(image) * response, image.shape)


def _power_of_two(side: float) -> int:
    return 1 << int(np.ceil(np.log2(max(side, 32))))
