"""SEED + PHOTOGRAPHS -> SCENE: a camera over one photograph, and cut-outs of others that drive, walk, approach, stop, hide one another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from saccade.simulate import photo_render as kernels
from saccade.simulate.cutouts import DISTRACTOR, Cutouts, import_cv2, to_linear
from saccade.simulate.motion import shake
from saccade.simulate.photo_render import Fixtures, Movers, PhotoCamera
from saccade.simulate.photos import CAR, PEDESTRIAN, TWO_WHEELER, Photo, PhotoObject, PhotoSet
from saccade.simulate.plan import legs
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.shapes import CLASSES
from saccade.simulate.simulation import IntensityImage, TimedImage, Truth, as_truth, check_times
from saccade.types import InputError, Labels, Times

GENERATOR = 2  # raised whenever the same seed gives another scene
STANDS = 0.55  # how often the camera does
FINER = {1: 0.76, 2: 0.21, 3: 0.03}  # pixels of the sensor per pixel of the canvas, as when a large sensor is scaled down: how often
STRAY_LIGHT = 0.015  # intensity of black
OUTLINE = 24  # points of the outline of an object without a mask
SEEN_STEP_US = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class PhotoScene:
    """What `make_photo_scene` made out of a seed."""

    seed: int
    width: int
    height: int
    duration_us: int
    finer: int  # the sensor has so many pixels per pixel of the labels, in x and in y
    background: Float32[np.ndarray, "rows columns"]  # intensities
    origin: tuple[float, float]  # of the background in the world
    density: float  # its texels per px
    camera: PhotoCamera
    movers: Movers
    fixtures: Fixtures
    photo: str

    classes = CLASSES

    @property
    def camera_moves(self) -> bool:
        return bool((self.camera.velocity != 0).any()) or len(self.camera.shakes) > 0

    def truth(self, t_us: Times) -> Truth:
        """Boxes and the rest at any times, in order; `visible` is counted on a lattice."""
        t_us = check_times(t_us, self.duration_us)
        row, track, values = kernels.query(self.movers, self.fixtures, self.camera, t_us, self.width, self.height)
        classes = np.concatenate((self.movers.class_id, self.fixtures.class_id))
        return as_truth(t_us, row, track, values, classes)

    def labels(self, t_us: Times) -> Labels:
        return self.truth(t_us).labels()

    def steps(self) -> Iterator[int]:
        """Times from 0 to the end, so close that hardly anything moves more than 0.7 pixels of the sensor from one to the next."""
        time_us = 0
        while time_us < self.duration_us:
            yield time_us
            time_us += kernels.next_step(self.movers, self.camera, float(time_us), self.width, self.height, self.finer)
        yield self.duration_us

    def pictures(self) -> Iterator[TimedImage]:
        """Times, intensities (the same memory every time) and where they differ, perhaps, from those before."""
        image = np.zeros((self.height * self.finer, self.width * self.finer), np.float32)
        boxes, before = np.zeros((len(self.movers.class_id), 4)), -1.0
        for time_us in self.steps():
            yield time_us, image, self._draw(before, time_us, boxes, image)
            before = float(time_us)

    def intensity(self, time_us: int) -> IntensityImage:
        image = np.zeros((self.height * self.finer, self.width * self.finer), np.float32)
        self._draw(-1.0, time_us, np.zeros((len(self.movers.class_id), 4)), image)
        return image

    def _draw(self, before_us: float, time_us: int, boxes: np.ndarray, image: np.ndarray) -> np.ndarray:
        return kernels.draw_changes(
            self.movers, self.camera, self.background, *self.origin, self.density, before_us, float(time_us), self.finer, boxes, image
        )


def draw_sensor(seed: int) -> SensorConfig:
    """One of many sensors and settings: what recordings of real ones differ in."""
    rng = np.random.default_rng([0x5E0, seed])
    threshold, bias = _log_uniform(rng, 0.1, 0.5), np.exp(rng.normal(0.04, 0.25))
    bursts = rng.random() < 0.25
    return SensorConfig(
        threshold_on=float(np.clip(threshold * bias, 0.08, 0.7)),
        threshold_off=float(np.clip(threshold / bias, 0.08, 0.7)),
        mismatch=rng.uniform(0.01, 0.12),
        refractory_us=_log_uniform(rng, 20, 3000),
        cutoff_hz=_log_uniform(rng, 60, 2000),
        dark_cutoff_hz=_log_uniform(rng, 5, 60),
        shot_hz=_log_uniform(rng, 0.0001, 0.6),
        leak_hz=_log_uniform(rng, 0.0001, 0.12),
        hot_fraction=_log_uniform(rng, 1e-5, 1e-3),
        hot_hz=_log_uniform(rng, 10, 300),
        burst=rng.uniform(0.1, 0.75) if bursts else 0.0,
        burst_us=_log_uniform(rng, 1, 10),
        burst_flip=rng.uniform(0, 0.5) if bursts else 0.0,
    )


def make_photo_scene(
    seed: int, photos: PhotoSet, cutouts: Cutouts, width: int = 160, height: int = 128, seconds: float = 4.0, *,
    split: str | None = None, camera_moves: bool | None = None,
) -> PhotoScene:  # fmt: skip
    """A photograph of the split (of all, if None) with cut-outs of the same split. The camera stands in a good half, unless stated."""
    if not (32 <= width <= 4096 and 32 <= height <= 4096):
        raise InputError(f"scene: size {width}x{height} must be within 32x32 and 4096x4096")
    if not 0.05 <= seconds <= 3600 or seed < 0:
        raise InputError(f"scene: seconds={seconds} must be within 0.05 and 3600, seed={seed} 0 or more")
    rng = np.random.default_rng([0xF070, GENERATOR, seed])
    moves = bool(rng.random() >= STANDS) if camera_moves is None else camera_moves
    photo, image = _choose(rng, photos, split, moves)
    duration_us, finer = round(seconds * 1e6), int(rng.choice(list(FINER), p=list(FINER.values())))
    look = _Look(
        light=_log_uniform(rng, 0.04, 1.0),
        contrast=rng.uniform(0.6, 1.0),
        haze=rng.uniform(0, 0.08),
        blur=_log_uniform(rng, 0.3, 1.3) / finer**0.5,
    )
    cover = max(width / photo.width, height / photo.height)
    scale = cover * float(
        np.exp(rng.uniform(0, np.log(2.2)) if moves else rng.uniform(0, np.log(1.5)))
    )  # px of the canvas per px of the photograph
    density = min(float(finer), 1.5 / scale)  # texels per px: no more than the photograph has
    background = _background(image, scale * density, density, look)
    extent = np.array([background.shape[1], background.shape[0]]) / density
    room = np.maximum(extent - (width, height), 0)
    mirrored = bool(rng.random() < 0.5)
    origin = _look_at(rng, photo, scale, mirrored, room, (width, height))
    if mirrored:
        background = np.ascontiguousarray(background[:, ::-1])
    camera = _camera(rng, width, height, duration_us, origin, room, moves)
    outlines = [_outline(item, scale, origin, photo.width if mirrored else None) for item in photo.objects] if moves else []
    fixtures = Fixtures(
        np.array([item.class_id for item in photo.objects] if moves else [], np.int64),
        np.cumsum([0, *map(len, outlines)]),
        np.concatenate(outlines) if outlines else np.zeros((0, 2)),
        np.zeros(len(outlines)),
    )
    fixtures = fixtures._replace(seen_us=kernels.first_seen(fixtures, camera, duration_us, width, height, SEEN_STEP_US))
    movers = _movers(rng, cutouts, split, width, height, duration_us, look, finer, moves)
    place = (float(origin[0]), float(origin[1]))
    return PhotoScene(seed, width, height, duration_us, finer, background, place, density, camera, movers, fixtures, photo.name)


def _shows(photo: Photo) -> bool:
    """Whether an object is large enough to be worth a look."""
    return any(item.box[3] - item.box[1] >= 0.12 * photo.height for item in photo.objects)


def _look_at(rng: np.random.Generator, photo: Photo, scale: float, mirrored: bool, room: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Where in the world the photograph's corner is, so that one of its objects is in the image when the recording begins."""
    if not photo.objects:
        return -rng.uniform(0, 1, 2) * room
    areas = np.array([(item.box[2] - item.box[0]) * (item.box[3] - item.box[1]) for item in photo.objects])
    left, top, right, bottom = photo.objects[int(rng.choice(len(areas), p=areas**0.5 / (areas**0.5).sum()))].box
    x, y = (left + right) / 2, (top + bottom) / 2
    centre = np.array([photo.width - x if mirrored else x, y]) * scale
    return -np.clip(centre - rng.uniform(0.2, 0.8, 2) * size, 0, room)


