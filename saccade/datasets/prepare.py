"""DATA SET -> CACHE that opens as a data set: frames of one sampling, or events in a compact, quick format."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from saccade.datasets.prepared import SETTINGS, read_settings, save_truth, settings_of
from saccade.datasets.raw_events import EventRecording
from saccade.datasets.recording import Dataset, LabelledRecording, Sampling
from saccade.datasets.stored import COMPRESSION
from saccade.events.write import write_events
from saccade.files import explain_full_disk, replacing
from saccade.types import InputError

What = Literal["frames", "events"]
PIECE = 64  # frames in memory at once


def prepare(
    dataset: Dataset,
    out: Path,
    sampling: Sampling | None = None,
    *,
    what: What = "frames",
    processes: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Write OUT/SPLIT; `open_dataset(OUT, SPLIT)` reads it. Returns what is wrong with the recordings that were left out.

    frames: for one sampling, read back as they are. events: as HDF5, for any sampling, a quarter to a half as large as DAT.
    When: not for DAT, whose events become frames as quickly as stored frames are read (Gen1 at 20 Hz, clips of 21, one core, ms a
    frame: DAT 1.1, frames 0.95, events 2.1; at 200 Hz 0.5, 0.8, 1.1; benchmarks/datasets.py). For text: csv 8.3, frames 0.9, events
    2.3. Else where the same rate is read many times from a disk that is slower than decoding.
    Each recording appears when it is complete, so a preparation that was interrupted goes on where it was; one with other settings in
    the same folder is refused. `progress` is called with the name of each recording when it is done.
    """
    if what not in ("frames", "events"):
        raise InputError(f"prepare: unknown what={what!r}; expected frames or events")
    if processes is not None and processes < 1:
        raise InputError(f"prepare: processes={processes} must be at least 1")
    sampling = sampling or Sampling()
    folder = Path(out) / dataset.split
    halve = next((getattr(recording, "halve", "no") for recording in dataset.recordings), "no")  # of a data set all are alike
    _write_settings(folder, settings_of(dataset, what, sampling, halve))
    todo = [recording for recording in dataset.recordings if not _done(folder, recording.name)]
    for recording in dataset.recordings:
        if progress and recording not in todo:
            progress(recording.name)
    problems = []
    for name, problem in _run(todo, folder, sampling, what, min(processes or os.cpu_count() or 1, max(len(todo), 1))):
        problems += [problem] if problem else []
        if progress:
            progress(name)
    return problems


def _run(todo: list, folder: Path, sampling: Sampling, what: What, processes: int) -> Iterator[tuple[str, str | None]]:
    if processes == 1:
        for recording in todo:
            yield _prepare_one(recording, folder, sampling, what)
        return
    # spawn: a forked child may inherit locks of h5py or numba in the middle of their use
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin) as pool:
        jobs = [pool.submit(_prepare_one, recording, folder, sampling, what) for recording in todo]
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Ctrl-C reaches every process of the terminal: only the first one decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _prepare_one(recording: LabelledRecording, folder: Path, sampling: Sampling, what: What) -> tuple[str, str | None]:
    """(name, what is wrong). The .h5 comes last: where it is, all of the recording is."""
    path = folder / f"{recording.name}.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        truth = getattr(recording, "truth", None)
        if truth is None:
            raise InputError(f"{recording.name}: recordings of this kind can't be prepared; use those that open_dataset returns")
        if what == "frames":
            ends_us = recording.ends_us(sampling)
            save_truth(path.with_suffix(".npz"), truth, ends_us)
            _write_frames(recording, path, ends_us, sampling)
        elif isinstance(recording, EventRecording):
            save_truth(path.with_suffix(".npz"), truth, np.zeros(0, np.int64))
            with recording.open() as reader:
                write_events(reader, path)
        else:
            raise InputError(f"{recording.name}: has frames, no events; prepare the raw recordings")
    except InputError as error:
        return recording.name, str(error)
    return recording.name, None


def _write_frames(recording: LabelledRecording, path: Path, ends_us: np.ndarray, sampling: Sampling) -> None:
    shape = 2 * sampling.bins, recording.height, recording.width
    with explain_full_disk(path), replacing(path) as temporary, h5py.File(temporary, "w") as file:
        # a chunk per frame: any clip can be read without its neighbours
        data = file.create_dataset("data", (len(ends_us), *shape), np.uint8, chunks=(1, *shape), **COMPRESSION)
        for i in range(0, len(ends_us), PIECE):
            data[i : i + PIECE] = recording.frames(ends_us[i : i + PIECE], sampling)


def _done(folder: Path, name: str) -> bool:
    return (folder / f"{name}.h5").is_file() and (folder / f"{name}.npz").is_file()


def _write_settings(folder: Path, settings: dict) -> None:
    path = folder / SETTINGS
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: can't be made a folder ({error.strerror}); choose another") from error
    if path.is_file():
        before = read_settings(path)
        other = [name for name, value in settings.items() if before[name] != value]
        if other:
            was = ", ".join(f"{name}={before[name]!r:.100}" for name in other)
            raise InputError(f"{folder}: was prepared with other settings ({was}); prepare into a new folder, or delete this one")
        return
    if any(folder.iterdir()):
        raise InputError(f"{folder}: isn't empty and wasn't written by prepare; choose a new folder")
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(settings, indent=1))
