"""Find the events in an HDF5 file: data sets, unit of time, sensor size; with a note for each that was inferred."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

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
LARGEST_CHUNK = 1 << 28  # bytes; chunks are decoded as a whole, so the memory for a larger one is refused
HEAPS_WITHIN = 1 << 20  # bytes at both ends of the file


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


def check_heaps(path: Path) -> None:
    """Refuse a global heap with a free object of size 0, on which HDF5 2.0 loops for ever (found by fuzzing).

    Strings of attributes are written when a file is created or closed, so it is enough to look at the first and last megabyte.
    """
    with path.open("rb") as file:
        start = file.read(HEAPS_WITHIN)
        file.seek(max(path.stat().st_size - HEAPS_WITHIN, 0))
        for data in (start, file.read(HEAPS_WITHIN)):
            for heap in re.finditer(re.escape(b"GCOL\x01\0\0\0"), data):
                at = heap.start() + 16
                end = min(heap.start() + int.from_bytes(data[at - 8 : at], "little"), len(data))
                while at + 16 <= end:
                    index, size = int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
                    if index == 0 and size < 16:
                        raise InputError("its heap of texts is damaged")
                    at += size if index == 0 else 16 + -(-size // 8) * 8


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
    group = layout.datasets["t"].parent
    homes = (group, file)
    if (offset := _number(homes, "t_offset")) is not None:
        if abs(offset) >= 2**52:
            raise InputError(f"t_offset is {offset}; expected microseconds of this age")
        layout.offset_us = offset
    layout.ms_to_idx = next((home["ms_to_idx"] for home in homes if isinstance(home.get("ms_to_idx"), h5py.Dataset)), None)
    if layout.ms_to_idx is not None and (layout.ms_to_idx.ndim != 1 or layout.ms_to_idx.dtype.kind not in "iu"):
        layout.ms_to_idx = None
        layout.notes.append("ms_to_idx isn't a list of integers; times are looked up by bisection")
    layout.size = _stated_size(homes, layout)
    _set_unit(layout, place, time_unit)
    return layout


def _layout_at(file: h5py.File, place: str) -> Hdf5Layout | None:
    # get() returns None for what isn't there, but raises for broken links; the reader turns that into InputError.
    node = file.get(place) if place else file
    if isinstance(node, h5py.Dataset):
        fields = _match(node.dtype.names or ())
        return Hdf5Layout(dict.fromkeys("txyp", node), fields, node) if fields else None
    if isinstance(node, h5py.Group):
        names = _match(tuple(node))
        datasets = {column: node[name] for column, name in names.items()}
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
    if dataset.chunks and dataset.chunks[0] * dataset.dtype.itemsize > LARGEST_CHUNK:
        raise InputError(f"{dataset.name} has chunks of {dataset.chunks[0]} values; expected at most {LARGEST_CHUNK >> 20} MB a chunk")
    # A chunk that was never written would read as zeros.
    written = dataset.id.get_num_chunks() if dataset.chunks else None
    if written is not None and written != -(-len(dataset) // dataset.chunks[0]):
        raise InputError(f"{dataset.name} has {written} of {-(-len(dataset) // dataset.chunks[0])} chunks; the recording wasn't finished")
    if written is None and len(dataset) and dataset.id.get_storage_size() < len(dataset) * dataset.dtype.itemsize:
        raise InputError(f"{dataset.name} states {len(dataset)} values but stores {dataset.id.get_storage_size()} bytes")


def _number(homes: tuple[h5py.Group, ...], name: str) -> int | None:
    """A number stored as data set or attribute, as int."""
    for home in homes:
        value: Any = home.attrs.get(name)
        if value is None and isinstance(home.get(name), h5py.Dataset) and home[name].size == 1:
            value = home[name][()]
        array = np.asarray(value)
        if value is not None and array.size == 1 and array.dtype.kind in "iuf" and np.isfinite(array).all():
            return int(array.reshape(-1)[0])
    return None


def _stated_size(homes: tuple[h5py.Group, ...], layout: Hdf5Layout) -> tuple[int, int] | None:
    width, height = _number(homes, "width"), _number(homes, "height")
    if width is not None and height is not None and 0 < width <= 65_536 and 0 < height <= 65_536:
        return width, height
    for home in homes:
        geometry = home.attrs.get("geometry")  # Prophesee: "1280x720"
        if isinstance(geometry, str | bytes):
            match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", geometry if isinstance(geometry, str) else geometry.decode("ascii", "replace"))
            if match and int(match[1]) and int(match[2]):
                return int(match[1]), int(match[2])
        pair = np.asarray(home.attrs.get("sensor_resolution", ()))
        if pair.size >= 2 and pair.dtype.kind in "iu" and (pair > 0).all():
            height, width = (int(number) for number in pair.reshape(-1)[:2])
            layout.notes.append(f"the attribute sensor_resolution is read as height {height}, width {width}")
            return width, height
    if layout.ms_to_idx is not None and any("t_offset" in home for home in homes):
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
    stated = time_unit or next((dataset.attrs[name] for name in ("unit", "units", "time_unit") if name in dataset.attrs), None)
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