def _choose(rng: np.random.Generator, photos: PhotoSet, split: str | None, moves: bool) -> tuple[Photo, np.ndarray]:
    """A photograph that can be read. Under a moving camera one without crowds and seldom one without objects."""
    of_split = list(range(len(photos.photos))) if split is None else photos.by_split[split]
    if not of_split:
        raise InputError(
            f"{photos.labels_path}: too few photographs for a part of their own for {split}; `--split train` puts all into one"
        )
    empty = rng.random() < 0.12
    suiting = [
        i for i in of_split if not moves or (not photos.photos[i].crowded and _shows(photos.photos[i]) != empty)
    ] or of_split  # fmt: skip
    error = None
    for i in rng.permutation(len(suiting))[:20]:
        photo = photos.photos[suiting[i]]
        try:
            return photo, photos.read(photo)
        except InputError as failed:  # damaged: another one
            error = failed
    raise InputError(f"{photos.labels_path}: 20 photographs in a row can't be read; the last one: {error}") from error


@dataclass(frozen=True)
class _Look:
    """Light and lens of a recording."""

    light: float  # of white; night to noon
    contrast: float
    haze: float
    blur: float  # px of the canvas, standard deviation

    def expose(self, intensity: np.ndarray) -> np.ndarray:
        return (self.light * (STRAY_LIGHT + self.haze + self.contrast * intensity)).astype(np.float32)


