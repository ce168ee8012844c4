"""COCO json -> LABELS of recordings, see `read_coco`."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from saccade.datasets.label_csv import TIMES, first_event_us
from saccade.datasets.labels import RawLabels, from_columns
from saccade.files import check_readable
from saccade.types import InputError

EXPECTED = (
    'expected {"images": [{"id", "file_name": recording, "time_us" or "time_s"}], '
    '"annotations": [{"image_id", "category_id", "bbox": [x, y, w, h]}], "categories": [{"id", "name"}]}'
)


def is_coco(path: Path) -> bool:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and {"images", "annotations", "categories"} <= value.keys()


def recordings_in(path: Path) -> list[str]:
    return sorted({image["file_name"] for image in _parsed(path)["images"]})


def categories_in(path: Path) -> dict[int, str]:
    """Names by id, in the order of the ids."""
    return dict(sorted((item["id"], str(item["name"])) for item in _parsed(path)["categories"]))


def read_coco(path: Path, file_name: str, classes: tuple[str, ...], events: Path) -> RawLabels:
    """Labels of one recording out of a file that holds those of all.

    images       {"id", "file_name": the recording, and the time of the labelled instant: "time_us", or "time_s" in seconds}
                 (also t_us, timestamp_us, ..., or elapsed_us, elapsed_s since the first event of the recording EVENTS);
                   an image without annotations is an instant without objects
    annotations  {"image_id", "category_id", "bbox": [x, y, w, h] in pixels, optional "track_id"}; "iscrowd": 1 isn't used
    categories   {"id", "name"}; classes are in the order of their ids
    """
    content = _parsed(path)
    own = [image for image in content["images"] if image["file_name"] == file_name]
    zero_us = first_event_us(events) if any(image["elapsed"] for image in own) else 0
    times = {image["id"]: image["us"] + zero_us * image["elapsed"] for image in own}
    indices = {number: classes.index(name) for number, name in categories_in(path).items() if name in classes}
    rows = [item for item in content["annotations"] if item["image_id"] in times and not item.get("iscrowd")]
    try:
        boxes = np.array([item["bbox"] for item in rows], np.float64).reshape(-1, 4)
        tracks = np.array([item.get("track_id", -1) for item in rows], np.int64)
        kinds = np.array([indices[item["category_id"]] for item in rows], np.int64)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: an annotation of {file_name} has a wrong bbox, category_id or track_id ({error!r}); {EXPECTED}"
        ) from error
    t = np.array([times[item["image_id"]] for item in rows], np.int64)
    columns = {"t": t, "class_id": kinds, "track_id": tracks, **dict(zip("xywh", boxes.T, strict=True))}
    return from_columns(columns, f"{path}, {file_name}", np.array(list(times.values()), np.int64))


def _parsed(path: Path) -> dict[str, Any]:
    check_readable(path)
    return _parse(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)  # one file holds the labels of all recordings
def _parse(path: Path, changed_ns: int) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        images, annotations, categories = content["images"], content["annotations"], content["categories"]
        for image in images:
            image["us"], image["elapsed"] = _time_us(image)
            image["file_name"] = str(image["file_name"])
        known = {image["id"] for image in images}
        if len(known) != len(images):
            raise ValueError("two images have the same id")
        lost = next((item for item in annotations if item["image_id"] not in known), None)
        if lost is not None:
            raise ValueError(f"an annotation belongs to image_id {lost['image_id']!r}, which isn't there")
        return {"images": images, "annotations": annotations, "categories": [{"id": c["id"], "name": c["name"]} for c in categories]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: {error!r}; {EXPECTED}") from error


def _time_us(image: dict[str, Any]) -> tuple[int, bool]:
    """(microseconds, whether they count from the first event)."""
    for name, factor in TIMES.items():
        if name in image:
            value = image[name]
            return value if factor == 1.0 and isinstance(value, int) else round(float(value) * factor), name.startswith("elapsed")
    raise ValueError(f"image {image.get('id')!r} has no time: none of time_us, time_s, t_us, timestamp_us, ...")
