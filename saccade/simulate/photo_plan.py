"""RANDOM NUMBERS -> CAMERA AND CUT-OUTS over a photograph: how it pans and drives, who moves where, how large."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.simulate.cutouts import DISTRACTOR, Cutouts
from saccade.simulate.motion import distance_at_knots, shake
from saccade.simulate.photo_motion import Movers, PhotoCamera
from saccade.simulate.photo_texture import Exposure, edges_of, log_uniform, texture_of, turn
from saccade.simulate.photos import CAR, PEDESTRIAN, TWO_WHEELER
from saccade.simulate.plan import legs

PAUSES: dict[str, Any] = {"stops": 0.4, "stop_us": (0.2e6, 1.5e6), "leg_s": (0.3, 2.5)}
CLASS_CHANCES = {CAR: 0.34, PEDESTRIAN: 0.28, TWO_WHEELER: 0.15, DISTRACTOR: 0.23}
TRAFFIC_CHANCES = {CAR: 0.6, PEDESTRIAN: 0.12, TWO_WHEELER: 0.1, DISTRACTOR: 0.18}  # before a camera that drives
TURNED = 0.35  # share of the cut-outs that are seen from elsewhere than the photographer's place: turned, sheared, squashed
FOLLOWS = 0.35  # share of the cut-outs before a moving camera that keep their place in the image
TRAFFIC_FOLLOWS = 0.75  # ... before one that drives: cars ahead
PACES = {CAR: (4.0, 450.0), PEDESTRIAN: (3.0, 130.0), TWO_WHEELER: (5.0, 350.0), DISTRACTOR: (3.0, 400.0)}  # px/s at a width of 160
SIZES = {
    CAR: (12.0, 110.0),
    PEDESTRIAN: (10.0, 110.0),
    TWO_WHEELER: (11.0, 105.0),
    DISTRACTOR: (8.0, 90.0),
}  # px at a width of 160, the longer side
LAMPS = 0.15  # share of the recordings with lights that go on and off: no object, though they make events
MOST_BLINKS = 60  # of a lamp
BLINK_US = (12e3, 0.7e6)  # from one switching to the next
BOUNCES = 0.9  # share of the time that a camera which drives goes up and down: of a car ahead only the lines that lie show then
PACE = (1.6, 1.6)  # beta distribution of the camera's speeds, as logarithms between the slowest and the fastest
UNDER_WAY = 0.8  # share of the moving cameras that move already when the recording begins, as most do that are switched on
AHEAD = (0.75, 1.7)  # width / height of cars that are seen from behind or from the front
ROADS = 0.6  # share of the standing cameras that watch a road
OBLIQUE = 0.5  # share of the roads that lie slanting in the image: what comes down them grows
ROAD_SIZES_M = {CAR: 3.8, PEDESTRIAN: 1.75, TWO_WHEELER: 1.9, DISTRACTOR: 2.5}  # the longer side, of cars from anywhere
ROAD_PACES_M = {CAR: (2.0, 20.0), PEDESTRIAN: (0.6, 2.5), TWO_WHEELER: (1.5, 9.0), DISTRACTOR: (0.6, 12.0)}  # a second


@dataclass(frozen=True)
class Road:
    """What a standing camera watches from afar: sizes and paces that belong together, and lines on which one passes the other."""

    metre_px: float
    lines: np.ndarray  # rows on which objects pass the middle of the image
    slant: float  # of all lines, radians

    def side(self, rng: np.random.Generator, class_id: int) -> float:
        return max(ROAD_SIZES_M[class_id] * self.metre_px * float(np.exp(rng.normal(0, 0.2))), 8.0)

    def pace(self, rng: np.random.Generator, class_id: int) -> float:
        return log_uniform(rng, *ROAD_PACES_M[class_id]) * self.metre_px

    def row(self, rng: np.random.Generator, from_middle: float) -> float:
        """Of a line, so far to the right of the image's middle."""
        return float(rng.choice(self.lines) + np.tan(self.slant) * from_middle + rng.normal(0, 0.4) * self.metre_px)


@dataclass(frozen=True)
class Setting:
    """What cut-outs move before."""

    width: int
    height: int
    duration_us: int
    moves: bool  # the camera
    drives: bool  # it does so as in a car: straight on, seldom to the side
    road: Road | None
    vanish: np.ndarray  # the point that a camera drives to

    @property
    def unit(self) -> float:
        return self.width / 160


