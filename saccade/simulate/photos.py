"""LABEL FILE + IMAGES -> PHOTOGRAPHS: COCO json (or .json.xz), images in folders or zips; riders joined with what they ride."""

import hashlib
import io
import json
import logging
import lzma
import warnings
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from saccade.arrays import FREE_BYTES
from saccade.files import check_readable
from saccade.simulate.shapes import CLASSES
from saccade.types import InputError

log = logging.getLogger("saccade")

ColourImage = UInt8[np.ndarray, "height width 3"]  # sRGB

# Categories of COCO, and names that other data sets use for them. Others are background.
CAR, PEDESTRIAN, TWO_WHEELER = (CLASSES.index(name) for name in ("car", "pedestrian", "two-wheeler"))
CLASS_OF_CATEGORY = {
    "person": PEDESTRIAN, "pedestrian": PEDESTRIAN, "people": PEDESTRIAN, "rider": PEDESTRIAN,
    "bicycle": TWO_WHEELER, "motorcycle": TWO_WHEELER, "motorbike": TWO_WHEELER, "two-wheeler": TWO_WHEELER, "cyclist": TWO_WHEELER,
    "car": CAR, "bus": CAR, "truck": CAR, "van": CAR,
}  # fmt: skip
LABELS_PACKED = 50  # how many times smaller than its text a label file may be
SMALLEST_SIDE, LARGEST_SIDE = 32, 8192  # px of a photograph; others are skipped
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True, eq=False)
class PhotoObject:
    """What a photograph shows: class, tight box (left, top, right, bottom in its pixels) and, where the label file has them, outlines."""

    class_id: int
    box: tuple[float, float, float, float]
    polygons: tuple[np.ndarray, ...] = ()  # each (n, 2), x y
    category: str = ""  # in the label file


@dataclass(frozen=True, eq=False)
class Photo:
    name: str  # file name in the label file
    width: int
    height: int
    objects: tuple[PhotoObject, ...]
    crowded: bool  # has a crowd labelled as one box, without boxes of the persons in it


@dataclass(eq=False)
class PhotoSet:
    """All photographs of a label file whose image was found."""

    labels_path: Path
    photos: tuple[Photo, ...]
    skipped: Counter[str]  # reason -> images or boxes
    digest: str  # of the label file
    _places: dict[str, tuple[Path, str | None]] = field(repr=False)  # image name -> file, or zip and name in it
    _zips: dict[Path, zipfile.ZipFile] = field(default_factory=dict, repr=False)

    def read(self, photo: Photo) -> ColourImage:
        """The image in colour, upright as stored; InputError names the file if it can't be decoded or isn't as large as its labels say."""
        path, inner = self._places[photo.name]
        where = str(path) if inner is None else f"{path}: {inner}"
        try:
            data = path.read_bytes() if inner is None else self._unpacked(path, inner)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
            raise InputError(f"{where}: can't be read ({error})") from error
        image = decode(data, where)
        if image.shape[:2] != (photo.height, photo.width):
            raise InputError(
                f"{where}: {image.shape[1]} x {image.shape[0]} pixels, but {self.labels_path.name} says {photo.width} x {photo.height}"
            )
        return image

    def _unpacked(self, path: Path, inner: str) -> bytes:
        member = self._zip(path).getinfo(inner)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.file_size > FREE_BYTES:
            raise ValueError(f"{member.file_size >> 20} MB as a file, or packed in a way that images aren't")
        return self._zip(path).read(inner)

    def _zip(self, path: Path) -> zipfile.ZipFile:
        if path not in self._zips:
            self._zips[path] = zipfile.ZipFile(path)
        return self._zips[path]

    @cached_property
    def by_split(self) -> dict[str, list[int]]:
        """Indices of the photographs for training (80 %), validation and test (10 % each), by a hash of the name: no photograph is in two,
        and it stays where it is when others are added."""
        splits: dict[str, list[int]] = {"train": [], "val": [], "test": []}
        for i, photo in enumerate(self.photos):
            tenth = hashlib.sha256(photo.name.encode()).digest()[0] % 10
            splits["val" if tenth == 8 else "test" if tenth == 9 else "train"].append(i)
        return splits


