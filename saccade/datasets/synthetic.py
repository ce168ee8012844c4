"""SIMULATED RECORDINGS -> DATA SET: NAME.h5 with the exact boxes in NAME_labels.npz, 200 times a second."""

import json
from functools import partial
from pathlib import Path

import numpy as np

from saccade.datasets.labels import RawLabels, load_arrays
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import LabelRules, ruled
from saccade.datasets.splits import Selection
from saccade.types import InputError

FORMAT = "saccade simulated"  # in dataset.json
LABELS = "_labels.npz"
COLUMNS = ("t", "boxes", "classes", "tracks", "still_us", "visible")
SPEED = "speed_px_s"  # optional: not every label file has it


def recognise(root: Path) -> str | None:
    path = description(root)
    return "synthetic" if path and FORMAT in path.read_text(errors="replace") else None


def description(root: Path) -> Path | None:
    """The dataset.json of the data set, also when one of its splits was given."""
    return next((path for path in (root / "dataset.json", root.parent / "dataset.json") if path.is_file()), None)


def open_synthetic(root: Path, chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Every object counts, the hidden ones too: `Labels.visible` and `still_us` tell them apart."""
    path = description(root)
    if path is None:
        raise InputError(f"{root}: no dataset.json; expected a data set that `saccade simulate` wrote")
    rules = own_rules or LabelRules(classes=read_classes(path))
    recordings, missing = [], []
    for events in chosen.files("*.h5"):
        name = chosen.name_of(events, ".h5")
        if not chosen.has(name):
            continue
        truth = events.with_name(events.stem + LABELS)
        if truth.is_file():
            recordings.append(EventRecording(name, events, ruled(partial(read_truth, truth), rules), halve=halve or "no"))
        else:
            missing.append(f"{events}: has no labels beside it; expected {truth.name}")
    return Dataset("synthetic", chosen.split, rules.classes, tuple(recordings), tuple(missing))


def read_classes(path: Path) -> tuple[str, ...]:
    try:
        classes = json.loads(path.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: expected JSON with a list of names under `classes` ({error!r})") from error
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{path}: classes={classes!r:.80}; expected a list of names")
    return tuple(classes)


def read_truth(path: Path) -> RawLabels:
    """One row per object and instant; `times_us` lists all instants, those without objects too."""
    arrays = load_arrays(path)
    missing = [name for name in ("times_us", *COLUMNS) if name not in arrays]
    if missing:
        raise InputError(f"{path}: no array {', '.join(missing)}, only {', '.join(arrays)}; simulate it again")
    t, boxes, classes, tracks, still_us, visible = (arrays[name] for name in COLUMNS)
    speed = arrays.get(SPEED)
    whole = all(column.shape == t.shape == (len(boxes),) for column in (classes, tracks, still_us, visible, t if speed is None else speed))
    if not whole or boxes.shape != (len(t), 4) or not np.isfinite(boxes).all():
        raise InputError(f"{path}: {len(t)} times, boxes {boxes.shape}; expected columns of one length and finite boxes; simulate it again")
    order = np.argsort(t, kind="stable")
    t, classes, tracks, still_us = (column.astype(np.int64)[order] for column in (t, classes, tracks, still_us))
    instants = np.unique(np.concatenate((t, arrays["times_us"].astype(np.int64))))
    visible, speed = visible.astype(np.float32)[order], None if speed is None else speed.astype(np.float32)[order]
    return RawLabels(t, boxes.astype(np.float64)[order], classes, tracks, instants, still_us, visible, speed)
