"""PHOTOGRAPHS -> CUT-OUTS: objects, and pieces of background as distractors, with masks; cut once, kept in cutouts.npz beside the data set.

Without outlines in the label file the mask comes from GrabCut. A box of COCO is tight, so a right mask reaches all four of its sides; about
half do, and only those are kept.
"""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from saccade.arrays import open_arrays
from saccade.cluster import LOCAL, spread
from saccade.files import replacing
from saccade.simulate.photos import CAR, PEDESTRIAN, TWO_WHEELER, ColourImage, Photo, PhotoObject, PhotoSet, open_photos, warn_unreadable
from saccade.types import InputError

Mask = Bool[np.ndarray, "rows columns"]

CUTTER = 1  # raised whenever the same photographs give other cut-outs
DISTRACTOR = -1  # instead of a class
SHARES = {CAR: 0.36, PEDESTRIAN: 0.28, TWO_WHEELER: 0.2, DISTRACTOR: 0.16}
SPLIT_SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
LEAST_SIZE = {CAR: (24, 16), PEDESTRIAN: (10, 28), TWO_WHEELER: (16, 22), DISTRACTOR: (14, 20)}  # width and height in the photograph, px
SHAPES = {CAR: (0.6, 4.0), PEDESTRIAN: (0.2, 0.75), TWO_WHEELER: (0.3, 2.5)}  # width / height
LARGE_VEHICLES, LARGE_SHARE = ("bus", "truck"), 0.3  # share that is used: a whole one fills most of its photograph
CUT_SIDE = 72  # px: larger boxes are cut at this size, in a fifth of the time
FREE = 0.12  # of a box may be covered by boxes of other objects
MARGIN = 2  # px around the mask that are kept, for soft edges
BATCH = 32  # candidates per piece of work
GREY = np.array([0.2126, 0.7152, 0.0722])  # of linear red, green and blue


@dataclass(frozen=True, kw_only=True)
class PhotosConfig:
    """Where the photographs of a data set are, and how many cut-outs are made of them."""

    labels: str
    images: tuple[str, ...] = ()
    digest: str = ""  # of the label file, so that a data set is never completed with others
    cutouts: int = 2000

    def __post_init__(self) -> None:
        if not 8 <= self.cutouts <= 200_000:
            raise InputError(f"photos: cutouts={self.cutouts} must be within 8 and 200,000")


@lru_cache(maxsize=2)
def photo_set(labels: str, images: tuple[str, ...]) -> PhotoSet:
    """Opened once per process."""
    return open_photos(labels, images)


@dataclass(frozen=True, eq=False)
class Cutouts:
    """All cut-outs, their pixels one after the other."""

    class_id: np.ndarray  # (n,) int64, DISTRACTOR for none
    split: np.ndarray  # (n,) int64, index into SPLIT_SHARES
    rows: np.ndarray  # (n,) int64
    columns: np.ndarray
    start: np.ndarray  # (n,) int64, first pixel in the two below
    grey: np.ndarray  # (pixels,) uint8, linear intensity as 255 * sqrt(intensity): 8 bits, dark ones finer
    mask: np.ndarray  # (pixels,) uint8, 0 or 1

    def get(self, i: int) -> tuple[np.ndarray, Mask]:
        """Linear intensity in [0, 1] (float32) and the mask of one cut-out."""
        rows, columns, start = int(self.rows[i]), int(self.columns[i]), int(self.start[i])
        part = slice(start, start + rows * columns)
        intensity = (self.grey[part].astype(np.float32) / 255) ** 2
        return intensity.reshape(rows, columns), self.mask[part].astype(bool).reshape(rows, columns)

    def of(self, split: str | None, class_id: int) -> np.ndarray:
        """Indices of the cut-outs of a class, of one split or (None) of all."""
        chosen = self.class_id == class_id
        if split is not None:
            chosen &= self.split == list(SPLIT_SHARES).index(split)
        return np.flatnonzero(chosen)


def to_linear(image: ColourImage) -> np.ndarray:
    """sRGB bytes -> linear grey intensity in [0, 1], float32."""
    return (_LINEAR[image] @ GREY).astype(np.float32)


