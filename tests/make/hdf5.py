"""HDF5 recordings of every layout that the reader knows, among them an encoder of Prophesee's ECF, written from its description."""

from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from saccade.types import Events

ECF = 0x8ECF
RECORD = np.dtype({"names": ["x", "y", "p", "t"], "formats": ["<u2", "<u2", "<i2", "<i8"], "offsets": [0, 2, 4, 8], "itemsize": 16})


def write(path: Path, events: Events, *, blosc: bool = True, chunk: int = 1000, size: bool = True, ms_to_idx: bool = True) -> None:
    """DSEC's layout: times relative to t_offset, and the first event of every millisecond."""
    offset = int(events.t[0]) // 1000 * 1000 if len(events) else 0
    t = (events.t - offset).astype(np.uint32)
    options: dict = hdf5plugin.Blosc(cname="zstd", clevel=1, shuffle=1) if blosc else {}
    options = {**options, "chunks": (chunk,), "maxshape": (None,)} if chunk else options
    with h5py.File(path, "w") as file:
        for name, values in {"t": t, "x": events.x, "y": events.y, "p": events.p.astype(np.uint8)}.items():
            file.create_dataset(f"events/{name}", data=values, **options)
        file["t_offset"] = np.int64(offset)
        if ms_to_idx:
            milliseconds = np.arange((int(t[-1]) if len(t) else 0) // 1000 + 1) * 1000
            file["ms_to_idx"] = np.searchsorted(t, milliseconds).astype(np.uint64)
        if size:
            file.attrs["width"], file.attrs["height"] = events.width, events.height


def write_rvt(path: Path, events: Events) -> None:
    with h5py.File(path, "w") as file:
        for name, values in {"t": events.t, "x": events.x, "y": events.y, "p": events.p.astype(np.uint8)}.items():
            file.create_dataset(f"events/{name}", data=values, chunks=(1000,), maxshape=(None,), **hdf5plugin.Blosc(cname="lz4"))
        file["events/width"], file["events/height"] = events.width, events.height


def write_seconds(path: Path, events: Events) -> None:
    """As event_utils and e2vid write: xs, ys, ts in float seconds, ps in -1 and 1, sensor_resolution = height, width."""
    with h5py.File(path, "w") as file:
        file["events/xs"], file["events/ys"] = events.x.astype(np.int16), events.y.astype(np.int16)
        file["events/ts"], file["events/ps"] = events.t / 1e6, np.where(events.p, 1, -1).astype(np.int8)
        file.attrs["sensor_resolution"] = (events.height, events.width)


def records(events: Events) -> np.ndarray:
    array = np.zeros(len(events), RECORD)
    array["x"], array["y"], array["p"], array["t"] = events.x, events.y, events.p, events.t
    return array


def write_prophesee(path: Path, events: Events, *, ecf: bool = True, chunk: int = 1000, packing: int = 0) -> None:
    """CD/events; with ECF the chunks are written as they are stored, since HDF5 doesn't know the filter."""
    with h5py.File(path, "w") as file:
        file.attrs["geometry"] = f"{events.width}x{events.height}"
        if not ecf:
            file.create_dataset("CD/events", data=records(events), chunks=(chunk,), maxshape=(None,))
            return
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((chunk,))
        plan.set_filter(ECF, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((len(events),), (h5py.h5s.UNLIMITED,))
        group = file.create_group("CD")
        dataset = h5py.h5d.create(group.id, b"events", h5py.h5t.py_create(RECORD), space, plan)
        for first in range(0, len(events), chunk):
            padded = np.zeros(chunk, RECORD)  # HDF5 hands whole chunks to a filter
            part = records(events)[first : first + chunk]
            padded[: len(part)] = part
            dataset.write_direct_chunk((first,), encode_ecf(padded, packing))


def encode_ecf(part: np.ndarray, packing: int) -> bytes:
    """packing: 0 = runs, 1 = x and p packed, 2 = y, x and p packed."""
    t, x, y, p = (part[name].astype(np.int64) for name in "txyp")
    out = bytearray((len(part) << 2 | packing).to_bytes(4, "little") + int(t[0]).to_bytes(8, "little"))
    out += _times(t)
    fill = np.zeros(-len(part) % 4, np.int64)  # packed values come in fours
    if packing == 2:
        return bytes(out + _packed(np.concatenate([y << 12 | x << 1 | p, fill]), 24, "<u4"))
    out += _runs(y, 5, 2)
    if packing == 1:
        return bytes(out + _packed(np.concatenate([x << 1 | p, fill]), 12, "<u2"))
    i = 0
    while i < len(x):
        first, mask, i = int(x[i]), 0, i + 1
        for k in range(5):
            if i < len(x) and x[i] == first + k + 1:
                mask, i = mask | 1 << (4 - k), i + 1
        out += (first << 5 | mask).to_bytes(2, "little")
    return bytes(out + _runs(p, 7, 1))


def _times(t: np.ndarray) -> bytes:
    out, now, i = bytearray(), int(t[0]), 0
    while i < len(t):
        step = max(int(t[i]) - now, 0)  # the format can't step back
        now += step
        repeats = 1
        while i + repeats < len(t) and t[i + repeats] == now:
            repeats += 1
        if step >= 15:
            while step:
                out.append(0xF0 | step & 15)
                step >>= 4
        out += bytes([step << 4 | min(repeats, 15)]) + (repeats.to_bytes(2, "little") if repeats >= 15 else b"")
        i += repeats
    return bytes(out)


def _runs(values: np.ndarray, bits: int, width: int) -> bytes:
    out, i, full = bytearray(), 0, (1 << bits) - 1
    while i < len(values):
        repeats = 1
        while i + repeats < len(values) and values[i + repeats] == values[i]:
            repeats += 1
        out += (int(values[i]) << bits | min(repeats, full)).to_bytes(width, "little")
        out += repeats.to_bytes(2, "little") if repeats >= full else b""
        i += repeats
    return bytes(out)


def _packed(values: np.ndarray, bits: int, word: str) -> bytes:
    """Four values in three words. The first word holds the first value whole and the low part of the second, and so on."""
    third = bits // 3
    a, b, c, d = values.reshape(-1, 4).T
    low = [(1 << third * k) - 1 for k in (1, 2)]
    words = (a << third | b & low[0], b >> third << 2 * third | c & low[1], c >> 2 * third << 3 * third | d)
    return np.stack(words, axis=1).astype(word).tobytes()
