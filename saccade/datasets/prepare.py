"""DATA SET -> CACHE -> DATA SET: `prepare` writes frames of one sampling, or events in a compact format; `open_prepared` reads them.

OUT/SPLIT/prepared.json says how, NAME.h5 holds the frames or events of a recording, NAME.npz its labels that count and its window ends.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np

from saccade.arrays import load_arrays
from saccade.cluster import LOCAL, spread
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import (
    BaseRecording,
    Clock,
    Dataset,
    FrameArray,
    GroundTruth,
    Halve,
    LabelledRecording,
    Sampling,
    WindowEnds,
)  # fmt: skip
from saccade.datasets.splits import Selection
from saccade.datasets.stored import COMPRESSION, frame_shape, index_of_ends, read_frames
from saccade.events.hdf5_new import new_hdf5
from saccade.events.write import write_events
from saccade.files import LOCK, Busy, check_name, differences, from_plain, only_writer, replacing, to_plain
from saccade.s3 import located
from saccade.types import InputError, Labels

CacheContent = Literal["frames", "events"]
SETTINGS = "prepared.json"
VERSION = 1
COLUMNS = ("t", "boxes", "classes", "tracks", "still_us", "visible", "speed_px_s")  # of the labels; from still_us on where they are known
FRAMES_AT_ONCE = 64  # in memory


@dataclass(frozen=True, kw_only=True)
class PreparedSettings:
    """All that decides what `prepare` writes: another value of any of it is another preparation."""

    version: int = VERSION
    what: CacheContent
    name: str
    split: str
    classes: tuple[str, ...]
    sampling: Sampling | None  # of frames
    halve: Halve
    recordings: tuple[str, ...]  # their names


def prepare(
    dataset: Dataset,
    out: Path,
    sampling: Sampling | None = None,
    *,
    what: CacheContent = "frames",
    processes: int | None = None,
    progress: Callable[[str], None] | None = None,
    on: str = LOCAL,
) -> list[str]:
    """Write OUT/SPLIT; `open_dataset(OUT, SPLIT)` reads it. Returns what is wrong with the recordings that were left out.

    frames: for one sampling, read back as they are. events: as HDF5, for any sampling, a quarter to a half as large as DAT.
    When: not for DAT, whose events become frames as quickly as stored frames are read (Gen1 at 20 Hz, clips of 21, one core, ms a
    frame: DAT 1.1, frames 0.95, events 2.1; at 200 Hz 0.5, 0.8, 1.1; benchmarks/datasets.py). For text: csv 8.3, frames 0.9, events
    2.3. Else where the same rate is read many times from a disk that is slower than decoding.
    Each recording appears when it is complete, so an interrupted preparation continues where it stopped; one with other settings in
    the same folder is refused. `progress` is called with the name of each recording when it is done. on: local, ray or ray://HEAD:PORT.
    """
    if what not in ("frames", "events"):
        raise InputError(f"prepare: unknown what={what!r}; expected frames or events")
    if processes is not None and processes < 1:
        raise InputError(f"prepare: processes={processes} must be at least 1")
    sampling = sampling or Sampling()
    folder = located(out) / dataset.split
    settings = PreparedSettings(
        what=what,
        name=dataset.name,
        split=dataset.split,
        classes=tuple(dataset.classes),
        sampling=sampling if what == "frames" else None,
        halve=dataset.recordings[0].halve if dataset.recordings else "no",  # the same for all recordings of a data set
        recordings=tuple(recording.name for recording in dataset.recordings),
    )
    with only_writer(folder):
        _write_settings(folder, settings)
        return _write(dataset, folder, sampling, what, processes, progress, on)


def _write(
    dataset: Dataset,
    folder: Path,
    sampling: Sampling,
    what: CacheContent,
    processes: int | None,
    progress: Callable[[str], None] | None,
    on: str,
) -> list[str]:
    todo = []
    for recording in dataset.recordings:
        if not _is_prepared(folder / f"{recording.name}.h5"):
            todo.append(recording)
        elif progress:
            progress(recording.name)
    work = partial(_prepare_one, folder=folder, sampling=sampling, what=what)
    problems = []
    for recording, problem in spread(work, todo, processes, on=on, what="prepare", seen=folder / LOCK):
        problems += [problem] if problem else []
        if progress:
            progress(recording.name)
    return problems


def _prepare_one(recording: LabelledRecording, folder: Path, sampling: Sampling, what: CacheContent) -> str | None:
    """What is wrong with it. The .h5 is written last: where it is, all of the recording is."""
    path = folder / f"{check_name(recording.name, 'prepare')}.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if what == "frames":
            ends_us = recording.ends_us(sampling)
            save_truth(path.with_suffix(".npz"), recording.truth, ends_us)
            _write_frames(recording, path, ends_us, sampling)
        elif isinstance(recording, EventRecording):
            save_truth(path.with_suffix(".npz"), recording.truth, np.zeros(0, np.int64))
            with recording.open() as reader:
                write_events(reader, path)
        else:
            raise InputError(f"{recording.name}: has frames, no events; prepare the raw recordings")
    except Busy:
        raise  # nothing is wrong with the recording
    except InputError as error:
        return str(error)
    return None


def _write_frames(recording: LabelledRecording, path: Path, ends_us: WindowEnds, sampling: Sampling) -> None:
    shape = 2 * sampling.bins, recording.height, recording.width
    with replacing(path) as temporary, new_hdf5(temporary) as (file, check_disk):
        # a chunk per frame: any clip can be read without its neighbours
        data = file.create_dataset("data", (len(ends_us), *shape), np.uint8, chunks=(1, *shape), **COMPRESSION)
        for i in range(0, len(ends_us), FRAMES_AT_ONCE):
            data[i : i + FRAMES_AT_ONCE] = recording.frames(ends_us[i : i + FRAMES_AT_ONCE], sampling)
            check_disk()


def _is_prepared(path: Path) -> bool:
    return path.is_file() and path.with_suffix(".npz").is_file()


def _write_settings(folder: Path, settings: PreparedSettings) -> None:
    path = folder / SETTINGS
    if path.is_file():
        differing = differences(to_plain(read_settings(path)), to_plain(settings))
        if differing:
            raise InputError(
                f"{folder}: holds a preparation with other settings ({'; '.join(differing[:5])}); "
                "prepare with those, or into another folder"
            )
        return
    if any(file.name != LOCK for file in folder.iterdir()):
        raise InputError(f"{folder}: isn't empty and wasn't written by prepare; choose a new folder")
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(to_plain(settings), indent=1))


def read_settings(path: Path) -> PreparedSettings:
    """What prepared.json says; settings that older versions didn't have get their defaults."""
    mend = "not written by this version of saccade; prepare into a new folder"
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {mend} ({error!r})") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise InputError(f"{path}: {mend}")
    settings = from_plain(PreparedSettings, content, str(path))
    for name in settings.recordings:
        check_name(name, path)
    return settings


