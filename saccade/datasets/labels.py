"""LABEL FILE -> COLUMNS: structured arrays in any order of fields (Gen1, 1 Mpx, eTraM, DSEC-Det, RVT), checked, before any rule."""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from saccade.files import check_readable
from saccade.types import Ids, InputError, Scores, Times

Corners = Float64[np.ndarray, "n 4"]  # left, top, right, bottom

# What files call the same thing: our name, theirs, and whether a file must have it.
FIELDS = (
    ("t", ("t", "ts"), True),
    ("x", ("x",), True),
    ("y", ("y",), True),
    ("w", ("w",), True),
    ("h", ("h",), True),
    ("class_id", ("class_id",), True),
    ("track_id", ("track_id",), False),
)
# What numpy and zipfile raise on damaged files.
BROKEN = (
    OSError, ValueError, EOFError, SyntaxError, TypeError, KeyError, MemoryError, OverflowError, RecursionError, NotImplementedError,
    RuntimeError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
LATEST_US = 1 << 62


@dataclass(frozen=True, eq=False)
class RawLabels:
    """What a label file says, in the order of time; classes are the file's own numbers, boxes in pixels of the sensor."""

    t: Times
    boxes: Corners
    classes: Ids
    tracks: Ids  # -1 where nobody knows
    instants_us: Int64[np.ndarray, "m"]  # every labelled instant once, those without objects too
    still_us: Times | None = None
    visible: Scores | None = None
    speed_px_s: Scores | None = None


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz, or that of an npy under the name ''. Pickled objects are refused: they could run code."""
    check_readable(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except BROKEN as error:
        raise InputError(
            f"{path}: can't be read as plain numpy arrays ({error}); it is damaged, or holds pickled objects, which could run code: "
            "copy it again, or save it with plain numbers"
        ) from error


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
