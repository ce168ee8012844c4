"""`*_td.dat` + `*_bbox.npy` -> DATA SET: Gen1, 1 Mpx and eTraM straight from the events, at any rate."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from saccade.datasets import rules
from saccade.datasets.labels import read_boxes
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import LabelRules, ruled
from saccade.datasets.splits import Selection
from saccade.events.open import open_events
from saccade.types import InputError

LABELS = "_bbox.npy"
EVENTS = ("_td.dat", "_td.dat.h5", "_td.h5", "_td.hdf5", "_td.raw", ".dat", ".h5", ".hdf5", ".raw")  # the first that is there is taken


@dataclass(frozen=True)
class Family:
    """A data set of this layout: what its files don't say."""

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


def recognise(chosen: Selection) -> str | None:
    """Which family a folder holds: DAT files are Gen1's or 1 Mpx's, by the sensor in their header; others of 1280 x 720 are eTraM's."""
    path, size = _first_sensor(events for label in chosen.files(f"*{LABELS}") if (events := events_of(label)))
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


def events_of(label: Path) -> Path | None:
    stem = label.name[: -len(LABELS)]
    return next((path for ending in EVENTS if (path := label.with_name(stem + ending)).is_file()), None)


def open_family(chosen: Selection, kind: str, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Training rules for the split train, evaluation rules for the others, unless OWN_RULES are given."""
    family = FAMILIES[kind]
    used = own_rules or (family.training if chosen.split == "train" else family.evaluation)
    recordings, missing, ignored = [], [], 0
    for label in chosen.files(f"*{LABELS}"):
        name = chosen.name_of(label, LABELS)
        if not chosen.has(name):
            continue
        events = events_of(label)
        if events is None:
            missing.append(f"{label}: has no recording beside it; expected {label.name[: -len(LABELS)]}_td.dat")
        elif name.rsplit("/", 1)[-1] in family.ignored:
            ignored += 1
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_boxes, label), used), family.sensor, halve or family.halve))
    alone = [path for path in chosen.files("*_td.dat") if not path.with_name(path.name.replace("_td.dat", LABELS)).is_file()]
    unlabelled = [path for path in alone if chosen.has(chosen.name_of(path, "_td.dat"))]
    missing += [f"{path}: has no labels beside it; expected {path.name.replace('_td.dat', LABELS)}" for path in unlabelled]
    if recordings:
        path, (width, height) = _first_sensor([recording.path for recording in recordings])
        if (width, height) != family.sensor:
            expected = f"{family.sensor[0]} x {family.sensor[1]}"
            raise InputError(f"{path}: states a sensor of {width} x {height}, {kind} has {expected}; give the kind that it is")
    notes = (f"{ignored} recordings left out as the field does: the rules leave no label in them",) if ignored else ()
    return Dataset(kind, chosen.split, used.classes, tuple(recordings), tuple(missing), notes)
