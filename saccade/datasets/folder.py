"""A FOLDER OF YOUR OWN -> DATA SET: recordings in any format, labels as csv or COCO, see `open_folder`."""

from functools import partial
from pathlib import Path

from saccade.datasets.coco import categories_in, is_coco, read_coco, recordings_in
from saccade.datasets.label_csv import classes_in, is_label_csv, read_csv
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import LabelRules, ruled
from saccade.datasets.splits import FOLDERS, Selection
from saccade.types import InputError

RECORDINGS = (".h5", ".hdf5", ".dat", ".raw", ".aedat4", ".bag", ".mcap", ".npz", ".txt", ".csv")
ENDINGS = (".labels.csv", "_labels.csv", ".csv")  # of label files; the first two where the recording itself is a csv
OURS = ("splits.json", "dataset.json", "prepared.json")


def recognise(root: Path, chosen: Selection) -> str | None:
    there = any(map(is_label_csv, chosen.files("*.csv"))) or _coco_files(root, chosen)
    return "folder" if there else None


def open_folder(root: Path, chosen: Selection, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Recordings in any format, with their labels as NAME.csv beside each, or in one COCO json for all.

      DIR/train/drive1.raw  DIR/train/drive1.csv     columns: see label_csv.py (t_us,x,y,w,h,class)
      DIR/val/drive2.h5     DIR/val/drive2.csv
      DIR/labels.json                                or COCO, see coco.py; file_name is the path of the recording from the json's folder
      DIR/classes.txt                                one name a line, in the order of the indices; else the names that are used, sorted

    Without train, val, test: splits.json, {"train": ["drive1"], "val": [...], "test": [...]}, or else by a hash of the name.
    """
    base = _base(root)
    coco = _coco_files(root, chosen)
    labels = [path for path in chosen.files("*.csv") if is_label_csv(path)]
    if coco and labels:
        raise InputError(f"{root}: has labels as COCO ({coco[0].name}) and as csv ({labels[0].name}); keep one of them")
    classes = own_rules.classes if own_rules else _classes(base, coco)
    rules = own_rules or LabelRules(classes=classes)
    recordings: list[EventRecording] = []
    missing: list[str] = []
    for path in coco:
        _add_coco(path, chosen, rules, halve, recordings, missing)
    for label in labels:
        ending = next(ending for ending in ENDINGS if label.name.endswith(ending))
        name = chosen.name_of(label, ending)
        if not chosen.has(name):
            continue
        events = _beside(label, label.name[: -len(ending)])
        if events is None:
            missing.append(f"{label}: has no recording beside it; expected {label.name[: -len(ending)]} with {', '.join(RECORDINGS[:-1])}")
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_csv, label, classes, events), rules), halve=halve or "no"))
    return Dataset("folder", chosen.split, rules.classes, tuple(sorted(recordings, key=lambda r: r.name)), tuple(missing))


def _add_coco(
    path: Path, chosen: Selection, rules: LabelRules, halve: Halve | None, recordings: list[EventRecording], missing: list[str]
) -> None:
    for file_name in recordings_in(path):
        events = next((found for place in (path.parent, chosen.folder) if (found := place / file_name).is_file()), None)
        if events is None:
            missing.append(f"{path}: names the recording {file_name!r}, which isn't there; expected a path from the json's folder")
            continue
        if not events.resolve().is_relative_to(chosen.folder.resolve()):
            continue  # of another split
        name = chosen.name_of(chosen.folder / events.resolve().relative_to(chosen.folder.resolve()), events.suffix)
        if chosen.has(name):
            read = partial(read_coco, path, file_name, rules.classes, events)
            recordings.append(EventRecording(name, events, ruled(read, rules), halve=halve or "no"))


def _base(root: Path) -> Path:
    """The data set's own folder, also when one of its splits was given."""
    return root.parent if any(root.name in names for names in FOLDERS.values()) else root


def _coco_files(root: Path, chosen: Selection) -> list[Path]:
    """In the folder of the split, else in the data set's own."""
    base = _base(root)
    for place in dict.fromkeys((chosen.folder, chosen.folder / "annotations", base, base / "annotations")):
        found = [path for path in sorted(place.glob("*.json")) if path.name not in OURS and is_coco(path)]
        if found:
            return found
    return []


def _beside(label: Path, stem: str) -> Path | None:
    names = [name + suffix for suffix in RECORDINGS for name in (stem, f"{stem}_td")]
    return next((path for name in names if name != label.name and (path := label.with_name(name)).is_file()), None)


def _classes(base: Path, coco: list[Path]) -> tuple[str, ...]:
    """From classes.txt, else from all label files of all splits, so that an index means the same in each."""
    listed = base / "classes.txt"
    if listed.is_file():
        names = [line.strip() for line in listed.read_text().splitlines() if line.strip()]
    elif coco:
        names = list(dict.fromkeys(name for path in coco for name in categories_in(path).values()))
    else:
        used = {cell for path in base.rglob("*.csv") if is_label_csv(path) for cell in classes_in(path)}
        numbers = all(cell.isdecimal() for cell in used)
        names = [str(i) for i in range(max(map(int, used), default=-1) + 1)] if numbers else sorted(used)
    if not names or len(set(names)) != len(names):
        raise InputError(f"{listed}: {len(names)} classes, {len(set(names))} different; expected at least one name, and each once")
    return tuple(names)