def _linear_table() -> np.ndarray:
    value = np.arange(256) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


_LINEAR = _linear_table()


def load_cutouts(path: Path, config: PhotosConfig) -> Cutouts | None:
    """Those of the file, or None if there is none made of the same label file with the same settings."""
    if not path.exists():
        return None
    try:
        with open_arrays(path) as arrays:
            if str(arrays["made_of"]) != _made_of(config):
                return None
            return Cutouts(**{item.name: arrays[item.name] for item in fields(Cutouts)})
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: can't be read as cut-outs ({error}); remove it, it is made again") from error


def prepare_cutouts(
    path: Path, config: PhotosConfig, processes: int | None = 1, progress: Callable[[int, int], None] | None = None, on: str = LOCAL
) -> Cutouts:
    """Load the cut-outs or make and store them. PROGRESS gets how many are done and how many are wanted."""
    there = load_cutouts(path, config)
    if there is not None:
        return there
    import_cv2()
    found = _make(config, processes, progress, on)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, made_of=_made_of(config), **{item.name: getattr(found, item.name) for item in fields(Cutouts)})
    return found


def _made_of(config: PhotosConfig) -> str:
    return f"{CUTTER} {config.digest} {config.cutouts}"


def import_cv2() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise InputError('events of photographs need OpenCV; `pip install "saccade-events[photos]"`') from error
    return cv2


Candidate = tuple[int, int]  # index of the photograph, of the object in it (-1 and below: a place for a distractor)
Work = tuple[PhotosConfig, int, tuple[Candidate, ...]]  # config, number of the piece, candidates
Cut = tuple[np.ndarray, np.ndarray]  # grey (coded), mask; uint8


def _make(config: PhotosConfig, processes: int | None, progress: Callable[[int, int], None] | None, on: str) -> Cutouts:
    photos = photo_set(config.labels, config.images)
    kept: list[tuple[int, int, Cut]] = []
    unreadable: dict[str, str] = {}
    for number, (split, share) in enumerate(SPLIT_SHARES.items()):
        for class_id, part in SHARES.items():
            wanted = max(1, round(config.cutouts * share * part))
            candidates = _candidates(photos, split, class_id)
            found: list[Cut] = []
            while len(found) < wanted and candidates:
                count = min(len(candidates), 2 * (wanted - len(found)) + BATCH)  # about half are kept
                now, candidates = candidates[:count], candidates[count:]
                pieces: list[Work] = [(config, i, tuple(now[i : i + BATCH])) for i in range(0, count, BATCH)]
                results: dict[int, list[Cut]] = {}
                for piece, (cuts, failed) in spread(_cut_all, pieces, processes, on=on, what="cut-outs"):
                    results[piece[1]] = cuts
                    unreadable |= failed
                    if progress:
                        progress(len(kept) + min(wanted, len(found) + sum(map(len, results.values()))), config.cutouts)
                found += [cut for i in sorted(results) for cut in results[i]]
            kept += [(class_id, number, cut) for cut in found[:wanted]]
    warn_unreadable(config.labels, "cut-outs", unreadable)
    if not any(class_id != DISTRACTOR for class_id, _, _ in kept):
        raise InputError(f"{config.labels}: no object could be cut out; expected whole ones of at least 24 x 24 pixels")
    sizes = np.array([cut[0].shape for _, _, cut in kept], np.int64)
    start = np.concatenate(([0], np.cumsum(sizes.prod(axis=1))[:-1]))
    return Cutouts(
        np.array([class_id for class_id, _, _ in kept], np.int64),
        np.array([number for _, number, _ in kept], np.int64),
        sizes[:, 0],
        sizes[:, 1],
        start,
        np.concatenate([cut[0].ravel() for _, _, cut in kept]),
        np.concatenate([cut[1].ravel() for _, _, cut in kept]),
    )


