"""CAMERA -> WHAT IT LOOKS AT: one photograph, or several joined to a panorama that is sharp though its photographs are small."""

from dataclasses import replace
from functools import lru_cache
from math import ceil

import numpy as np

from saccade.simulate.cutouts import import_cv2
from saccade.simulate.photo_texture import log_uniform
from saccade.simulate.photos import CAR, ColourImage, Photo, PhotoObject, PhotoSet
from saccade.types import InputError

ON_STREETS = 0.8  # share of the cameras that drive which do so through photographs of streets
EMPTY = 0.2  # share of the photographs without objects under a moving camera
PANORAMAS = 0.65  # share of the moving cameras that look at several photographs side by side
PANORAMA_EMPTY = 0.35  # share of those without objects in a panorama
PANORAMA_SCALE = (0.7, 1.4)  # px of the canvas per px of a photograph in a panorama: edges stay as thin as real cameras see them
ROOM = 1.15  # how much wider than the image a panorama is at least, to pan over
LEAST_PART = 0.35  # of an object at the edge of a panorama that keeps its label

Chosen = tuple[Photo, ColourImage, dict[str, str]]  # and photographs that were chosen before it but can't be read: name -> error


def choose_photo(rng: np.random.Generator, photos: PhotoSet, split: str | None, moves: bool, drives: bool) -> Chosen:
    """For this camera: to drive through, mostly streets; to move over, without crowds and seldom without objects."""
    return _read_one(rng, _suiting(rng, photos, split, moves, drives, EMPTY), photos)


def choose_panorama(
    rng: np.random.Generator, photos: PhotoSet, split: str | None, drives: bool, width: int, height: int
) -> tuple[Chosen, float]:
    """Rows of photographs that fill the image, and px of the canvas per px of it. Who drives has streets in the lowest row."""
    scale = log_uniform(rng, *PANORAMA_SCALE)
    first, image, unreadable = _read_one(rng, _suiting(rng, photos, split, True, drives, 0.0), photos)
    across = max(2, ceil(ROOM * width / (scale * first.width)))
    rows = max(1, ceil(height / (scale * first.height)))
    grid = []
    for row in range(rows):
        line = [(first, image)] if row == 0 else []
        while len(line) < across:
            one, its_image, failed = _read_one(rng, _suiting(rng, photos, split, True, drives and row == 0, PANORAMA_EMPTY), photos)
            line.append((one, its_image))
            unreadable |= failed
        order = rng.permutation(across)
        grid.append([line[i] for i in order])
    photo, image = join_photos(grid[::-1])
    return (photo, image, unreadable), max(scale, width / photo.width, height / photo.height)


def join_photos(grid: list[list[tuple[Photo, np.ndarray]]]) -> tuple[Photo, ColourImage]:
    """One photograph of many: the photographs of a row get the height of its lowest one, all rows the width of the narrowest."""
    cv2 = import_cv2()
    lines, objects, tops = [], [], [0]
    for row in grid:
        high, images, left = min(photo.height for photo, _ in row), [], 0
        for photo, image in row:
            factor = high / photo.height
            images.append(cv2.resize(image, (max(1, round(photo.width * factor)), high), interpolation=cv2.INTER_AREA))
            wide = images[-1].shape[1]
            objects += [_moved(item, wide / photo.width, factor, left, tops[-1]) for item in photo.objects]
            left += wide
        lines.append(np.concatenate(images, 1))
        tops.append(tops[-1] + high)
    width = min(line.shape[1] for line in lines)
    names = dict.fromkeys(photo.name for row in grid for photo, _ in row)
    kept = tuple(item for item in (_cut(item, width) for item in objects) if item is not None)
    joined = Photo(" + ".join(names), width, tops[-1], kept, any(photo.crowded for row in grid for photo, _ in row))
    return joined, np.concatenate([line[:, :width] for line in lines])


def _moved(item: PhotoObject, factor_x: float, factor_y: float, x: float, y: float) -> PhotoObject:
    left, top, right, bottom = item.box
    box = (left * factor_x + x, top * factor_y + y, right * factor_x + x, bottom * factor_y + y)
    return replace(item, box=box, polygons=tuple(points * (factor_x, factor_y) + (x, y) for points in item.polygons))


def _cut(item: PhotoObject, width: int) -> PhotoObject | None:
    """What is left of it on the left of the panorama's right edge."""
    left, top, right, bottom = item.box
    if right <= width:
        return item
    if width - left < LEAST_PART * (right - left):
        return None
    polygons = tuple(np.minimum(points, (width, np.inf)) for points in item.polygons)
    return replace(item, box=(left, top, float(width), bottom), polygons=polygons)


def _shows(photo: Photo) -> bool:
    """Whether an object has at least 12 % of the height."""
    return any(item.box[3] - item.box[1] >= 0.12 * photo.height for item in photo.objects)


@lru_cache(maxsize=16)
def _without_crowds(photos: PhotoSet, split: str | None, empty: bool) -> list[int]:
    """Photographs of the split that show objects, or that show none. Looking through all of them takes as long as 0.1 s of events."""
    of_split = range(len(photos.photos)) if split is None else photos.by_split[split]
    return [i for i in of_split if not photos.photos[i].crowded and _shows(photos.photos[i]) != empty]


@lru_cache(maxsize=16)
def _streets(photos: PhotoSet, split: str | None) -> list[int]:
    return [i for i in _without_crowds(photos, split, False) if _is_street(photos.photos[i])]


def _is_street(photo: Photo) -> bool:
    """Probably: two vehicles or more, and nothing that fills half of the height."""
    tallest = max(item.box[3] - item.box[1] for item in photo.objects)
    return sum(item.class_id == CAR for item in photo.objects) >= 2 and bool(tallest < 0.5 * photo.height)


def _suiting(rng: np.random.Generator, photos: PhotoSet, split: str | None, moves: bool, drives: bool, empty_share: float) -> list[int]:
    of_split = list(range(len(photos.photos))) if split is None else photos.by_split[split]
    if not of_split:
        raise InputError(
            f"{photos.labels_path}: too few photographs for a part of their own for {split}; `--split train` puts all into one"
        )
    empty = rng.random() < empty_share
    if drives and rng.random() < ON_STREETS and _streets(photos, split):
        return _streets(photos, split)
    return (_without_crowds(photos, split, empty) if moves else of_split) or of_split


def _read_one(rng: np.random.Generator, suiting: list[int], photos: PhotoSet) -> Chosen:
    unreadable: dict[str, str] = {}
    for i in rng.permutation(len(suiting))[:20]:
        photo = photos.photos[suiting[i]]
        try:
            return photo, photos.read(photo), unreadable
        except InputError as error:  # damaged: another one
            unreadable[photo.name] = str(error)
    *_, last = unreadable.values()
    raise InputError(f"{photos.labels_path}: {len(unreadable)} photographs in a row can't be read; the last one: {last}")
