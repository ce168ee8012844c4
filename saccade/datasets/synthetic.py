"""SIMULATED RECORDINGS -> DATA SET: NAME.h5 with the exact boxes in NAME.npz, 200 times a second."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from saccade.datasets.labels import RawLabels, load_arrays
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import LabelRules, ruled
from saccade.datasets.splits import Selection
from saccade.events.open import open_events
from saccade.types import InputError

PERIOD_US = 5000  # of the labels, unless the npz lists its instants
ENDINGS = (".npz", "_labels.npz", ".labels.npz")


def recognise(root: Path) -> str | None:
    return "synthetic" if description(root) else None


def description(root: Path) -> Path | None:
    """The dataset.json of the data set, also when one of its splits was given."""
    return next((path for path in (root / "dataset.json", root.parent / "dataset.json") if path.is_file()), None)


def open_synthetic(root: Path, chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Every object counts, the hidden ones too: `Labels.visible` and `still_us` tell them apart."""
    path = description(root)
    if path is None:
        raise InputError(f"{root}: no dataset.json; expected a data set that `saccade simulate` wrote")
    rules = own_rules or LabelRules(classes=read_classes(path))
    recordings, notes = [], []
    for events in chosen.files("*.h5"):
        name = chosen.name_of(events, ".h5")
        if not chosen.has(name):
            continue
        truth = next((found for ending in ENDINGS if (found := events.with_name(events.stem + ending)).is_file()), None)
        if truth is None:
            notes.append(f"{events}: has no labels beside it; expected {events.stem}.npz")
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_truth, truth, events), rules), halve=halve or "no"))
    return Dataset("synthetic", chosen.split, rules.classes, tuple(recordings), tuple(notes))


def read_classes(path: Path) -> tuple[str, ...]:
    try:
        classes = json.loads(path.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: expected JSON with a list of names under `classes` ({error!r})") from error
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{path}: classes={classes!r:.80}; expected a list of names")
    return tuple(classes)


def read_truth(path: Path, events: Path) -> RawLabels:
    """Columns t, boxes, classes, tracks and, where known, still_us and visible. An instant without rows has no objects in sight."""
    arrays = load_arrays(path)
    missing = [name for name in ("t", "boxes", "classes", "tracks") if name not in arrays]
    if missing:
        raise InputError(f"{path}: no array {', '.join(missing)}, only {', '.join(arrays)}; expected t, boxes (n, 4), classes, tracks")
    t, boxes = arrays["t"].astype(np.int64), arrays["boxes"].astype(np.float64)
    columns = {name: arrays[name] for name in ("classes", "tracks", "still_us", "visible") if name in arrays}
    if boxes.shape != (len(t), 4) or any(column.shape != t.shape for column in columns.values()) or not np.isfinite(boxes).all():
        raise InputError(f"{path}: {len(t)} times, boxes {boxes.shape}; expected one finite row of four per time; simulate it again")
    if "instants_us" in arrays:
        instants = arrays["instants_us"].astype(np.int64)
    else:
        with open_events(events) as reader:
            last_us = max(reader.end_us - 1, int(t.max()) if len(t) else 0)
        instants = np.arange(0, last_us + 1, PERIOD_US)
    order = np.argsort(t, kind="stable")
    still, visible = columns.get("still_us"), columns.get("visible")
    return RawLabels(
        t[order], boxes[order], columns["classes"].astype(np.int64)[order], columns["tracks"].astype(np.int64)[order],
        np.unique(np.concatenate((t, instants))),
        None if still is None else still.astype(np.int64)[order], None if visible is None else visible.astype(np.float32)[order],
    )  # fmt: skip
