"""RANDOM NUMBERS -> ROUTE of one object: its looks, where it enters, how fast it goes, where it stops, when it has left."""

from dataclasses import dataclass

import numpy as np

from saccade.simulate import shapes

# Per silhouette: how likely; height of an object on the lowest line of the image, of the part of the image below the horizon;
# slowest and fastest in px/s at a width of 160
KINDS = {
    shapes.CAR: (0.31, 0.50, 5.0, 500.0),
    shapes.PEDESTRIAN: (0.30, 0.80, 6.0, 90.0),
    shapes.BICYCLE: (0.20, 0.72, 8.0, 250.0),
    shapes.CAR_BEHIND: (0.06, 0.62, 3.0, 60.0),
    shapes.MOTORCYCLE: (0.13, 0.66, 8.0, 400.0),
}
STOPS = 0.8  # how often a leg ends in a stop
STOP_US = (0.2e6, 4e6)
SHORTEST_LEG = 0.02  # of the width: who stops has shown all its edges before


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    kind: int
    traits: np.ndarray
    start_us: float
    end_us: float
    knot_us: np.ndarray
    speed: np.ndarray
    distance: np.ndarray


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
        outside = 1.4 * shapes.WIDEST * size + margin  # beyond the border by so much nothing of it is to be seen
        entry = rng.uniform(0.05, 0.95) * width + outside if inside else 0.0
        limits = (0.0, width + 2 * outside - entry)
        traits[shapes.X] = entry - outside if facing > 0 else width + outside - entry
        slant = rng.uniform(-0.4, 0.4) * below / limits[1] if rng.random() < 0.5 else 0.0
        traits[shapes.ALONG_X], traits[shapes.ALONG_Y] = facing * np.cos(slant), np.sin(slant)
    traits[shapes.GROWTH] = traits[shapes.ALONG_Y] / below  # perspective: as far below the horizon, so large
    _dress(rng, traits, kind)
    largest = size * (1 + abs(traits[shapes.GROWTH]) * max(abs(limits[0]), abs(limits[1])))
    traits[shapes.PACE] = shapes.PACES[kind] * largest / size + shapes.WIDEST * size * abs(traits[shapes.GROWTH])
    pace = slowest * (fastest / slowest) ** rng.beta(1.5, 1.5) * width / 160  # the slowest and the fastest are rare
    times, speeds = legs(rng, pace, width, limits, start_us, duration_us, kind == shapes.CAR_BEHIND)
    seconds = np.diff(times) * 1e-6
    distance = np.concatenate(([0.0], np.cumsum(seconds * (speeds[1:] + speeds[:-1]) / 2)))
    return Route(kind, traits, start_us, float(times[-1]), times, speeds, distance)


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
    """Knots of the speed: legs of going and stops between, until the farthest distance or the end. It begins in motion: who has never
    moved has made no events, and nobody could detect it."""
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


def _dress(rng: np.random.Generator, traits: np.ndarray, kind: int) -> None:
    """Intensities that differ from part to part, phase of the gait, form, grain."""
    body, second = rng.uniform(0.06, 0.95), rng.uniform(0.05, 0.8)
    if abs(np.log(body / second)) < 0.5:
        second = body * 0.35 if body > 0.4 else min(0.95, body * 2.5)
    shades = [body, second, rng.uniform(0.1, 0.95), rng.uniform(0.04, 0.1), rng.uniform(0.55, 1.0), rng.uniform(0.2, 0.8)]
    traits[shapes.SHADES : shapes.SHADES + 6] = shades
    traits[shapes.PHASE] = rng.uniform(0, 2 * np.pi)
    traits[shapes.FORM : shapes.FORM + 2] = rng.random(2)
    traits[shapes.GRAIN_X], traits[shapes.GRAIN_Y] = rng.uniform(0, 64, 2)
    traits[shapes.GRAIN] = rng.uniform(0.03, 0.15)
