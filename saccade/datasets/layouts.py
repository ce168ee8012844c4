"""FOLDER -> DATA SET, for every layout of event files with label files beside them: whether a folder has it, and how it is opened.

gen1, 1mpx, etram  NAME_td.dat + NAME_bbox.npy
dsec               events.h5 and tracks.npy of each sequence
synthetic          NAME.h5 + NAME_labels.npz, exact boxes 200 times a second, as `saccade simulate` writes them
folder             recordings of your own in any format, labels as csv or COCO
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from saccade.arrays import load_arrays
from saccade.config import MOST_CLASSES
from saccade.datasets import rules
from saccade.datasets.labels import (
    RawLabels,
    categories_in,
    classes_in,
    is_coco,
    is_label_csv,
    read_boxes,
    read_coco,
    read_csv,
    recordings_in,
)  # fmt: skip
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Dataset, Halve
from saccade.datasets.rules import LabelRules, ruled
from saccade.datasets.splits import FOLDERS, Selection
from saccade.events.open import dsec_events, open_events
from saccade.files import check_name
from saccade.types import InputError, check_class_names

BOXES = "_bbox.npy"
# of recordings beside NAME_bbox.npy; the first that is there is taken
EVENT_ENDINGS = ("_td.dat", "_td.dat.h5", "_td.h5", "_td.hdf5", "_td.raw", ".dat", ".h5", ".hdf5", ".raw")
DSEC_SENSOR = 640, 480
DSEC_TRACKS = "tracks.npy"
LEAST_OF_PHOTOS = 5.0, 16.0  # px, side and diagonal of an object of photographs that counts: half of Gen1's, whose sensor is twice as fine
SIMULATED = "saccade simulated"  # in dataset.json
SIMULATED_LABELS = "_labels.npz"
SIMULATED_COLUMNS = ("t", "boxes", "classes", "tracks", "still_us", "visible")
SPEED_COLUMN = "speed_px_s"  # optional: not every label file has it
RECORDING_SUFFIXES = (".h5", ".hdf5", ".dat", ".raw", ".aedat4", ".bag", ".mcap", ".npz", ".txt", ".csv")
LABEL_ENDINGS = (".labels.csv", "_labels.csv", ".csv")  # of label files; the first two where the recording itself is a csv
OUR_JSON = ("splits.json", "dataset.json", "prepared.json")


@dataclass(frozen=True)
class Family:
    """A data set of NAME_td.dat + NAME_bbox.npy: what its files don't say."""

    sensor: tuple[int, int]
    training: LabelRules
    evaluation: LabelRules
    halve: Halve = "no"
    ignored: tuple[str, ...] = ()


FAMILIES = {
    "gen1": Family((304, 240), rules.GEN1_TRAINING, rules.GEN1_EVALUATION, ignored=rules.GEN1_IGNORED),
    "1mpx": Family((1280, 720), rules.ONE_MPX_TRAINING, rules.ONE_MPX_EVALUATION, halve="events"),
    "etram": Family((1280, 720), rules.ETRAM_TRAINING, rules.ETRAM_EVALUATION, halve="events"),
}


def recognise_family(chosen: Selection) -> str | None:
    """Which family a folder holds: DAT files are Gen1's or 1 Mpx's, by the sensor in their header; others of 1280 x 720 are eTraM's."""
    path, size = _first_sensor(events for label in chosen.files(f"*{BOXES}") if (events := _events_beside(label)))
    if path is None:
        return None
    dat = ".dat" in path.name
    found = next((kind for kind, family in FAMILIES.items() if family.sensor == size and (kind == "etram") != dat), None)
    if found is None:
        raise InputError(
            f"{path}: a sensor of {size[0]} x {size[1]} is none of Gen1 (304 x 240), 1 Mpx, eTraM (1280 x 720); "
            "for recordings of your own, name each label file NAME.csv (see kind='folder')"
        )
    return found