def _candidates(photos: PhotoSet, split: str, class_id: int) -> list[Candidate]:
    """All objects of a class that are whole, large enough and not covered by others, in a fixed random order; or places without
    objects."""
    rng = np.random.default_rng([0xC07, list(SPLIT_SHARES).index(split), class_id + 1])
    found: list[Candidate] = []
    for i in photos.by_split[split]:
        photo = photos.photos[i]
        if class_id == DISTRACTOR:
            found += [(i, -1 - k) for k in range(1 if photo.objects else 4)]
        elif not photo.crowded:
            suiting = [k for k, item in enumerate(photo.objects) if item.class_id == class_id and _suits(photo, k)]
            found += [(i, k) for k in suiting if photo.objects[k].category not in LARGE_VEHICLES or rng.random() < LARGE_SHARE]
    return [found[i] for i in rng.permutation(len(found))]


def _suits(photo: Photo, k: int) -> bool:
    left, top, right, bottom = photo.objects[k].box
    wide, high = right - left, bottom - top
    whole = left >= 1.5 and top >= 1.5 and right <= photo.width - 1.5 and bottom <= photo.height - 1.5
    class_id = photo.objects[k].class_id
    least, shape = LEAST_SIZE[class_id], SHAPES[class_id]
    if not whole or wide < least[0] or high < least[1] or not shape[0] < wide / high < shape[1]:
        return False
    others = [item.box for i, item in enumerate(photo.objects) if i != k]
    return sum(_shared(photo.objects[k].box, other) for other in others) <= FREE * wide * high