def _background(image: np.ndarray, resize: float, density: float, look: _Look) -> np.ndarray:
    cv2 = import_cv2()
    linear = to_linear(image)
    how = cv2.INTER_AREA if resize < 1 else cv2.INTER_CUBIC
    linear = np.clip(cv2.resize(linear, None, fx=resize, fy=resize, interpolation=how), 0, 1)
    return look.expose(cv2.GaussianBlur(linear, (0, 0), max(look.blur * density, 0.2)))


def _outline(item: PhotoObject, scale: float, origin: np.ndarray, mirror: int | None) -> np.ndarray:
    """Convex outline in the world: of the mask, or between the box and its ellipse, touching the box at all four sides."""
    if item.polygons:
        cv2 = import_cv2()
        points = cv2.convexHull(np.concatenate(item.polygons).astype(np.float32)).reshape(-1, 2).astype(np.float64)
    else:
        angle = np.arange(OUTLINE) * 2 * np.pi / OUTLINE
        circle = np.stack((np.cos(angle), np.sin(angle)), 1)
        circle = np.sign(circle) * np.abs(np.round(circle, 12)) ** 0.5
        left, top, right, bottom = item.box
        points = circle * ((right - left) / 2, (bottom - top) / 2) + ((left + right) / 2, (top + bottom) / 2)
    if mirror is not None:
        points = np.stack((mirror - points[:, 0], points[:, 1]), 1)[::-1]
    return points * scale + origin


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _camera(
    rng: np.random.Generator, width: int, height: int, duration_us: int, origin: np.ndarray, room: np.ndarray, moves: bool
) -> PhotoCamera:
    """Legs of panning, tilting, rolling and driving at speeds over two orders of magnitude, rests between, and shakes."""
    unit = width / 160
    vanish = np.array([rng.uniform(0.3, 0.7) * width, rng.uniform(0.3, 0.6) * height])
    depth = rng.random() < 0.5  # the ground is nearer than the rest
    far, near = 1.0, float(rng.uniform(1.0, 2.0) / (height - vanish[1])) if depth else 0.0
    place = (width / 2, height / 2, float(vanish[0]), float(vanish[1]), far, near)
    if not moves:
        return PhotoCamera(np.zeros(1), np.zeros((1, 4)), np.zeros((1, 4)), np.zeros((0, 8)), *place)
    low = np.array([origin[0] - 3 * unit, origin[1] - 3 * unit, -0.15, -0.1])  # of pan x, y, roll, drive
    high = np.array([origin[0] + room[0] + 3 * unit, origin[1] + room[1] + 3 * unit, 0.15, 0.28 if depth else 0.5])
    habits = rng.random(4) < (0.75, 0.5, 0.3, 0.45)  # which of them this camera does
    shaky, restful = rng.random() < 0.5, rng.uniform(0.0, 0.7)
    if not habits.any() and not shaky:
        habits[0] = True
    knots, velocities, shakes = [0.0], [np.zeros(4)], []
    here, time_us = np.zeros(4), 0.0
    while time_us < duration_us:
        length_us = float(np.rint(_log_uniform(rng, 0.15e6, 2.5e6)))
        if shaky and rng.random() < 0.7:
            shakes.append(shake(rng, unit, time_us, time_us + length_us))
        now = habits & (rng.random(4) < 0.8)
        if now.any():
            ramp_us = float(np.rint(rng.uniform(0.05, 0.3) * length_us))
            cruise_s = (length_us - ramp_us) * 1e-6
            slowest, fastest = np.array([4, 2, 0.01, 0.02]), np.array([400, 150, 0.5, 0.8])  # px/s, px/s, rad/s, 1/s
            pace = slowest * (fastest / slowest) ** rng.random(4) * (unit, unit, 1, 1)
            wish = here + pace * cruise_s * np.where(rng.random(4) < np.clip((high - here) / (high - low), 0.05, 0.95), 1, -1)
            velocity = np.where(now, (np.clip(wish, low, high) - here) / cruise_s, 0.0)
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
    steps = np.diff(times)[:, None] * 1e-6 * (velocity[1:] + velocity[:-1]) / 2
    offset = np.concatenate((np.zeros((1, 4)), np.cumsum(steps, axis=0)))
    return PhotoCamera(times, velocity, offset, np.array(shakes).reshape(-1, 8), *place)