def plan_photo_camera(rng: np.random.Generator, setting: Setting, origin: np.ndarray, room: np.ndarray) -> PhotoCamera:
    """Legs of panning, tilting, rolling and driving at speeds over two orders of magnitude, rests between, and shakes."""
    width, height, unit = setting.width, setting.height, setting.unit
    vanish = setting.vanish
    depth = rng.random() < (0.8 if setting.drives else 0.5)  # the ground is nearer than the rest
    far, near = 1.0, float(rng.uniform(1.0, 2.0) / (height - vanish[1])) if depth else 0.0
    place = (width / 2, height / 2, float(vanish[0]), float(vanish[1]), far, near)
    if not setting.moves:
        return PhotoCamera(np.zeros(1), np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((0, 8)), *place)
    low = np.array([origin[0] - 3 * unit, origin[1] - 3 * unit, -0.15, -0.1])  # of pan x, y, roll, drive
    high = np.array([origin[0] + room[0] + 3 * unit, origin[1] + room[1] + 3 * unit, 0.15, 0.28 if depth else 0.5])
    habits = rng.random(4) < ((0.2, 0.1, 0.05, 1.0) if setting.drives else (0.75, 0.5, 0.3, 0.45))  # which of them this camera does
    shaky, restful = rng.random() < 0.5, rng.uniform(0.0, 0.2 if setting.drives else 0.7)
    if not habits.any() and not shaky:
        habits[0] = True
    knots, velocities, shakes = [0.0], [np.zeros(4)], []
    here, time_us, under_way = np.zeros(4), 0.0, rng.random() < UNDER_WAY
    while time_us < setting.duration_us:
        length_us = float(np.rint(log_uniform(rng, 0.15e6, 2.5e6)))
        first = under_way and time_us == 0
        since_us = time_us - float(np.rint(rng.uniform(0.2, 0.8) * length_us)) if first else time_us  # it swells, so it has begun before
        if setting.drives and rng.random() < BOUNCES:
            shakes.append(_bounce(rng, unit, since_us, time_us + length_us))
        elif shaky and rng.random() < 0.7:
            shakes.append(shake(rng, unit, since_us, time_us + length_us))
        now = habits & (rng.random(4) < 0.8)
        if first and not now.any():
            now = habits
        if now.any():
            ramp_us = float(np.rint(rng.uniform(0.05, 0.3) * length_us))
            cruise_s = (length_us - (ramp_us / 2 if first else ramp_us)) * 1e-6
            slowest = np.array([4, 2, 0.01, 0.08 if setting.drives else 0.02])  # px, px, rad, 1 / s
            fastest = np.array([400, 150, 0.5, 0.8])
            pace = slowest * (fastest / slowest) ** rng.beta(*PACE, 4) * (unit, unit, 1, 1)
            wish = here + pace * cruise_s * np.where(rng.random(4) < np.clip((high - here) / (high - low), 0.05, 0.95), 1, -1)
            velocity = np.where(now, (np.clip(wish, low, high) - here) / cruise_s, 0.0)
            if first:
                velocities[0] = velocity
            knots += [time_us + ramp_us, time_us + length_us - ramp_us, time_us + length_us]
            velocities += [velocity, velocity, np.zeros(4)]
            here = here + velocity * cruise_s
        time_us += length_us
        if rng.random() < restful:
            time_us += float(np.rint(rng.uniform(0.1e6, 1.2e6)))
        if knots[-1] < time_us:
            knots.append(time_us)
            velocities.append(np.zeros(4))
    times, velocity = np.array(knots), np.array(velocities)
    return PhotoCamera(times, velocity, distance_at_knots(times, velocity), np.array(shakes).reshape(-1, 8), *place)


def _bounce(rng: np.random.Generator, unit: float, start_us: float, end_us: float) -> tuple[float, ...]:
    """A shake of a car on its springs: up and down, hardly to the side."""
    amplitude, frequency = log_uniform(rng, 0.25, 2.0) * unit, rng.uniform(1.0, 10.0, 2)
    amplitudes = np.array([rng.uniform(0.0, 0.3), 1.0]) * amplitude * np.minimum(1, 4 / frequency)
    return (start_us, end_us, *amplitudes, *(2 * np.pi * frequency), *rng.uniform(0, 2 * np.pi, 2))