def warn_unreadable(labels: Path | str, what: str, unreadable: dict[str, str]) -> None:
    """One line for all photographs (name -> error) that were passed over, none if all could be read."""
    if unreadable:
        name = min(unreadable)
        log.warning("%s: skipped %d photographs that can't be read for %s; the first: %s", labels, len(unreadable), what, unreadable[name])


def decode(data: bytes, where: str) -> ColourImage:
    """Any image that Pillow reads: CMYK, grey, palettes and transparency become RGB; of an animation the first picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                if not all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in image.size):
                    raise InputError(
                        f"{where}: {image.width} x {image.height} pixels; sides must be within {SMALLEST_SIDE} and {LARGEST_SIDE}"
                    )
                return np.array(image.convert("RGB"))
    except InputError:
        raise
    except (
        OSError,
        SyntaxError,
        ValueError,
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise InputError(f"{where}: no image that can be decoded ({error}); truncated or damaged?") from error


def open_photos(labels: Path | str, images: tuple[Path | str, ...] = ()) -> PhotoSet:
    """Read a COCO label file; IMAGES are folders or zips, those beside the label file if none are given."""
    path = Path(labels)
    content, digest = _read_json(path)
    places = _find_images(tuple(map(Path, images)) or _beside(path))
    skipped: Counter[str] = Counter()
    names = {entry["id"]: str(entry["name"]).lower() for entry in content["categories"]}
    marks: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for mark in content["annotations"]:
        marks[mark.get("image_id")].append(mark)
    photos = []
    for entry in content["images"]:
        name = str(entry["file_name"])
        key = name if name in places else Path(name).name
        if key not in places:
            skipped["images that are not there"] += 1
            continue
        if not all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in (entry["width"], entry["height"])):
            skipped[f"images with a side below {SMALLEST_SIDE} or above {LARGEST_SIDE} pixels"] += 1
            continue
        objects, crowded = _objects(marks[entry["id"]], names, entry["width"], entry["height"], skipped)
        photos.append(Photo(key, entry["width"], entry["height"], join_riders(objects), crowded))
    missing = skipped["images that are not there"]
    if not photos:
        looked = ", ".join(str(image) for image in images) or str(path.parent)
        why = "; ".join(f"{count:,} {reason}" for reason, count in skipped.items()) or "it lists no images"
        raise InputError(f"{path}: no photograph to use ({why}); looked in {looked}; `--images` names folders or zips")
    if not any(photo.objects for photo in photos):
        raise InputError(f"{path}: no box of {', '.join(CLASS_OF_CATEGORY)} on any image that was found ({missing:,} were not)")
    return PhotoSet(path, tuple(photos), +skipped, digest, places)


def _read_json(path: Path) -> tuple[dict[str, Any], str]:
    """The label file, with the keys and types of COCO that are used here."""
    check_readable(path)
    try:
        data = path.read_bytes()
        if path.suffix == ".xz":
            unpacking = lzma.LZMADecompressor()
            data = unpacking.decompress(data, max_length=FREE_BYTES + LABELS_PACKED * len(data))
            if not unpacking.eof:
                raise ValueError("cut off, or unpacks to more than labels do")
        content = json.loads(data)
        for name, needed in (("images", ("id", "file_name", "width", "height")), ("annotations", ()), ("categories", ("id", "name"))):
            for entry in content[name]:
                missing = [key for key in needed if key not in entry]
                if missing:
                    raise KeyError(f"{name}[...].{missing[0]}")
        if not all(isinstance(entry[side], int) for entry in content["images"] for side in ("width", "height")):
            raise ValueError("width and height of images must be whole numbers")
    except KeyError as error:
        raise InputError(f"{path}: no {error} in it; expected COCO labels with images, annotations and categories") from error
    except (OSError, ValueError, TypeError, EOFError, lzma.LZMAError, RecursionError) as error:
        raise InputError(f"{path}: can't be read as COCO labels ({error}); expected .json or .json.xz") from error
    return content, hashlib.sha256(data).hexdigest()


def _beside(labels: Path) -> tuple[Path, ...]:
    folder = labels.parent
    return (folder, *sorted(folder.glob("*.zip")))


def _find_images(sources: tuple[Path, ...]) -> dict[str, tuple[Path, str | None]]:
    """By path inside the folder or zip, and by bare file name; the first one found counts."""
    places: dict[str, tuple[Path, str | None]] = {}
    for source in sources:
        if source.is_dir():
            for file in sorted(file for file in source.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES):
                places.setdefault(file.relative_to(source).as_posix(), (file, None))
                places.setdefault(file.name, (file, None))
            continue
        check_readable(source)
        try:
            with zipfile.ZipFile(source) as archive:
                names = [name for name in archive.namelist() if name.lower().endswith(IMAGE_SUFFIXES)]
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise InputError(f"{source}: not a zip that can be read ({error}); --images expects folders or zips of images") from error
        for name in names:
            places.setdefault(name, (source, name))
            places.setdefault(Path(name).name, (source, name))
    return places


def _objects(
    marks: list[dict[str, Any]], names: dict[Any, str], width: int, height: int, skipped: Counter[str]
) -> tuple[list[tuple[str, PhotoObject]], bool]:
    """Category names and objects of one image, cut at its border; boxes that make no sense are counted and left out."""
    objects, crowded = [], False
    for mark in marks:
        category = names.get(mark.get("category_id"), "")
        if category not in CLASS_OF_CATEGORY:
            continue
        if mark.get("iscrowd"):
            crowded = True
            continue
        try:
            left, top, wide, high = (float(value) for value in mark["bbox"])
        except (KeyError, TypeError, ValueError):
            skipped["labels without a box"] += 1
            continue
        box = max(left, 0.0), max(top, 0.0), min(left + wide, float(width)), min(top + high, float(height))
        if not (np.isfinite([left, top, wide, high]).all() and box[2] - box[0] >= 1 and box[3] - box[1] >= 1):
            skipped["boxes outside their image or without area"] += 1
            continue
        polygons = _polygons(mark.get("segmentation"))
        objects.append((category, PhotoObject(CLASS_OF_CATEGORY[category], box, polygons, category)))
    return objects, crowded


def _polygons(segmentation: Any) -> tuple[np.ndarray, ...]:
    """Polygons as COCO writes them; run lengths (of crowds) are left to the box."""
    if not isinstance(segmentation, list):
        return ()
    try:
        polygons = tuple(np.array(polygon, np.float64).reshape(-1, 2) for polygon in segmentation)
    except (ValueError, TypeError):
        return ()
    return polygons if all(len(polygon) >= 3 and np.isfinite(polygon).all() for polygon in polygons) else ()


def join_riders(objects: list[tuple[str, PhotoObject]]) -> tuple[PhotoObject, ...]:
    """A two-wheeler and the persons on it become one two-wheeler. A person beside it stays a pedestrian, as far as boxes can tell."""
    left = list(range(len(objects)))
    joined: list[PhotoObject] = []
    for i, (category, machine) in enumerate(objects):
        if machine.class_id != TWO_WHEELER:
            continue
        left.remove(i)
        box, polygons = machine.box, machine.polygons
        riders = (
            [] if category == "cyclist" else [k for k in left if objects[k][1].class_id == PEDESTRIAN and _rides(objects[k][1], machine)]
        )
        for k in riders:
            rider = objects[k][1]
            pairs = tuple(zip(box, rider.box, strict=True))
            box = min(pairs[0]), min(pairs[1]), max(pairs[2]), max(pairs[3])
            polygons = (*polygons, *rider.polygons) if polygons and rider.polygons else ()
            left.remove(k)
        joined.append(PhotoObject(TWO_WHEELER, box, polygons, category))
    return (*(objects[k][1] for k in left), *joined)


def _rides(person: PhotoObject, machine: PhotoObject) -> bool:
    """Sits above the machine's middle, has its feet on it and not on the ground beside, and is about as large."""
    left, top, right, bottom = machine.box
    wide, high = right - left, bottom - top
    own_wide, own_high = person.box[2] - person.box[0], person.box[3] - person.box[1]
    centre = (person.box[0] + person.box[2]) / 2
    overlap = min(right, person.box[2]) - max(left, person.box[0])
    return (
        left - 0.05 * wide <= centre <= right + 0.05 * wide
        and overlap >= 0.6 * min(wide, own_wide)
        and person.box[1] < top + 0.35 * high
        and top + 0.3 * high < person.box[3] < bottom + 0.08 * high
        and 0.4 * high < own_high < 3.0 * high
    )
