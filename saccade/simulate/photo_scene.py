"""SEED + PHOTOGRAPHS -> SCENE: a camera over one photograph, and cut-outs of others that drive, walk, approach, stop, hide one another."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from saccade.simulate import photo_render as kernels
from saccade.simulate.cutouts import Cutouts, import_cv2, to_linear
from saccade.simulate.photo_choice import PANORAMAS, choose_panorama, choose_photo
from saccade.simulate.photo_motion import Fixtures, Movers, PhotoCamera
from saccade.simulate.photo_plan import draw_setting, plan_movers, plan_photo_camera
from saccade.simulate.photo_texture import Exposure, log_uniform
from saccade.simulate.photos import Photo, PhotoObject, PhotoSet
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.shapes import CLASSES
from saccade.simulate.simulation import IntensityImage, TimedImage, Truth, as_truth, check_scene, check_times
from saccade.types import Times

GENERATOR = 10  # raised whenever the same seed gives another scene
STANDS = 0.55  # share of scenes whose camera doesn't move, unless stated
DRIVES = 0.35  # share of the moving cameras that drive, unless stated
DRIVEN_SCALE = 1.25  # so little larger than the image are photographs to drive through: a whole street, sharp
DULL = 0.18  # share of the sensors with high thresholds: hardly more than outlines
FINER = {1: 0.76, 2: 0.21, 3: 0.03}  # sensor pixels per canvas pixel (a large sensor scaled down) -> probability
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
    unreadable: dict[str, str]  # photographs that were chosen before it: name -> error

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
    """A random sensor, as varied as those of real recordings."""
    rng = np.random.default_rng([0x5E0, seed])
    dull = rng.random() < DULL
    threshold, bias = log_uniform(rng, *((0.3, 0.65) if dull else (0.09, 0.42))), np.exp(rng.normal(0.04, 0.25))
    bursts = rng.random() < 0.25
    quiet = 0.01 if rng.random() < 0.2 else 1.0  # a camera whose noise is filtered
    return SensorConfig(
        threshold_on=float(np.clip(threshold * bias, 0.08, 0.9)),
        threshold_off=float(np.clip(threshold / bias, 0.08, 0.9)),
        mismatch=rng.uniform(0.01, 0.12),
        refractory_us=log_uniform(rng, 20, 3000),
        cutoff_hz=log_uniform(rng, 100, 2000),
        dark_cutoff_hz=log_uniform(rng, 10, 100),
        shot_hz=quiet * log_uniform(rng, 0.0005, 0.6),
        leak_hz=quiet * log_uniform(rng, 0.0005, 0.12),
        hot_fraction=quiet * log_uniform(rng, 1e-5, 1e-3),
        hot_hz=log_uniform(rng, 10, 300),
        burst=rng.uniform(0.1, 0.75) if bursts else 0.0,
        burst_us=log_uniform(rng, 1, 10),
        burst_flip=rng.uniform(0, 0.5) if bursts else 0.0,
    )


def make_photo_scene(
    seed: int, photos: PhotoSet, cutouts: Cutouts, width: int = 160, height: int = 128, seconds: float = 4.0, *,
    split: str | None = None, standing: float = STANDS, driving: float = DRIVES,
) -> PhotoScene:  # fmt: skip
    """A photograph of the split (of all, if None) with cut-outs of the same split.

    STANDING: probability that the camera doesn't move. DRIVING: probability that one which moves does so as in a car.
    """
    check_scene(seed, width, height, seconds)
    rng = np.random.default_rng([0xF070, GENERATOR, seed])
    moves = bool(rng.random() >= standing)
    drives = moves and bool(rng.random() < driving)
    panorama = moves and bool(rng.random() < PANORAMAS)
    if panorama:
        (photo, image, unreadable), scale = choose_panorama(rng, photos, split, drives, width, height)
    else:
        photo, image, unreadable = choose_photo(rng, photos, split, moves, drives)
        largest = DRIVEN_SCALE if drives else 2.2 if moves else 1.5
        scale = max(width / photo.width, height / photo.height) * log_uniform(
            rng, 1.0, largest
        )  # px of the canvas per px of the photograph
    duration_us, finer = round(seconds * 1e6), int(rng.choice(list(FINER), p=list(FINER.values())))
    look = Exposure(
        light=0.08 * (1.6 / 0.08) ** rng.beta(2.0, 1.3),
        contrast=rng.uniform(0.7, 1.0),
        haze=rng.uniform(0, 0.05),
        blur=log_uniform(rng, 0.25, 1.2) / finer**0.5,
    )
    density = min(float(finer), 1.5 / scale)  # texels per px: no more than the photograph has
    background = _background(image, scale * density, density, look)
    extent = np.array([background.shape[1], background.shape[0]]) / density
    room = np.maximum(extent - (width, height), 0)
    mirrored = bool(rng.random() < 0.5)
    origin = _look_at(rng, photo, scale, mirrored, room, (width, height))
    if mirrored:
        background = np.ascontiguousarray(background[:, ::-1])
    setting = draw_setting(rng, width, height, duration_us, moves, drives)
    camera = plan_photo_camera(rng, setting, origin, room)
    outlines = [_outline(item, scale, origin, photo.width if mirrored else None) for item in photo.objects] if moves else []
    fixtures = Fixtures(
        np.array([item.class_id for item in photo.objects] if moves else [], np.int64),
        np.cumsum([0, *map(len, outlines)]),
        np.concatenate(outlines) if outlines else np.zeros((0, 2)),
        np.zeros(len(outlines)),
    )
    fixtures = fixtures._replace(seen_us=kernels.first_seen(fixtures, camera, duration_us, width, height, SEEN_STEP_US))
    movers = plan_movers(rng, cutouts, split, setting, look, finer)
    place = (float(origin[0]), float(origin[1]))
    return PhotoScene(seed, width, height, duration_us, finer, background, place, density, camera, movers, fixtures, photo.name, unreadable)


def _look_at(rng: np.random.Generator, photo: Photo, scale: float, mirrored: bool, room: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Where in the world the photograph's corner is, so that one of its objects is in the image when the recording begins."""
    if not photo.objects:
        return -rng.uniform(0, 1, 2) * room
    areas = np.array([(item.box[2] - item.box[0]) * (item.box[3] - item.box[1]) for item in photo.objects])
    left, top, right, bottom = photo.objects[int(rng.choice(len(areas), p=areas**0.5 / (areas**0.5).sum()))].box
    x, y = (left + right) / 2, (top + bottom) / 2
    centre = np.array([photo.width - x if mirrored else x, y]) * scale
    return -np.clip(centre - rng.uniform(0.2, 0.8, 2) * size, 0, room)


def _background(image: np.ndarray, resize: float, density: float, look: Exposure) -> np.ndarray:
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