def draw_setting(rng: np.random.Generator, width: int, height: int, duration_us: int, moves: bool, drives: bool) -> Setting:
    road = None if moves or rng.random() >= ROADS else _road(rng, width, height)
    vanish = np.array([rng.uniform(0.3, 0.7) * width, rng.uniform(0.3, 0.6) * height])
    return Setting(width, height, duration_us, moves, drives, road, vanish)


def plan_movers(rng: np.random.Generator, cutouts: Cutouts, split: str | None, setting: Setting, look: Exposure, finer: int) -> Movers:
    if setting.moves:
        number = int(rng.integers(0, 4)) + setting.drives
    else:
        number = int(min(rng.geometric(0.3) + 1, 8)) + (0 if setting.road is None else 2)
    rows: list[dict[str, Any]] = []
    for _ in range(number):
        start_us = 0.0
        while start_us < setting.duration_us and len(rows) < 24:
            mover = _mover(rng, cutouts, split, setting, start_us, look, finer)
            if mover is None:
                break
            rows.append(mover)
            start_us = mover["end_us"] + float(np.rint(rng.uniform(0.05e6, 0.8e6)))
    if rng.random() < LAMPS:
        for _ in range(int(rng.integers(1, 4))):
            rows += _lamp(rng, setting, look)
    rows.sort(key=lambda mover: mover["near"])
    textures = [mover["texture"] for mover in rows]
    edges = [edges_of(texture[:, :, 1]) for texture in textures]
    lengths = [len(mover["knot_us"]) for mover in rows]
    columns = {name: np.array([mover[name] for mover in rows], np.float64) for name in (
        "start_us", "end_us", "x", "y", "along_x", "along_y", "growth", "vanish_x", "vanish_y", "follows", "scale", "phase", "stride",
        "swing", "lean", "bob", "sway",
    )}  # fmt: skip
    sizes = np.array([texture.shape[:2] for texture in textures], np.int64).reshape(-1, 2)
    joined = {name: np.concatenate([mover[name] for mover in rows]) if rows else np.zeros(0) for name in ("knot_us", "speed", "distance")}
    return Movers(
        class_id=np.array([mover["class_id"] for mover in rows], np.int64),
        first_knot=np.cumsum([0, *lengths]),
        rows=np.ascontiguousarray(sizes[:, 0]),
        columns=np.ascontiguousarray(sizes[:, 1]),
        first_texel=np.cumsum([0, *sizes.prod(axis=1)])[:-1],
        texel=np.concatenate([texture.reshape(-1, 2) for texture in textures]) if rows else np.zeros((0, 2), np.float32),
        first_row=np.cumsum([0, *sizes[:, 0]])[:-1],
        left=np.concatenate([edge[0] for edge in edges]) if rows else np.zeros(0),
        right=np.concatenate([edge[1] for edge in edges]) if rows else np.zeros(0),
        top=np.array([edge[2] for edge in edges], np.float64),
        bottom=np.array([edge[3] for edge in edges], np.float64),
        **columns,
        **joined,
    )


def _road(rng: np.random.Generator, width: int, height: int) -> Road:
    metre_px = log_uniform(rng, 4.5, 20.0) * width / 160
    middle, lines = rng.uniform(0.35, 0.85) * height, int(rng.integers(1, 4))
    slant = float(np.clip(rng.normal(0, 0.3), -0.7, 0.7)) if rng.random() < OBLIQUE else 0.0
    return Road(metre_px, np.clip(middle + rng.normal(0, 2.5 * metre_px, lines), 0.2 * height, 0.95 * height), slant)