def is_prepared_dataset(chosen: Selection) -> bool:
    return (chosen.folder / SETTINGS).is_file()


def open_prepared(chosen: Selection) -> Dataset:
    """The recordings whose preparation was finished; the number of the others is in the notes."""
    settings = read_settings(chosen.folder / SETTINGS)
    recordings: list[LabelledRecording] = []
    for name in settings.recordings:
        path = chosen.folder / f"{name}.h5"
        if not _is_prepared(path):
            continue
        if settings.what == "frames":
            recordings.append(PreparedFrames(name, path, settings.sampling or Sampling(), settings.halve))
        else:
            recordings.append(EventRecording(name, path, partial(load_truth, path.with_suffix(".npz")), halve=settings.halve))
    missing = len(settings.recordings) - len(recordings)
    if not recordings:
        raise InputError(f"{chosen.folder}: none of its {missing} recordings is prepared yet; run `saccade prepare` again, it continues")
    notes = (f"{missing} recordings aren't prepared yet; run `saccade prepare` again, it continues",) if missing else ()
    return Dataset(settings.name, settings.split, settings.classes, tuple(recordings), notes=notes)


@dataclass(frozen=True, eq=False)
class PreparedFrames(BaseRecording):
    """Frames of one sampling: PATH.h5 holds them, PATH.npz their ends and the labels."""

    name: str
    path: Path
    sampling: Sampling
    halve: Halve = "no"  # how they were halved before they were stored

    @property
    def fixed_sampling(self) -> Sampling:
        return self.sampling

    @cached_property
    def frame_size(self) -> tuple[int, int]:
        frames, _, height, width = frame_shape(self.path)
        if frames != len(self._ends_us):
            raise InputError(f"{self.path}: {frames} frames for {len(self._ends_us)} window ends; delete it and prepare again")
        return width, height

    @cached_property
    def _ends_us(self) -> WindowEnds:
        path = self.path.with_suffix(".npz")
        arrays = load_arrays(path)
        if "ends_us" not in arrays:
            raise InputError(f"{path}: not written by prepare; delete it and prepare again")
        return arrays["ends_us"]

    @cached_property
    def truth(self) -> GroundTruth:
        return load_truth(self.path.with_suffix(".npz"))

    def ends_us(self, sampling: Sampling) -> WindowEnds:
        self._check(sampling)
        return self._ends_us

    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        self._check(sampling)
        first = index_of_ends(ends_us, self._ends_us, self.name)
        return read_frames(self.path, first, first + len(ends_us))

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        raise InputError(
            f"{self.path}: holds frames of {self.sampling} and no events, so there are no windows at other places; "
            "use the recordings it was made of, or `saccade prepare --what events`"
        )

    def _check(self, sampling: Sampling) -> None:
        if sampling != self.sampling:
            raise InputError(
                f"{self.path}: was prepared with {self.sampling}, not {sampling}; prepare it again with that, or use the recordings"
            )


def save_truth(path: Path, truth: GroundTruth, ends_us: WindowEnds) -> None:
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


def load_truth(path: Path, width: int = 0, height: int = 0, scale: float = 1.0) -> GroundTruth:
    """What `save_truth` wrote. The arguments of `EventRecording.read_truth` don't matter: boxes are already in pixels of the frames."""
    arrays = load_arrays(path)
    try:
        labels = Labels(**{name: arrays[name] for name in COLUMNS if name in arrays or name in COLUMNS[:4]})
        origin_us, numerator, denominator = arrays["clock"].tolist()
        dropped = json.loads(str(arrays["dropped"]))
        duplicates = dropped.pop("duplicates")
        ignored = Labels(*(arrays[f"ignored_{name}"] for name in COLUMNS[:4])) if "ignored_t" in arrays else None  # in newer files
        return GroundTruth(labels, arrays["instants_us"], Clock(origin_us, Fraction(numerator, denominator)), dropped, duplicates, ignored)
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: not written by prepare ({error!r}); delete it and prepare again") from error
