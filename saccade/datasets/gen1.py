"""`*_td.dat` + `*_bbox.npy` -> DATA SET: Gen1, 1 Mpx and eTraM straight from the events, at any rate."""

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
    pair = next(((label, events) for label in chosen.files(f"*{LABELS}") if (events := events_of(label))), None)
    if pair is None:
        return None
    with open_events(pair[1]) as reader:
        size = reader.width, reader.height
    dat = ".dat" in pair[1].name
    found = next((kind for kind, family in FAMILIES.items() if family.sensor == size and (kind == "etram") != dat), None)
    if found is None:
        raise InputError(
            f"{pair[1]}: a sensor of {size[0]} x {size[1]} is none of Gen1 (304 x 240), 1 Mpx, eTraM (1280 x 720); "
            "for recordings of your own, name each label file NAME.csv (see kind='folder')"
        )
    return found


def events_of(label: Path) -> Path | None:
    stem = label.name[: -len(LABELS)]
    return next((path for ending in EVENTS if (path := label.with_name(stem + ending)).is_file()), None)


def open_family(chosen: Selection, kind: str, own_rules: LabelRules | None = None, halve: Halve | None = None) -> Dataset:
    """Training rules for the split train, evaluation rules for the others, unless OWN_RULES are given."""
    family = FAMILIES[kind]
    used = own_rules or (family.training if chosen.split == "train" else family.evaluation)
    recordings, notes, ignored = [], [], 0
    for label in chosen.files(f"*{LABELS}"):
        name = chosen.name_of(label, LABELS)
        if not chosen.has(name):
            continue
        events = events_of(label)
        if events is None:
            notes.append(f"{label}: has no recording beside it; expected {label.name[: -len(LABELS)]}_td.dat")
        elif name.rsplit("/", 1)[-1] in family.ignored:
            ignored += 1
        else:
            recordings.append(EventRecording(name, events, ruled(partial(read_boxes, label), used), family.sensor, halve or family.halve))
    if ignored:
        notes.append(f"{ignored} recordings left out as the field does: the rules leave no label in them")
    unlabelled = [path for path in chosen.files("*_td.dat") if not path.with_name(path.name.replace("_td.dat", LABELS)).is_file()]
    notes += [f"{path}: has no labels beside it; expected {path.name.replace('_td.dat', LABELS)}" for path in unlabelled]
    _check_sensor(recordings[:1], kind, family)
    return Dataset(kind, chosen.split, used.classes, tuple(recordings), tuple(notes))


def _check_sensor(first: list[EventRecording], kind: str, family: Family) -> None:
    for recording in first:
        with open_events(recording.path) as reader:
            if (reader.width, reader.height) != family.sensor:
                raise InputError(
                    f"{recording.path}: states a sensor of {reader.width} x {reader.height}, {kind} has "
                    f"{family.sensor[0]} x {family.sensor[1]}; give the kind that it is"
                )
