"""LABEL FILE -> COLUMNS, checked, before any rule.

npy   structured arrays with fields in any order: Gen1, 1 Mpx, eTraM, DSEC-Det, RVT
csv   one box a line, beside a recording of your own, see `read_csv`
COCO  one json for all recordings, see `read_coco`
"""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from saccade.arrays import load_arrays
from saccade.events.open import open_events
from saccade.events.reader import LATEST_US
from saccade.files import check_readable
from saccade.types import Ids, InputError, Scores, Times

RawBoxes = Float64[np.ndarray, "n 4"]  # left, top, right, bottom

# Fields of structured arrays: our name, those in files, and whether a file must have it.
FIELDS = (
    ("t", ("t", "ts"), True),
    ("x", ("x",), True),
    ("y", ("y",), True),
    ("w", ("w",), True),
    ("h", ("h",), True),
    ("class_id", ("class_id",), True),
    ("track_id", ("track_id",), False),
)
UNITS = (("us", 1.0), ("ms", 1e3), ("s", 1e6))
TIME_COLUMNS = {f"{name}_{unit}": factor for name in ("t", "ts", "time", "timestamp", "elapsed") for unit, factor in UNITS}
SIZE_COLUMNS = ("x", "y", "w", "h"), ("x", "y", "width", "height")
CORNER_COLUMNS = ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"), ("xmin", "ymin", "xmax", "ymax")
CLASS_COLUMNS = ("class", "class_id", "label", "category", "class_name")
TRACK_COLUMNS = ("track", "track_id")
LONGEST_LINE = 1 << 16  # characters of a csv
EXPECTED_CSV = "expected a first line such as t_us,x,y,w,h,class or t_s,x1,y1,x2,y2,class,track"
EXPECTED_COCO = (
    'expected {"images": [{"id", "file_name": recording, "time_us" or "time_s"}], '
    '"annotations": [{"image_id", "category_id", "bbox": [x, y, w, h]}], "categories": [{"id", "name"}]}'
)


@dataclass(frozen=True, eq=False)
class RawLabels:
    """What a label file says, in the order of time; classes are the file's own numbers, boxes in pixels of the sensor."""

    t: Times
    boxes: RawBoxes
    classes: Ids
    tracks: Ids  # -1 where nobody knows
    instants_us: Int64[np.ndarray, "m"]  # every labelled instant once, those without objects too
    still_us: Times | None = None
    visible: Scores | None = None
    speed_px_s: Scores | None = None


def read_boxes(path: Path) -> RawLabels:
    """Labels of a `*_bbox.npy` or `tracks.npy`."""
    arrays = load_arrays(path)
    if list(arrays) != [""]:
        raise InputError(f"{path}: is an npz with {', '.join(arrays)}; expected one structured array as numpy.save writes it")
    return from_records(arrays[""], str(path))


def from_records(records: np.ndarray, where: str) -> RawLabels:
    """Labels of a structured array; fields are found by name, further ones are ignored."""
    names = records.dtype.names or ()
    columns: dict[str, np.ndarray] = {}
    for ours, theirs, needed in FIELDS:
        found = [name for name in theirs if name in names]
        if not found and needed:
            raise InputError(
                f"{where}: no field {' or '.join(theirs)} among {', '.join(names) or 'none'}; expected a structured array with "
                "t or ts (us), x, y (top left), w, h, class_id and optionally track_id"
            )
        if found:
            columns[ours] = records[found[0]].ravel()
    return from_columns(columns, where)


def from_columns(columns: Mapping[str, np.ndarray], where: str, instants_us: np.ndarray | None = None) -> RawLabels:
    """Labels out of t, x, y, w, h, class_id and optionally track_id; INSTANTS_US adds instants without objects."""
    t = _whole(columns["t"], f"{where}: t")
    x, y, w, h = (_finite(columns[name], f"{where}: {name}") for name in "xywh")
    if ((w < 0) | (h < 0)).any():
        i = int(np.argmax((w < 0) | (h < 0)))
        raise InputError(f"{where}: box {i} at {t[i]} us has the size {w[i]:g} x {h[i]:g}; sizes can't be negative: mend or remove the row")
    classes = _whole(columns["class_id"], f"{where}: class_id")
    tracks = _whole(columns["track_id"], f"{where}: track_id") if "track_id" in columns else np.full(len(t), -1, np.int64)
    order = np.argsort(t, kind="stable")
    instants = np.unique(t if instants_us is None else np.concatenate((t, instants_us)))
    return RawLabels(t[order], np.stack((x, y, x + w, y + h), axis=1)[order], classes[order], tracks[order], instants)


