"""SEEDS -> DATA SET: DIR/{train,val,test}/SEED.h5 with labels, on all cores; what is complete is kept when it is resumed."""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from saccade.files import replacing
from saccade.simulate.plan import GENERATOR
from saccade.simulate.recording import LABEL_RATE_HZ, RecordingConfig, write_recording
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.shapes import CLASSES
from saccade.types import InputError

# First seed of each split within the million of a data set: a larger data set has the same recordings and more, in the same splits
SPLITS = {"train": 0, "val": 800_000, "test": 900_000}
MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    recordings: int = 400
    seconds: float = 8.0
    width: int = 160
    height: int = 128
    seed: int = 0
    sensor: SensorConfig = field(default_factory=SensorConfig)

    def __post_init__(self) -> None:
        if not 1 <= self.recordings <= SPLITS["val"] or self.seed < 0:
            raise InputError(f"data set: recordings={self.recordings} must be within 1 and {SPLITS['val']:,}, seed={self.seed} 0 or more")

    def seeds(self) -> dict[str, list[int]]:
        """80, 10 and 10 % of the recordings, at least one for training."""
        tenth = self.recordings // 10
        counts = {"train": self.recordings - 2 * tenth, "val": tenth, "test": tenth}
        return {split: [self.seed * MILLION + SPLITS[split] + i for i in range(counts[split])] for split in SPLITS}


def write_dataset(
    folder: Path | str, config: DatasetConfig, processes: int | None = None, progress: Callable[[str, float], None] | None = None
) -> list[Path]:
    """Write or complete the data set and return the paths of all its recordings. The bytes don't depend on the number of processes.

    `progress` gets the path of a recording and the seconds of it that are new. Two runs must not write to one folder at the same time.
    """
    folder = Path(folder)
    _prepare(folder, config)
    jobs = {folder / split / f"{seed:09d}.h5": seed for split, seeds in config.seeds().items() for seed in seeds}
    missing = [path for path in jobs if not path.exists()]
    for path in jobs:
        if progress and path.exists():
            progress(str(path), config.seconds)
    recording = RecordingConfig(seed=0, width=config.width, height=config.height, seconds=config.seconds, sensor=config.sensor)
    tasks = [(path, replace(recording, seed=jobs[path])) for path in missing]
    for path in _run(tasks, processes or os.cpu_count() or 1):
        if progress:
            progress(str(path), config.seconds)
    return list(jobs)


def _prepare(folder: Path, config: DatasetConfig) -> None:
    """Make the folders and dataset.json; refuse a folder that holds something else."""
    about: dict[str, Any] = {"format": "saccade simulated", "generator": GENERATOR, "classes": list(CLASSES)}
    about |= {"label_rate_hz": LABEL_RATE_HZ} | asdict(config)
    about["splits"] = {split: [f"{split}/{seed:09d}.h5" for seed in seeds] for split, seeds in config.seeds().items()}
    path = folder / "dataset.json"
    if path.exists():
        differs = _differences(path, json.loads(json.dumps(about)))
        if differs:
            raise InputError(f"{folder}: holds a data set of other settings ({differs}); give these settings again, or another folder")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and holds no data set of saccade; give a new or an empty folder")
    try:
        for split, seeds in config.seeds().items():
            if seeds:
                (folder / split).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: can't be made a folder ({error.strerror}); choose another") from error
    for left in folder.glob("*/.*.part*"):  # of a run that was killed
        left.unlink(missing_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(about, indent=1) + "\n")


def _differences(path: Path, about: dict[str, Any]) -> str:
    try:
        there = json.loads(path.read_text())
        flat = {**there, **there.get("sensor", {})}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: can't be read as a data set's description ({error}); choose another folder") from error
    wanted = {**about, **about["sensor"]}
    names = [name for name in wanted if name not in ("sensor", "splits") and flat.get(name) != wanted[name]]
    return ", ".join(f"{name} {flat.get(name)} instead of {wanted[name]}" for name in names)


def _run(tasks: list[tuple[Path, RecordingConfig]], processes: int) -> Iterator[Path]:
    """Write recordings, as many at a time as there are processes; an interrupt stops them all, and nothing is left half-written."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        for path, config in tasks:
            write_recording(path, config)
            yield path
        return
    context = multiprocessing.get_context("spawn")  # forking a process that has threads may lock up
    stop = context.Event()
    with ProcessPoolExecutor(processes, context, _begin, (stop,)) as executor:
        futures = [executor.submit(_work, path, config) for path, config in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise InputError(
                "simulate: a process was ended from outside, perhaps for want of memory; run it again, with fewer --processes"
            ) from error
        except BaseException:
            stop.set()
            executor.shutdown(wait=True, cancel_futures=True)
            raise


_stop: Any = None  # of a worker process: set when the others gave up


def _begin(stop: Any) -> None:
    """Ctrl-C reaches every process of the terminal: only the first decides. A worker whose first process was killed ends itself."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _work(path: Path, config: RecordingConfig) -> Path:
    write_recording(path, config, _give_up)
    return path


def _give_up(seconds: float) -> None:
    if _stop is not None and _stop.is_set():
        raise InterruptedError("the other processes gave up")