def _movers(
    rng: np.random.Generator,
    cutouts: Cutouts,
    split: str | None,
    width: int,
    height: int,
    duration_us: int,
    look: _Look,
    finer: int,
    moves: bool,
) -> Movers:
    number = int(rng.integers(0, 4)) if moves else int(min(rng.geometric(0.4) + 1, 6))
    rows: list[dict[str, Any]] = []
    for _ in range(number):
        start_us = 0.0
        while start_us < duration_us and len(rows) < 24:
            mover = _mover(rng, cutouts, split, width, height, start_us, duration_us, look, finer, moves)
            if mover is None:
                break
            rows.append(mover)
            start_us = mover["end_us"] + float(np.rint(rng.uniform(0.05e6, 0.8e6)))
    rows.sort(key=lambda mover: mover["near"])
    textures = [mover["texture"] for mover in rows]
    edges = [_edges(texture[:, :, 1]) for texture in textures]
    lengths = [len(mover["knot_us"]) for mover in rows]
    columns = {name: np.array([mover[name] for mover in rows], np.float64) for name in (
        "start_us", "end_us", "x", "y", "along_x", "along_y", "growth", "vanish_x", "vanish_y", "scale", "phase", "stride", "swing", "lean",
        "bob", "sway",
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
        foot=np.array([edge[3] for edge in edges], np.float64),
        **columns,
        **joined,
    )


PAUSES: dict[str, Any] = {"stops": 0.4, "stop_us": (0.2e6, 1.5e6), "leg_s": (0.3, 2.5)}
CLASS_CHANCES = {CAR: 0.36, PEDESTRIAN: 0.28, TWO_WHEELER: 0.16, DISTRACTOR: 0.2}
PACES = {CAR: (4.0, 450.0), PEDESTRIAN: (3.0, 130.0), TWO_WHEELER: (5.0, 350.0), DISTRACTOR: (3.0, 400.0)}  # px/s at a width of 160
SIZES = {CAR: (12.0, 110.0), PEDESTRIAN: (10.0, 110.0), TWO_WHEELER: (11.0, 105.0), DISTRACTOR: (8.0, 90.0)}  # px, the longer side


def _mover(
    rng: np.random.Generator, cutouts: Cutouts, split: str | None, width: int, height: int, start_us: float, duration_us: int, look: _Look,
    finer: int, moves: bool,
) -> dict[str, Any] | None:  # fmt: skip
    """One cut-out from `start_us` until it has left or the recording ends; None if there is no cut-out of its class."""
    class_id = int(rng.choice(list(CLASS_CHANCES), p=list(CLASS_CHANCES.values())))
    choice = cutouts.of(split, class_id)
    if not len(choice):
        return None
    intensity, mask = cutouts.get(int(rng.choice(choice)))
    if rng.random() < 0.5:
        intensity, mask = intensity[:, ::-1], mask[:, ::-1]
    unit = width / 160
    source = max(mask.shape)
    low, high = SIZES[class_id]
    side = min(_log_uniform(rng, low, high) * unit, 1.8 * source)
    approaches = start_us == 0 and rng.random() < 0.28
    ratio = _log_uniform(rng, 1.3, 3.5) if approaches else 1.0  # of sizes
    stands = class_id == DISTRACTOR and rng.random() < 0.2  # something in the foreground that others pass behind
    scale = side / source  # px of the canvas per px of the photograph
    wide, tall = mask.shape[1] * scale, mask.shape[0] * scale
    texel_px = min(1.0 / finer, 1.0)  # texels as fine as the sensor's pixels, at the middle size
    resize = min(scale / texel_px, 1.6)
    texture = _texture(rng, intensity, mask, resize, look.blur / texel_px, look)
    y = rng.uniform(0.25 * height + 0.5 * tall, max(1.1 * height, 0.3 * height + 0.6 * tall))
    inside = start_us == 0 and (moves or rng.random() < 0.85)
    low_pace, high_pace = PACES[class_id]
    pace = low_pace * (high_pace / low_pace) ** rng.beta(1.3, 1.3) * unit
    growth = along_x = along_y = 0.0
    if stands:
        x = rng.uniform(0, 1) * width
        times, speeds = np.array([0.0, float(duration_us)]), np.zeros(2)
    elif approaches:
        x = rng.uniform(0.1, 0.9) * width
        growth = 1.0 / max(tall, 8.0)  # a distance of the height grows it by e
        reach = np.log(ratio) / growth / 2
        along_x = rng.uniform(-0.5, 0.5) if rng.random() < 0.5 else 0.0
        pace = _log_uniform(rng, 0.06, 1.5) / growth
        times, speeds = legs(rng, pace, width, (-reach, reach), start_us, duration_us, True, **PAUSES)
        if rng.random() < 0.4:
            speeds = -speeds
    else:
        outside = wide / 2 + 4 * unit + (0.35 * width if moves else 0)
        entry = rng.uniform(0.05, 0.95) * width + outside if inside else 0.0
        facing = 1.0 if rng.random() < 0.5 else -1.0
        x = entry - outside if facing > 0 else width + outside - entry
        length = width + 2 * outside - entry
        slant = rng.uniform(-0.5, 0.5) * min(1.0, 0.5 * height / length) if rng.random() < 0.6 else 0.0
        along_x, along_y = facing * np.cos(slant), np.sin(slant)
        if rng.random() < 0.3:
            growth = along_y / max(y - 0.35 * height, 0.3 * height)
            growth = float(np.clip(growth, -0.8 / length, 0.8 / length))
        times, speeds = legs(rng, pace, width, (0.0, length), start_us, duration_us, False, **PAUSES)
    distance = np.concatenate(([0.0], np.cumsum(np.diff(times) * 1e-6 * (speeds[1:] + speeds[:-1]) / 2)))
    walks = class_id == PEDESTRIAN or (class_id == DISTRACTOR and rng.random() < 0.3)
    rides = class_id in (TWO_WHEELER, CAR)
    stride_px = rng.uniform(0.7, 1.1) * tall if walks else rng.uniform(2, 6) * wide
    return {
        "class_id": class_id, "texture": texture, "knot_us": times, "speed": speeds, "distance": distance,
        "start_us": start_us, "end_us": float(duration_us + 1) if approaches or stands else float(times[-1]),
        "x": x, "y": y, "along_x": along_x, "along_y": along_y, "growth": growth,
        "vanish_x": x if rng.random() < 0.3 else width / 2, "vanish_y": 0.35 * height, "scale": scale / resize,
        "phase": rng.uniform(0, 2 * np.pi), "stride": 2 * np.pi / stride_px,
        "swing": rng.uniform(0.08, 0.22) if walks else 0.0, "lean": rng.uniform(0, 0.06) if walks else 0.0,
        "bob": rng.uniform(0.005, 0.03) if walks else rng.uniform(0, 0.008) if rides else 0.0,
        "sway": rng.uniform(0.0, 0.04) if walks or class_id == TWO_WHEELER else 0.0,
        "near": 1e9 * stands + y + 0.2 * tall,  # whoever stands in the foreground is nearer than all others
    }  # fmt: skip


def _texture(rng: np.random.Generator, intensity: np.ndarray, mask: np.ndarray, resize: float, blur: float, look: _Look) -> np.ndarray:
    """(rows, columns, 2): intensity and coverage of a cut-out, as large as it will be seen, with one of several soft edges."""
    cv2 = import_cv2()
    how = cv2.INTER_AREA if resize < 1 else cv2.INTER_LINEAR
    size = (max(6, round(intensity.shape[1] * resize)), max(6, round(intensity.shape[0] * resize)))
    border = max(3, int(np.ceil(2.5 * blur)) + 1)
    pixels = cv2.resize(np.ascontiguousarray(intensity), size, interpolation=how)
    pixels = cv2.copyMakeBorder(pixels, border, border, border, border, cv2.BORDER_REPLICATE)
    covered = cv2.resize(np.ascontiguousarray(mask, np.float32), size, interpolation=how)
    covered = cv2.copyMakeBorder(covered, border, border, border, border, cv2.BORDER_CONSTANT, value=0)
    if blur > 0.2:
        pixels = cv2.GaussianBlur(pixels, (0, 0), blur)
    feather = blur * float(rng.choice([0.5, 1.0, 1.6]))
    if feather > 0.2:
        covered = cv2.GaussianBlur(covered, (0, 0), feather)
    covered[0], covered[-1], covered[:, 0], covered[:, -1] = 0, 0, 0, 0
    exposed = look.expose(np.clip(pixels, 0, 1) * np.exp(rng.normal(0, 0.25)))
    return np.stack((exposed, np.clip(covered, 0, 1)), axis=2).astype(np.float32)


def _edges(covered: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Where coverage passes one half: columns at which each row begins and ends (NaN: nowhere), the first and the last row."""
    left, right = np.full(len(covered), np.nan), np.full(len(covered), np.nan)
    for i, line in enumerate(covered):
        if line.max() >= 0.5:
            left[i], right[i] = _crossings(line)
    profile = covered.max(axis=1)
    top, bottom = _crossings(profile) if profile.max() >= 0.5 else (0.0, float(len(covered)))
    return left, right, top, bottom


def _crossings(line: np.ndarray) -> tuple[float, float]:
    inside = np.flatnonzero(line >= 0.5)
    first, last = inside[0], inside[-1]
    before, after = line[first - 1] if first else 0.0, line[last + 1] if last + 1 < len(line) else 0.0
    return first + 0.5 - (line[first] - 0.5) / (line[first] - before), last + 0.5 + (line[last] - 0.5) / (line[last] - after)
