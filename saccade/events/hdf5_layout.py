"""Find the events in an HDF5 file: data sets, unit of time, sensor size; with a note for each that was inferred."""

import re
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from saccade.events.hdf5_file import attribute, check_chunks, find, with_cache
from saccade.types import InputError

PLACES = ("events", "CD/events", "CD", "", "prophesee/left", "prophesee/right")  # DSEC and RVT, Prophesee, none, M3ED
NAMES = {
    "t": ("t", "ts", "timestamp", "timestamps"),
    "x": ("x", "xs"),
    "y": ("y", "ys"),
    "p": ("p", "ps", "pol", "polarity", "polarities"),
}
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # microseconds each
SPELLINGS = {"µs": "us", "nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "sec": "s", "seconds": "s"}
WIDEST_RECORD = 1 << 10  # bytes an event


@dataclass
class Hdf5Layout:
    """Data sets of the columns; `whole` if they are fields of one data set."""

    datasets: dict[str, h5py.Dataset]  # of t, x, y, p
    fields: dict[str, str]  # their names inside the data set, if it is whole
    whole: h5py.Dataset | None
    offset_us: int = 0
    unit_us: float = 1.0
    size: tuple[int, int] | None = None  # width, height
    ms_to_idx: h5py.Dataset | None = None
    notes: list[str] = field(default_factory=list)


def find_layout(file: h5py.File, time_unit: str | None) -> Hdf5Layout:
    found = [(place, layout) for place in PLACES if (layout := _layout_at(file, place)) is not None]
    if not found:
        present = ", ".join(list(file)[:10]) or "nothing"
        raise InputError(
            f"no events found; expected data sets events/x, events/y, events/t, events/p (DSEC, RVT) or CD/events, found {present}"
        )
    place, layout = found[0]
    if len(found) > 1:
        layout.notes.append(f"events in several places ({', '.join(name or '/' for name, _ in found)}); reading {place or '/'}")
    for name, dataset in layout.datasets.items():
        _check(name, dataset, layout)
    check_chunks([layout.whole] if layout.whole else list(layout.datasets.values()))
    group = find(file, layout.datasets["t"].name.rpartition("/")[0])
    assert isinstance(group, h5py.Group)
    homes = (group, file)
    if (offset := _number(homes, "t_offset")) is not None:
        if abs(offset) >= 2**52:
            raise InputError(f"t_offset is {offset}; expected microseconds of this age")
        layout.offset_us = offset
    layout.ms_to_idx = next((table for home in homes if isinstance(table := find(home, "ms_to_idx"), h5py.Dataset)), None)
    if layout.ms_to_idx is not None and (layout.ms_to_idx.ndim != 1 or layout.ms_to_idx.dtype.kind not in "iu"):
        layout.ms_to_idx = None
        layout.notes.append("ms_to_idx isn't a list of integers; times are looked up by bisection")
    layout.size = _stated_size(homes, layout)
    _set_unit(layout, place, time_unit)
    _enlarge_caches(layout)
    return layout


def _enlarge_caches(layout: Hdf5Layout) -> None:
    if layout.whole is not None:
        layout.whole = with_cache(layout.whole)
        layout.datasets = dict.fromkeys("txyp", layout.whole)
    else:
        layout.datasets = {name: with_cache(dataset) for name, dataset in layout.datasets.items()}


def _layout_at(file: h5py.File, place: str) -> Hdf5Layout | None:
    node = find(file, place)
    if isinstance(node, h5py.Dataset):
        fields = _match(node.dtype.names or ())
        return Hdf5Layout(dict.fromkeys("txyp", node), fields, node) if fields else None
    if isinstance(node, h5py.Group):
        names = _match(tuple(node))
        datasets = {column: find(node, name) for column, name in names.items()}
        if names and all(isinstance(dataset, h5py.Dataset) for dataset in datasets.values()):
            return Hdf5Layout(datasets, {}, None)
    return None


def _match(present: tuple[str, ...]) -> dict[str, str]:
    """The names of t, x, y, p among those present; empty if one is missing."""
    names = {column: next((name for name in spellings if name in present), "") for column, spellings in NAMES.items()}
    return names if all(names.values()) else {}


def _check(name: str, dataset: h5py.Dataset, layout: Hdf5Layout) -> None:
    if dataset.ndim != 1:
        raise InputError(f"{dataset.name} has shape {dataset.shape}; expected a list of events")
    kind = (dataset.dtype[layout.fields[name]] if layout.fields else dataset.dtype).kind
    allowed = {"t": "iuf", "x": "iu", "y": "iu", "p": "iubf"}[name]
    if kind not in allowed:
        raise InputError(f"{name} in {dataset.name} has type {dataset.dtype}; expected {'a number' if 'f' in allowed else 'an integer'}")
    if len(dataset) != len(layout.datasets["t"]):
        raise InputError(
            f"{dataset.name} has {len(dataset)} values, {layout.datasets['t'].name} has {len(layout.datasets['t'])}; expected one length"
        )
    if dataset.dtype.itemsize > WIDEST_RECORD:
        raise InputError(f"{dataset.name} has {dataset.dtype.itemsize} bytes an event; expected at most {WIDEST_RECORD}")
    # A chunk that was never written would read as zeros.
    written = dataset.id.get_num_chunks() if dataset.chunks else None
    if written is not None and written != -(-len(dataset) // dataset.chunks[0]):
        raise InputError(f"{dataset.name} has {written} of {-(-len(dataset) // dataset.chunks[0])} chunks; the recording wasn't finished")
    if written is None and len(dataset) and dataset.id.get_storage_size() < len(dataset) * dataset.dtype.itemsize:
        raise InputError(f"{dataset.name} states {len(dataset)} values but stores {dataset.id.get_storage_size()} bytes")


def _number(homes: tuple[h5py.Group, ...], name: str) -> int | None:
    """A number stored as data set or attribute, as int."""
    for home in homes:
        value: Any = attribute(home, name)
        if value is None and isinstance(stored := find(home, name), h5py.Dataset) and stored.size == 1 and stored.dtype.kind in "iuf":
            check_chunks([stored])
            value = stored[()]
        array = np.asarray(value)
        if value is not None and array.size == 1 and array.dtype.kind in "iuf" and np.isfinite(array).all():
            return int(array.reshape(-1)[0])
    return None


def _stated_size(homes: tuple[h5py.Group, ...], layout: Hdf5Layout) -> tuple[int, int] | None:
    width, height = _number(homes, "width"), _number(homes, "height")
    if width is not None and height is not None and 0 < width <= 65_536 and 0 < height <= 65_536:
        return width, height
    for home in homes:
        geometry = attribute(home, "geometry")  # Prophesee: "1280x720"
        if isinstance(geometry, str | bytes):
            match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", geometry if isinstance(geometry, str) else geometry.decode("ascii", "replace"))
            if match and int(match[1]) and int(match[2]):
                return int(match[1]), int(match[2])
        pair = np.asarray(() if (stated := attribute(home, "sensor_resolution")) is None else stated)
        if pair.size >= 2 and pair.dtype.kind in "iu" and (pair > 0).all():
            height, width = (int(number) for number in pair.reshape(-1)[:2])
            layout.notes.append(f"the attribute sensor_resolution is read as height {height}, width {width}")
            return width, height
    if layout.ms_to_idx is not None and any(find(home, "t_offset") is not None for home in homes):
        layout.notes.append(
            "no sensor size in the file; its layout is DSEC's, so 640 x 480 is taken (state width= and height= if it isn't)"
        )
        return 640, 480
    return None


def _set_unit(layout: Hdf5Layout, place: str, time_unit: str | None) -> None:
    dataset = layout.datasets["t"]
    kind = dataset.dtype[layout.fields["t"]] if layout.fields else dataset.dtype
    if kind == np.dtype("f4"):
        layout.notes.append("times are 32-bit floats, which lose microseconds after 16 s")
    stated = time_unit or next((value for name in ("unit", "units", "time_unit") if (value := attribute(dataset, name)) is not None), None)
    if stated is not None:
        text = stated.decode("utf8", "replace") if isinstance(stated, bytes) else str(stated)
        unit = SPELLINGS.get(text.strip().lower(), text.strip().lower())
        if unit not in UNITS:
            raise InputError(f"{dataset.name} states the time unit {text!r}; expected one of {', '.join(UNITS)}")
        layout.unit_us = UNITS[unit]
    elif kind.kind == "f":
        layout.unit_us = UNITS["s"]
        layout.notes.append("times are floats without a stated unit; they are read as seconds")
    elif dataset.name not in ("/events/t", "/CD/events"):
        layout.notes.append(f"{dataset.name} states no time unit; its integers are read as microseconds")