def _finite(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype.kind not in "iuf":
        raise InputError(f"{where} is {values.dtype}; expected numbers")
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        i = int(np.argmin(np.isfinite(numbers)))
        raise InputError(f"{where} of row {i} is {numbers[i]}; expected a finite number: mend or remove the row")
    return numbers


def _whole(values: np.ndarray, where: str) -> np.ndarray:
    """As int64, without a detour over floats, which lose microseconds."""
    if values.dtype.kind in "iu":
        if len(values) and (int(values.max()) >= LATEST_US or int(values.min()) <= -LATEST_US):
            raise InputError(f"{where} reaches {values.max()}, beyond any recording; the file is damaged")
        return values.astype(np.int64)
    numbers = _finite(values, where)
    if len(numbers) and (np.abs(numbers).max() >= 2.0**53 or (numbers != np.rint(numbers)).any()):
        raise InputError(f"{where} holds fractions or numbers beyond 53 bits; expected whole numbers (times in microseconds)")
    return numbers.astype(np.int64)


def read_csv(path: Path, classes: tuple[str, ...], events: Path) -> RawLabels:
    """One box a line, columns found by the names in the first line. CLASS_COLUMNS: the names of classes, by index.

      time     t_us (microseconds), t_ms or t_s (seconds), on the clock of the recording's events; also time_us, timestamp_us, ...;
               elapsed_us, elapsed_ms or elapsed_s: since the first event of the recording EVENTS
      box      x, y, w, h (top left corner and size in pixels) or x1, y1, x2, y2 (also left, top, right, bottom or xmin, ymin, xmax, ymax)
      class    a name, or an index from 0 on; also class_id, label, category
      track    optional: a number that stays with the object; also track_id

    A line with a time but without a box says that the instant is labelled and has no objects. Separated by comma, semicolon or tab.
    """
    names, rows = _read_rows(path)
    time, factor = next(((names.index(name), factor) for name, factor in TIME_COLUMNS.items() if name in names), (None, 0.0))
    box = next((columns for columns in (*SIZE_COLUMNS, *CORNER_COLUMNS) if all(name in names for name in columns)), None)
    kind = next((names.index(name) for name in CLASS_COLUMNS if name in names), None)
    track = next((names.index(name) for name in TRACK_COLUMNS if name in names), None)
    if time is None or box is None or kind is None:
        what = "time with a unit" if time is None else "box" if box is None else "class"
        raise InputError(f"{path}: no column for the {what} among {', '.join(names)}; {EXPECTED_CSV}")
    places = [names.index(name) for name in box]
    zero_us = _first_event_us(events) if names[time].startswith("elapsed") else 0
    indices = {name: index for index, name in enumerate(classes)}
    instants, table, numbers = [], [], []
    for line, row in _numbered(path, rows):
        try:
            cells = [row[i].strip() for i in (time, *places, kind)]
            instants.append(zero_us + _cell_us(cells[0], factor))
            if abs(instants[-1]) >= LATEST_US:
                raise ValueError("a time beyond any recording")
            if not any(cells[1:5]):
                continue
            table.append([float(cell) for cell in cells[1:5]])
            tracked = int(row[track]) if track is not None and row[track].strip() else -1
            if abs(tracked) >= 1 << 63:
                raise ValueError("a track of more than 63 bits")
            numbers.append((instants[-1], _class_index(cells[5], indices), tracked))
        except (ValueError, IndexError, OverflowError) as error:
            raise InputError(f"{path}, line {line}: {','.join(row)!r:.120} ({error}); {EXPECTED_CSV}") from error
    boxes = np.array(table, np.float64).reshape(-1, 4)
    if box in CORNER_COLUMNS:
        boxes[:, 2:] -= boxes[:, :2]
    whole = np.array(numbers, np.int64).reshape(-1, 3)
    columns = {"t": whole[:, 0], "class_id": whole[:, 1], "track_id": whole[:, 2], **dict(zip("xywh", boxes.T, strict=True))}
    return from_columns(columns, str(path), np.array(instants, np.int64))


def _first_event_us(events: Path) -> int:
    with open_events(events) as reader:
        return reader.start_us


def _class_index(cell: str, indices: Mapping[str, int]) -> int:
    """Of a name, or of an index that is written as a number."""
    if cell in indices:
        return indices[cell]
    if cell.isdecimal() and len(cell) < 10 and int(cell) < len(indices):
        return int(cell)
    raise ValueError(f"class {cell!r:.80} is none of {', '.join(indices):.200}")


def is_label_csv(path: Path) -> bool:
    """A csv may also be a recording: labels have a class."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return bool(set(_split_header(file.readline(4096))) & set(CLASS_COLUMNS))
    except OSError:
        return False


def classes_in(path: Path) -> set[str]:
    """The cells of the class column, as they are written."""
    names, rows = _read_rows(path)
    kind = next((names.index(name) for name in CLASS_COLUMNS if name in names), None)
    return set() if kind is None else {cell for _, row in _numbered(path, rows) if len(row) > kind and (cell := row[kind].strip())}


def _numbered(path: Path, rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows that aren't empty, with the numbers of their lines."""
    try:
        yield from ((line, row) for line, row in enumerate(rows, 2) if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise InputError(f"{path}: not a csv file ({error}); {EXPECTED_CSV}") from error


def _read_rows(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """Names of the columns, and the rows as they are asked for: lists of texts take forty times their bytes."""
    check_readable(path)
    lines = _lines(path)
    first = next(lines, "")
    return _split_header(first), csv.reader(lines, delimiter=_delimiter(first))


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", newline=None) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
                if len(line) == LONGEST_LINE:
                    raise InputError(f"{path}: line {number} is longer than {LONGEST_LINE} characters; {EXPECTED_CSV}")
                yield line
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not a csv file ({error}); {EXPECTED_CSV}") from error


def _split_header(line: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in line.split(_delimiter(line))]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _cell_us(cell: str, factor: float) -> int:
    """Whole microseconds are read as integers, without rounding to a float."""
    return int(cell) if factor == 1.0 and cell.lstrip("-").isdecimal() else round(float(cell) * factor)


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
    found = [(item["id"], str(item["name"])) for item in _parsed(path)["categories"]]
    if not all(type(number) is int for number, _ in found):
        raise InputError(f"{path}: categories with ids {[number for number, _ in found]!r:.120}; expected whole numbers")
    return dict(sorted(found))


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
    zero_us = _first_event_us(events) if any(image["elapsed"] for image in own) else 0
    times = {image["id"]: image["us"] + zero_us * image["elapsed"] for image in own}
    order = {name: index for index, name in enumerate(classes)}
    indices = {number: order[name] for number, name in categories_in(path).items() if name in order}
    rows = [item for item in content["annotations"] if item["image_id"] in times and not item.get("iscrowd")]
    try:
        boxes = np.array([item["bbox"] for item in rows], np.float64).reshape(len(rows), 4)
        tracks = np.array([item.get("track_id", -1) for item in rows], np.int64).reshape(len(rows))
        kinds = np.array([indices[item["category_id"]] for item in rows], np.int64)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: an annotation of {file_name} has a wrong bbox, category_id or track_id ({error!r}); {EXPECTED_COCO}"
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
            image["us"], image["elapsed"] = _image_us(image)
            image["file_name"] = str(image["file_name"])
        known = {image["id"] for image in images}
        if len(known) != len(images):
            raise ValueError("two images have the same id")
        lost = next((item for item in annotations if item["image_id"] not in known), None)
        if lost is not None:
            raise ValueError(f"an annotation belongs to image_id {lost['image_id']!r}, which isn't there")
        dict(sorted((item["id"], str(item["name"])) for item in categories))  # raises where they can't be ids
        return {"images": images, "annotations": annotations, "categories": [{"id": c["id"], "name": c["name"]} for c in categories]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: {error!r}; {EXPECTED_COCO}") from error


def _image_us(image: dict[str, Any]) -> tuple[int, bool]:
    """(microseconds, whether they count from the first event)."""
    for name, factor in TIME_COLUMNS.items():
        if name in image:
            value = image[name]
            time_us = value if factor == 1.0 and isinstance(value, int) else round(float(value) * factor)
            if abs(time_us) >= LATEST_US:
                raise ValueError(f"image {image.get('id')!r:.80} is at {time_us} us, beyond any recording")
            return time_us, name.startswith("elapsed")
    raise ValueError(f"image {image.get('id')!r} has no time: none of time_us, time_s, t_us, timestamp_us, ...")