def _mover(
    rng: np.random.Generator, cutouts: Cutouts, split: str | None, setting: Setting, start_us: float, look: Exposure, finer: int
) -> dict[str, Any] | None:
    """One cut-out from `start_us` until it has left or the recording ends; None if there is no cut-out of its class."""
    chances = TRAFFIC_CHANCES if setting.drives else CLASS_CHANCES
    class_id = int(rng.choice(list(chances), p=list(chances.values())))
    choice = cutouts.of(split, class_id)
    if not len(choice):
        return None
    follows = setting.moves and start_us == 0 and rng.random() < (TRAFFIC_FOLLOWS if setting.drives else FOLLOWS)
    ahead = setting.drives and follows and class_id == CAR
    intensity, mask = cutouts.get(int(rng.choice(choice)))
    for _ in range(10 if ahead else 0):
        if AHEAD[0] <= mask.shape[1] / mask.shape[0] <= AHEAD[1]:
            break
        intensity, mask = cutouts.get(int(rng.choice(choice)))
    if rng.random() < 0.5:
        intensity, mask = intensity[:, ::-1], mask[:, ::-1]
    if not ahead and rng.random() < TURNED:
        intensity, mask = turn(rng, intensity, mask, 0.4 if class_id == PEDESTRIAN else 1.0)
    unit, road = setting.unit, setting.road
    source = max(mask.shape)
    low, high = SIZES[class_id]
    side = min(log_uniform(rng, low * unit**0.5, high * unit) if road is None else road.side(rng, class_id), 1.8 * source)
    scale = side / source  # px of the canvas per px of the photograph
    wide, tall = mask.shape[1] * scale, mask.shape[0] * scale
    texel_px = min(1.0 / finer, 1.0)  # texels as fine as the sensor's pixels, at the middle size
    resize = min(scale / texel_px, 1.6)
    if class_id == DISTRACTOR and not follows and rng.random() < 0.2:  # something in the foreground that others pass behind
        path = _standing(rng, setting, tall)
    elif follows or (start_us == 0 and rng.random() < 0.28):
        path = _approaching(rng, setting, tall, start_us, follows)
    else:
        path = _crossing(rng, setting, class_id, wide, tall, start_us)
    walks = class_id == PEDESTRIAN or (class_id == DISTRACTOR and rng.random() < 0.3)
    rides = class_id in (TWO_WHEELER, CAR)
    stride_px = rng.uniform(0.7, 1.1) * tall if walks else rng.uniform(2, 6) * wide
    return {
        "class_id": class_id, "texture": texture_of(rng, intensity, mask, resize, look.blur / texel_px, look), "scale": scale / resize,
        "start_us": start_us, "vanish_y": setting.vanish[1] if setting.drives else 0.35 * setting.height, "follows": float(follows), **path,
        "distance": distance_at_knots(path["knot_us"], path["speed"]),
        "vanish_x": path["x"] if rng.random() < 0.3 else setting.vanish[0] if setting.drives else setting.width / 2,
        "phase": rng.uniform(0, 2 * np.pi), "stride": 2 * np.pi / stride_px,
        "swing": rng.uniform(0.08, 0.22) if walks else 0.0, "lean": rng.uniform(0, 0.06) if walks else 0.0,
        "bob": rng.uniform(0.005, 0.03) if walks else rng.uniform(0, 0.008) if rides else 0.0,
        "sway": rng.uniform(0.0, 0.04) if walks or class_id == TWO_WHEELER else 0.0,
        "near": path["near"] + path["y"] + 0.2 * tall,
    }  # fmt: skip


def _lamp(rng: np.random.Generator, setting: Setting, look: Exposure) -> list[dict[str, Any]]:
    """A light in its place that blinks: a cut-out for each time that it is on."""
    side = log_uniform(rng, 2.0, 14.0) * setting.unit
    rows = np.hypot(*np.mgrid[-1:1:9j, -1:1:9j]) < 1.05  # a disc
    texture = texture_of(rng, np.full(rows.shape, log_uniform(rng, 0.3, 3.0)), rows.astype(np.float32), 1.0, 0.6, look)
    x, y = rng.uniform(0, 1, 2) * (setting.width, setting.height)
    period_us, on_us = log_uniform(rng, *BLINK_US), rng.uniform(0.3, 0.7)
    starts_us = np.arange(-rng.random() * period_us, setting.duration_us, period_us)[:MOST_BLINKS]
    still = dict.fromkeys(("phase", "stride", "swing", "lean", "bob", "sway", "follows", "vanish_x", "vanish_y"), 0.0)
    lit = []
    for start_us in np.rint(starts_us):
        end_us = float(np.rint(start_us + on_us * period_us))
        path = _path(float(x), float(y), np.array([float(start_us), end_us]), np.zeros(2), end_us)
        lit.append({
            "class_id": DISTRACTOR, "texture": texture, "scale": side / len(rows), "start_us": float(start_us), **still, **path,
            "distance": np.zeros(2), "near": float(y),
        })  # fmt: skip
    return lit


