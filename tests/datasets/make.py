"""Small data sets for tests: label arrays in the orders of the field, recordings and trees around them."""

from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from saccade.events.write import write_events
from saccade.types import Events
from tests.make.events import random_events
from tests.make.prophesee import write_dat

GEN1_ORDER = "t:u8 x:f4 y:f4 w:f4 h:f4 class_id:u1 confidence:f4 track_id:u4"
OLD_ORDER = "ts:u8 x:f4 y:f4 w:f4 h:f4 class_id:u1 track_id:u4 confidence:f4"
ETRAM_ORDER = "t:i8 x:f4 y:f4 w:f4 h:f4 class_id:u4 track_id:u4 class_confidence:f4"
DSEC_ORDER = "t:u8 x:f8 y:f8 h:f8 w:f8 class_id:u1 class_confidence:f8 track_id:u4"


def records(rows: list[tuple[int, float, float, float, float, int, int]], order: str = GEN1_ORDER) -> np.ndarray:
    """Structured array of rows (t, x, y, w, h, class, track) in the given order of fields."""
    dtype = [(part.split(":")[0], "<" + part.split(":")[1]) for part in order.split()]
    out = np.zeros(len(rows), dtype)
    for i, (t, x, y, w, h, kind, track) in enumerate(rows):
        values = {"t": t, "ts": t, "x": x, "y": y, "w": w, "h": h, "class_id": kind, "track_id": track}
        for name in out.dtype.names:
            out[name][i] = values.get(name, 1.0)
    return out


def labels_every(step_us: int, count: int, first_us: int = 600_000) -> list[tuple[int, float, float, float, float, int, int]]:
    """One moving box at each instant."""
    return [(first_us + i * step_us, 20 + i, 30, 60, 50, i % 2, 7) for i in range(count)]


def gen1_folder(folder: Path, names: tuple[str, ...] = ("a", "b"), *, split: str = "train", span_us: int = 2_000_000) -> Path:
    """FOLDER/SPLIT/NAME_td.dat and NAME_bbox.npy of 2 s, labels at 4 Hz."""
    (folder / split).mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        write_dat(folder / split / f"{name}_td.dat", random_events(6000, span_us=span_us, seed=seed))
        np.save(folder / split / f"{name}_bbox.npy", records(labels_every(250_000, 5)))
    return folder


def some_events(width: int = 64, height: int = 48, count: int = 3000, span_us: int = 1_000_000, seed: int = 0, start_us: int = 0) -> Events:
    return random_events(count, width=width, height=height, span_us=span_us, seed=seed, start_us=start_us)


def recording(path: Path, events: Events) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_events(events, path)
    return path


def rvt_sequence(
    folder: Path, labels: np.ndarray, ends_us: np.ndarray, *, size: tuple[int, int], dt: str = "50", pairs: bool = False
) -> np.ndarray:
    """labels_v2 and event_representations_v2 as the published preprocessing writes them; returns the frames."""
    times, first = np.unique(labels["t"], return_index=True)
    (folder / "labels_v2").mkdir(parents=True)
    np.savez(folder / "labels_v2" / "labels.npz", labels=labels, objframe_idx_2_label_idx=first)
    np.save(folder / "labels_v2" / "timestamps_us.npy", times)
    place = folder / "event_representations_v2" / f"stacked_histogram_dt={dt}_nbins=10"
    place.mkdir(parents=True)
    np.save(place / "objframe_idx_2_repr_idx.npy", np.searchsorted(ends_us, times))
    np.save(place / "timestamps_us.npy", np.stack((ends_us - 50_000, ends_us), axis=1) if pairs else ends_us)
    frames = (np.random.default_rng(0).random((len(ends_us), 20, size[1], size[0])) < 0.02).astype(np.uint8)
    name = "event_representations_ds2_nearest.h5" if size == (640, 360) else "event_representations.h5"
    with h5py.File(place / name, "w") as file:
        file.create_dataset("data", data=frames, chunks=(1, *frames.shape[1:]), **hdf5plugin.Blosc(cname="zstd", clevel=1))
    return frames
