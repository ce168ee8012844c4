"""WHAT `prepare` WROTE -> DATA SET: frames of one sampling, or compact events for any, with the labels that count."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from saccade.datasets.labels import load_arrays
from saccade.datasets.raw_events import EventRecording, Halve
from saccade.datasets.recording import Clip, Dataset, Ends, Instants, LabelledRecording, Sampling
from saccade.datasets.rules import Clock, Truth
from saccade.datasets.splits import Selection
from saccade.datasets.stored import frame_shape, place, read_frames
from saccade.files import replacing
from saccade.types import InputError, Labels

SETTINGS = "prepared.json"
VERSION = 1
COLUMNS = ("t", "boxes", "classes", "tracks", "still_us", "visible", "speed_px_s")  # of the labels; from still_us on where they are known


@dataclass(frozen=True, eq=False)
class PreparedFrames:
    """Frames of one sampling: PATH.h5 holds them, PATH.npz their ends and the labels."""

    name: str
    path: Path
    sampling: Sampling
    halve: Halve = "no"  # how they were, before they were stored

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @cached_property
    def _size(self) -> tuple[int, int]:
        frames, _, height, width = frame_shape(self.path)
        if frames != len(self._ends_us):
            raise InputError(f"{self.path}: {frames} frames for {len(self._ends_us)} window ends; delete it and prepare again")
        return width, height

    @cached_property
    def _ends_us(self) -> Ends:
        path = self.path.with_suffix(".npz")
        arrays = load_arrays(path)
        if "ends_us" not in arrays:
            raise InputError(f"{path}: not written by prepare; delete it and prepare again")
        return arrays["ends_us"]

    @property
    def width(self) -> int:
        return self._size[0]

    @property
    def height(self) -> int:
        return self._size[1]

    @cached_property
    def truth(self) -> Truth:
        return load_truth(self.path.with_suffix(".npz"))

    @property
    def labels(self) -> Labels:
        return self.truth.labels

    @property
    def instants_us(self) -> Instants:
        return self.truth.instants_us

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        return self.truth.at(end_us, tolerance_us)

    def ends_us(self, sampling: Sampling) -> Ends:
        self._check(sampling)
        return self._ends_us

    def frames(self, ends_us: Ends, sampling: Sampling) -> Clip:
        self._check(sampling)
        first = place(ends_us, self._ends_us, self.name)
        return read_frames(self.path, first, first + len(ends_us))

    def windows(self, starts_us: Ends, ends_us: Ends, sampling: Sampling) -> Clip:
        raise InputError(
            f"{self.path}: holds frames of {self.sampling} and no events, so windows at other places can't be had; "
            "use the recordings it was made of, or `saccade prepare --what events`"
        )

    def _check(self, sampling: Sampling) -> None:
        if sampling != self.sampling:
            raise InputError(f"{self.path}: was prepared with {self.sampling}, not {sampling}; prepare it so, or use the recordings")


def save_truth(path: Path, truth: Truth, ends_us: Ends) -> None:
    """Write NAME.npz: the labels that count, whole or not at all."""
    labels, clock = truth.labels, truth.clock
    arrays = {name: getattr(labels, name) for name in COLUMNS if getattr(labels, name) is not None}
    if truth.ignored is not None:
        arrays |= {f"ignored_{name}": getattr(truth.ignored, name) for name in COLUMNS[:4]}
    arrays["instants_us"], arrays["ends_us"] = truth.instants_us, ends_us
    arrays["clock"] = np.array([clock.origin_us, clock.stretch.numerator, clock.stretch.denominator], np.int64)
    arrays["dropped"] = np.array(json.dumps({**truth.dropped, "duplicates": truth.duplicates}))
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_truth(path: Path, width: int = 0, height: int = 0, scale: float = 1.0) -> Truth:
    """What `save_truth` wrote; the boxes are already in pixels of the frames, so the sensor plays no role."""
    arrays = load_arrays(path)
    try:
        labels = Labels(**{name: arrays[name] for name in COLUMNS if name in arrays or name in COLUMNS[:4]})
        origin_us, numerator, denominator = arrays["clock"].tolist()
        dropped = json.loads(str(arrays["dropped"]))
        duplicates = dropped.pop("duplicates")
        ignored = Labels(*(arrays[f"ignored_{name}"] for name in COLUMNS[:4])) if "ignored_t" in arrays else None  # in newer files
        return Truth(labels, arrays["instants_us"], Clock(origin_us, Fraction(numerator, denominator)), dropped, duplicates, ignored)
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: not written by prepare ({error!r}); delete it and prepare again") from error


def recognise(chosen: Selection) -> bool:
    return (chosen.folder / SETTINGS).is_file()


def open_prepared(chosen: Selection) -> Dataset:
    """Recordings whose preparation was finished; the others are in the notes."""
    settings = read_settings(chosen.folder / SETTINGS)
    recordings: list[LabelledRecording] = []
    for name in settings["recordings"]:
        path = chosen.folder / f"{name}.h5"
        if not path.is_file() or not path.with_suffix(".npz").is_file():
            continue
        if settings["what"] == "frames":
            recordings.append(PreparedFrames(name, path, Sampling(**settings["sampling"]), settings["halve"]))
        else:
            recordings.append(EventRecording(name, path, partial(load_truth, path.with_suffix(".npz")), halve=settings["halve"]))
    missing = len(settings["recordings"]) - len(recordings)
    if not recordings:
        raise InputError(f"{chosen.folder}: none of its {missing} recordings is prepared yet; run `saccade prepare` again, it goes on")
    notes = (f"{missing} recordings aren't prepared yet; run `saccade prepare` again, it goes on",) if missing else ()
    return Dataset(settings["name"], settings["split"], tuple(settings["classes"]), tuple(recordings), notes=notes)


def settings_of(dataset: Dataset, what: str, sampling: Sampling, halve: str) -> dict[str, Any]:
    """All that decides what `prepare` writes: another value of any of it is another preparation."""
    return {
        "version": VERSION, "what": what, "name": dataset.name, "split": dataset.split, "classes": list(dataset.classes),
        "sampling": asdict(sampling) if what == "frames" else None, "halve": halve,
        "recordings": [recording.name for recording in dataset.recordings],
    }  # fmt: skip


def read_settings(path: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(path.read_text())
        if settings["version"] != VERSION or settings["what"] not in ("frames", "events"):
            raise ValueError(f"version {settings['version']}, {settings['what']}")
        return {name: settings[name] for name in ("version", "what", "name", "split", "classes", "sampling", "halve", "recordings")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not written by this version of saccade ({error!r}); prepare into a new folder") from error