def _feet(rng: np.random.Generator, setting: Setting, tall: float, from_middle: float) -> float:
    """The row on which a cut-out of that height stands."""
    height = setting.height
    if setting.road is not None:
        return setting.road.row(rng, from_middle)
    if setting.drives:  # seen from the height of a car's roof, all feet are about as far below the horizon as they are tall
        return float(setting.vanish[1] + rng.uniform(0.5, 1.1) * tall)
    return rng.uniform(0.25 * height + 0.5 * tall, max(1.1 * height, 0.3 * height + 0.6 * tall))


def _path(x: float, y: float, times: np.ndarray, speeds: np.ndarray, end_us: float, **rest: float) -> dict[str, Any]:
    start = {"x": x, "y": y, "knot_us": times, "speed": speeds, "end_us": end_us}
    return start | {"along_x": 0.0, "along_y": 0.0, "growth": 0.0, "near": 0.0} | rest


def _standing(rng: np.random.Generator, setting: Setting, tall: float) -> dict[str, Any]:
    """In the foreground, nearer than all others."""
    x = rng.uniform(0, 1) * setting.width
    times = np.array([0.0, float(setting.duration_us)])
    return _path(x, _feet(rng, setting, tall, x - setting.width / 2), times, np.zeros(2), setting.duration_us + 1.0, near=1e9)


def _approaching(rng: np.random.Generator, setting: Setting, tall: float, start_us: float, follows: bool) -> dict[str, Any]:
    """Grows or shrinks in its place; what FOLLOWS the camera does so slowly."""
    ratio = log_uniform(rng, 1.1, 1.8) if follows else log_uniform(rng, 1.3, 3.5)  # of sizes
    x = rng.uniform(0.1, 0.9) * setting.width
    if setting.drives and follows and rng.random() < 0.7:  # on the same lane
        x = float(setting.vanish[0] + rng.normal(0, 0.1) * setting.width)
    growth = 1.0 / max(tall, 8.0)  # a distance of the height grows it by e
    reach = np.log(ratio) / growth / 2
    along_x = rng.uniform(-0.5, 0.5) if rng.random() < 0.5 else 0.0
    pace = (log_uniform(rng, 0.02, 0.5) if follows else log_uniform(rng, 0.06, 1.5)) / growth
    times, speeds = legs(rng, pace, setting.width, (-reach, reach), start_us, setting.duration_us, True, **PAUSES)
    if rng.random() < 0.4:
        speeds = -speeds
    y = _feet(rng, setting, tall, x - setting.width / 2)
    return _path(x, y, times, speeds, setting.duration_us + 1.0, growth=growth, along_x=along_x)


def _crossing(rng: np.random.Generator, setting: Setting, class_id: int, wide: float, tall: float, start_us: float) -> dict[str, Any]:
    """From one side to the other, or on from somewhere inside; along the road, if there is one."""
    width, height, road = setting.width, setting.height, setting.road
    outside = wide / 2 + 4 * setting.unit + (0.35 * width if setting.moves else 0)
    inside = start_us == 0 and (setting.moves or rng.random() < 0.85)
    entry = rng.uniform(0.05, 0.95) * width + outside if inside else 0.0
    facing = 1.0 if rng.random() < 0.5 else -1.0
    x = entry - outside if facing > 0 else width + outside - entry
    length = width + 2 * outside - entry
    y = _feet(rng, setting, tall, x - width / 2)
    if road is not None and road.slant:
        slant, grows = facing * road.slant, True
    else:
        slant = rng.uniform(-0.5, 0.5) * min(1.0, 0.5 * height / length) if rng.random() < 0.6 else 0.0
        grows = rng.random() < 0.3
    along_x, along_y = facing * np.cos(slant), np.sin(slant)
    growth = float(np.clip(along_y / max(y - 0.35 * height, 0.3 * height), -0.8 / length, 0.8 / length)) if grows else 0.0
    low, high = PACES[class_id]
    pace = low * (high / low) ** rng.beta(1.3, 1.3) * setting.unit if road is None else road.pace(rng, class_id)
    times, speeds = legs(rng, pace, width, (0.0, length), start_us, setting.duration_us, False, **PAUSES)
    return _path(x, y, times, speeds, float(times[-1]), along_x=along_x, along_y=along_y, growth=growth)