def _shared(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Area of the intersection of two boxes."""
    return max(0.0, min(one[2], other[2]) - max(one[0], other[0])) * max(0.0, min(one[3], other[3]) - max(one[1], other[1]))


def _cut_all(work: Work) -> tuple[list[Cut], dict[str, str]]:
    """Cut-outs, and photographs that can't be read (name -> error)."""
    config, _, candidates = work
    photos = photo_set(config.labels, config.images)
    cuts: list[Cut] = []
    unreadable: dict[str, str] = {}
    for i, k in candidates:
        try:
            image = photos.read(photos.photos[i])
        except InputError as error:
            unreadable[photos.photos[i].name] = str(error)
            continue
        photo = photos.photos[i]
        cut = cut_object(image, photo.objects[k]) if k >= 0 else _distractor(image, photo, np.random.default_rng([0xD15, i, -k]))
        if cut is not None:
            cuts.append(cut)
    return cuts, unreadable


def cut_object(image: ColourImage, item: PhotoObject) -> Cut | None:
    """Grey values and mask of an object, None if no mask reaches all sides of its box."""
    cv2 = import_cv2()
    if item.polygons:
        drawn = np.zeros(image.shape[:2], np.uint8)
        cv2.fillPoly(drawn, [np.rint(polygon).astype(np.int32) for polygon in item.polygons], 1)
        return _tight(image, drawn.astype(bool))
    mask = grab(image, item.box, narrow=item.class_id == PEDESTRIAN)
    return None if mask is None else _tight(image, mask)


def grab(image: ColourImage, box: tuple[float, float, float, float], *, narrow: bool) -> Mask | None:
    """GrabCut in colour inside a tight box, begun with a probable ellipse and a sure core."""
    cv2 = import_cv2()
    left, top, right, bottom = box
    margin = max(6, round(0.2 * max(right - left, bottom - top)))
    x0, y0 = max(0, int(left) - margin), max(0, int(top) - margin)
    x1, y1 = min(image.shape[1], int(right) + margin + 1), min(image.shape[0], int(bottom) + margin + 1)
    part = np.ascontiguousarray(image[y0:y1, x0:x1, ::-1])
    scale = min(1.0, CUT_SIDE / max(right - left, bottom - top))
    small = cv2.resize(part, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else part
    inner = np.rint((np.array(box) - (x0, y0, x0, y0)) * scale).astype(int)
    labels = np.full(small.shape[:2], cv2.GC_BGD, np.uint8)
    labels[inner[1] : inner[3], inner[0] : inner[2]] = cv2.GC_PR_BGD
    y, x = np.mgrid[: labels.shape[0], : labels.shape[1]]
    x = abs(2 * x + 1 - inner[0] - inner[2]) / max(inner[2] - inner[0], 1)  # 0 in the middle of the box, 1 at its sides
    y = abs(2 * y + 1 - inner[1] - inner[3]) / max(inner[3] - inner[1], 1)
    labels[(x**3 + y**3) < 1] = cv2.GC_PR_FGD
    core = (0.25, 0.85) if narrow else (0.75, 0.6)
    labels[(x / core[0]) ** 2 + (y / core[1]) ** 2 < 1] = cv2.GC_FGD
    cv2.setRNGSeed(7)  # the same photograph, the same mask
    try:
        cv2.grabCut(small, labels, None, np.zeros((1, 65)), np.zeros((1, 65)), 3, cv2.GC_INIT_WITH_MASK)
    except cv2.error:
        return None
    found = ((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)).astype(np.uint8)
    outlines, _ = cv2.findContours(found, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not outlines:
        return None
    filled = np.zeros_like(found)
    cv2.drawContours(filled, [max(outlines, key=cv2.contourArea)], -1, 1, -1)  # without holes: windows belong to the car
    rows, columns = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
    wide, high = inner[2] - inner[0], inner[3] - inner[1]
    beyond = [columns[0] - inner[0], inner[2] - columns[-1] - 1, rows[0] - inner[1], inner[3] - rows[-1] - 1]  # 0 where it reaches a side
    near_x, near_y = max(2.0, 0.08 * wide), max(2.0, 0.08 * high)
    fullness = filled.sum() / max(wide * high, 1)
    if max(beyond[:2]) > near_x or max(beyond[2:]) > near_y or not 0.25 < fullness < 0.93:
        return None
    if (filled & (1 - found)).sum() > 0.2 * filled.sum():
        return None
    whole = np.zeros(image.shape[:2], bool)
    size = (x1 - x0, y1 - y0)
    whole[y0:y1, x0:x1] = cv2.resize(filled.astype(np.float32), size, interpolation=cv2.INTER_LINEAR) >= 0.5
    return whole


def _distractor(image: ColourImage, photo: Photo, rng: np.random.Generator) -> Cut | None:
    """A piece of a place without objects: by GrabCut like an object, or, if its mask doesn't reach the sides, with a random outline."""
    cv2 = import_cv2()
    high = float(np.exp(rng.uniform(np.log(20), np.log(max(0.6 * photo.height, 21)))))
    wide = float(np.clip(high * np.exp(rng.uniform(np.log(0.35), np.log(2.5))), 14, 0.8 * photo.width))
    left, top = rng.uniform(1, max(photo.width - wide - 1, 1.1)), rng.uniform(1, max(photo.height - high - 1, 1.1))
    box = (left, top, left + wide, top + high)
    if box[2] > photo.width or box[3] > photo.height or any(_shared(box, item.box) > 0.02 * wide * high for item in photo.objects):
        return None
    found = grab(image, box, narrow=False) if rng.random() < 0.7 else None
    if found is None:
        angle = np.arange(48) * 2 * np.pi / 48
        radius = 1 + sum(rng.normal(0, 0.25 / n) * np.cos(n * angle + rng.uniform(0, 6.3)) for n in range(1, 6))
        points = np.stack((np.cos(angle), np.sin(angle)), 1) * np.clip(radius, 0.2, None)[:, None]
        points = (points - points.min(axis=0)) / np.ptp(points, axis=0) * (wide, high) + (left, top)
        drawn = np.zeros(image.shape[:2], np.uint8)
        cv2.fillPoly(drawn, [np.rint(points).astype(np.int32)], 1)
        found = drawn.astype(bool)
    if not found.any() or image[found].std() < 10:  # no texture: would make no events
        return None
    return _tight(image, found)


def _tight(image: ColourImage, mask: Mask) -> Cut | None:
    """The rectangle of the mask with a margin, repeated at the photograph's border."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if len(rows) < 8 or len(columns) < 8:
        return None
    y = np.clip(np.arange(rows[0] - MARGIN, rows[-1] + 1 + MARGIN), 0, image.shape[0] - 1)
    x = np.clip(np.arange(columns[0] - MARGIN, columns[-1] + 1 + MARGIN), 0, image.shape[1] - 1)
    grey = np.rint(255 * np.sqrt(to_linear(image[y[:, None], x]))).astype(np.uint8)
    inside = np.zeros(grey.shape, np.uint8)
    inside[MARGIN:-MARGIN, MARGIN:-MARGIN] = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return grey, inside