def _first_sensor(paths: Iterable[Path]) -> tuple[Path | None, tuple[int, int]]:
    """The first recording that can be opened, and its sensor. Broken ones are reported when they are used."""
    broken = None
    for path in paths:
        try:
            with open_events(path) as reader:
                return path, (reader.width, reader.height)
        except InputError as error:
            broken = broken or error
    if broken:
        raise broken
    return None, (0, 0)


def _events_beside(label: Path) -> Path | None:
    stem = label.name[: -len(BOXES)]
    return next((path for ending in EVENT_ENDINGS if (path := label.with_name(stem + ending)).is_file()), None)


def open_family(chosen: Selection, kind: str, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Training rules for the split train, evaluation rules for the others, unless OWN_RULES are given."""
    family = FAMILIES[kind]
    used = own_rules or (family.training if chosen.split == "train" else family.evaluation)
    recordings, missing, ignored = [], [], 0
    for label in chosen.files(f"*{BOXES}"):
        name = chosen.name_of(label, BOXES)
        if not chosen.has(name):
            continue
        events = _events_beside(label)
        if events is None:
            missing.append(f"{label}: has no recording beside it; expected {label.name[: -len(BOXES)]}_td.dat")
        elif name.rsplit("/", 1)[-1] in family.ignored:
            ignored += 1
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_boxes, label), used), family.sensor, halve or family.halve))
    alone = [path for path in chosen.files("*_td.dat") if not path.with_name(path.name.replace("_td.dat", BOXES)).is_file()]
    unlabelled = [path for path in alone if chosen.has(chosen.name_of(path, "_td.dat"))]
    missing += [f"{path}: has no labels beside it; expected {path.name.replace('_td.dat', BOXES)}" for path in unlabelled]
    if recordings:
        path, (width, height) = _first_sensor([recording.path for recording in recordings])
        if (width, height) != family.sensor:
            expected = f"{family.sensor[0]} x {family.sensor[1]}"
            raise InputError(f"{path}: states a sensor of {width} x {height}, {kind} has {expected}; give the kind that it is")
    notes = (f"{ignored} recordings left out, as everyone does: the rules drop all of their labels",) if ignored else ()
    return Dataset(kind, chosen.split, used.classes, tuple(recordings), tuple(missing), notes)


def recognise_dsec(chosen: Selection) -> str | None:
    return "dsec" if next(chosen.files(DSEC_TRACKS), None) else None


def open_dsec(chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """SEQUENCE/events/left/events.h5 + SEQUENCE/object_detections/left/tracks.npy as downloaded, or both in one folder SEQUENCE.

    The boxes belong to the distorted view of the left event camera, so the events are used as they are, without rectify_map.h5.
    """
    recordings, missing = [], []
    used = own_rules or rules.DSEC
    for tracks in chosen.files(DSEC_TRACKS):
        sequence = tracks.parent.parent.parent if tracks.parent.parent.name == "object_detections" else tracks.parent
        name = sequence.relative_to(chosen.folder).as_posix()
        if not chosen.has(name):
            continue
        events = dsec_events(sequence)
        if events is None:
            missing.append(f"{tracks}: no events for it; expected {sequence}/events/left/events.h5 or {sequence}/events.h5")
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_boxes, tracks), used), DSEC_SENSOR, halve or "no"))
    return Dataset("dsec", chosen.split, used.classes, tuple(recordings), tuple(missing))


def recognise_synthetic(root: Path) -> str | None:
    path = _description(root)
    return "synthetic" if path and SIMULATED in path.read_text(errors="replace") else None


def _description(root: Path) -> Path | None:
    """The dataset.json of the data set, also when one of its splits was given."""
    return next((path for path in (root / "dataset.json", root.parent / "dataset.json") if path.is_file()), None)


def open_synthetic(root: Path, chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Every object counts, the hidden ones too: `Labels.visible` and `still_us` tell them apart. Photographs show crowds and far
    streets: of their objects those count that are large enough to be recognised."""
    path = _description(root)
    if path is None:
        raise InputError(f"{root}: no dataset.json; expected a data set that `saccade simulate` wrote")
    about = _read_description(path)
    side, diagonal = LEAST_OF_PHOTOS if about.get("photos") else (0.0, 0.0)
    used = own_rules or LabelRules(classes=_read_classes(path, about), least_side=side, least_diagonal=diagonal)
    recordings, missing = [], []
    for events in chosen.files("*.h5"):
        name = chosen.name_of(events, ".h5")
        if not chosen.has(name):
            continue
        labels = events.with_name(events.stem + SIMULATED_LABELS)
        if labels.is_file():
            recordings.append(EventRecording(name, events, ruled(partial(read_simulated_labels, labels), used), halve=halve or "no"))
        else:
            missing.append(f"{events}: has no labels beside it; expected {labels.name}")
    return Dataset("synthetic", chosen.split, used.classes, tuple(recordings), tuple(missing))


def _read_description(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text())
        about["classes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: expected JSON with a list of names under `classes` ({error!r})") from error
    return cast(dict[str, Any], about)


def _read_classes(path: Path, about: dict[str, Any]) -> tuple[str, ...]:
    classes = about["classes"]
    if not isinstance(classes, list) or not 0 < len(classes) <= MOST_CLASSES or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{path}: classes={classes!r:.80}; expected a list of names")
    return tuple(classes)


def read_simulated_labels(path: Path) -> RawLabels:
    """One row per object and instant; `times_us` lists all instants, those without objects too."""
    arrays = load_arrays(path)
    missing = [name for name in ("times_us", *SIMULATED_COLUMNS) if name not in arrays]
    if missing:
        raise InputError(f"{path}: no array {', '.join(missing)}, only {', '.join(arrays)}; simulate it again")
    t, boxes, classes, tracks, still_us, visible = (arrays[name] for name in SIMULATED_COLUMNS)
    speed = arrays.get(SPEED_COLUMN)
    whole = all(column.shape == t.shape == (len(boxes),) for column in (classes, tracks, still_us, visible, t if speed is None else speed))
    if not whole or boxes.shape != (len(t), 4) or not np.isfinite(boxes).all():
        raise InputError(f"{path}: {len(t)} times, boxes {boxes.shape}; expected columns of one length and finite boxes; simulate it again")
    order = np.argsort(t, kind="stable")
    t, classes, tracks, still_us = (column.astype(np.int64)[order] for column in (t, classes, tracks, still_us))
    instants = np.unique(np.concatenate((t, arrays["times_us"].astype(np.int64))))
    visible, speed = visible.astype(np.float32)[order], None if speed is None else speed.astype(np.float32)[order]
    return RawLabels(t, boxes.astype(np.float64)[order], classes, tracks, instants, still_us, visible, speed)


def recognise_folder(root: Path, chosen: Selection) -> str | None:
    there = any(map(is_label_csv, chosen.files("*.csv"))) or _coco_files(root, chosen)
    return "folder" if there else None


def open_folder(root: Path, chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Recordings in any format, with their labels as NAME.csv beside each, or in one COCO json for all.

      DIR/train/drive1.raw  DIR/train/drive1.csv     columns: see `read_csv` (t_us,x,y,w,h,class)
      DIR/val/drive2.h5     DIR/val/drive2.csv
      DIR/labels.json                                or COCO, see `read_coco`; file_name is the path of the recording from the json's folder
      DIR/classes.txt                                one name a line, in the order of the indices; else the names that are used, sorted

    Without train, val, test: splits.json, {"train": ["drive1"], "val": [...], "test": [...]}, or else by a hash of the name.
    """
    base = _dataset_folder(root)
    coco = _coco_files(root, chosen)
    labels = [path for path in chosen.files("*.csv") if is_label_csv(path)]
    if coco and labels:
        raise InputError(f"{root}: has labels as COCO ({coco[0].name}) and as csv ({labels[0].name}); keep one of them")
    classes = own_rules.classes if own_rules else _classes(base, coco)
    used = own_rules or LabelRules(classes=classes)
    recordings: list[EventRecording] = []
    missing: list[str] = []
    for path in coco:
        _add_coco(path, chosen, used, halve, recordings, missing)
    for label in labels:
        ending = next(ending for ending in LABEL_ENDINGS if label.name.endswith(ending))
        name = chosen.name_of(label, ending)
        if not chosen.has(name):
            continue
        events = _recording_beside(label, label.name[: -len(ending)])
        if events is None:
            missing.append(
                f"{label}: has no recording beside it; expected {label.name[: -len(ending)]} with {', '.join(RECORDING_SUFFIXES[:-1])}"
            )
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_csv, label, classes, events), used), halve=halve or "no"))
    return Dataset("folder", chosen.split, used.classes, tuple(sorted(recordings, key=lambda r: r.name)), tuple(missing))


def _add_coco(
    path: Path, chosen: Selection, used: LabelRules, halve: Halve | None, recordings: list[EventRecording], missing: list[str]
) -> None:
    for file_name in recordings_in(path):
        check_name(file_name, path)
        events = next((found for place in (path.parent, chosen.folder) if os.path.isfile(found := place / file_name)), None)
        if events is None:
            missing.append(f"{path}: names the recording {file_name!r:.200}, which isn't there; expected a path from the json's folder")
            continue
        if not events.resolve().is_relative_to(chosen.folder.resolve()):
            continue  # of another split
        name = chosen.name_of(chosen.folder / events.resolve().relative_to(chosen.folder.resolve()), events.suffix)
        if chosen.has(name):
            read = partial(read_coco, path, file_name, used.classes, events)
            recordings.append(EventRecording(name, events, ruled(read, used), halve=halve or "no"))


def _dataset_folder(root: Path) -> Path:
    """The data set's own folder, also when one of its splits was given."""
    return root.parent if any(root.name in names for names in FOLDERS.values()) else root


def _coco_files(root: Path, chosen: Selection) -> list[Path]:
    """In the folder of the split, else in the data set's own."""
    base = _dataset_folder(root)
    for place in dict.fromkeys((chosen.folder, chosen.folder / "annotations", base, base / "annotations")):
        found = [path for path in sorted(place.glob("*.json")) if path.name not in OUR_JSON and is_coco(path)]
        if found:
            return found
    return []


def _recording_beside(label: Path, stem: str) -> Path | None:
    names = [name + suffix for suffix in RECORDING_SUFFIXES for name in (stem, f"{stem}_td")]
    return next((path for name in names if name != label.name and (path := label.with_name(name)).is_file()), None)


def _classes(base: Path, coco: list[Path]) -> tuple[str, ...]:
    """From classes.txt, else from all label files of all splits, so that an index means the same in each."""
    listed = base / "classes.txt"
    if listed.is_file():
        try:
            names = [line.strip() for line in listed.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{listed}: can't be read as UTF-8 ({error}); save it in that encoding, one name a line") from error
    elif coco:
        names = list(dict.fromkeys(name for path in coco for name in categories_in(path).values()))
    else:
        used = {cell for path in base.rglob("*.csv") if is_label_csv(path) for cell in classes_in(path)}
        numbers = all(cell.isascii() and cell.isdecimal() and len(cell) < 10 for cell in used)
        highest = max(map(int, used), default=-1) if numbers else -1
        if highest >= MOST_CLASSES:
            raise InputError(f"{base}: class {highest} in a csv; expected indices from 0 on, below {MOST_CLASSES}")
        names = [str(i) for i in range(highest + 1)] if numbers else sorted(used)
    if len(names) > MOST_CLASSES:
        raise InputError(f"{base}: {len(names)} classes; expected at most {MOST_CLASSES}")
    check_class_names(names, str(listed))
    return tuple(names)
