"""SEEDS -> DATA SET AND BACK: events, labels and settings per recording, made on all cores; a second run completes what is missing.

DIR/{train,val,test}/SEED.h5 (events), SEED_labels.npz (boxes at 200 Hz), SEED.json (from which boxes at any time follow).
"""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from saccade.arrays import open_arrays
from saccade.cluster import LOCAL, spread
from saccade.events.write import write_events
from saccade.files import LOCK, differences, from_plain, only_writer, replacing, to_plain
from saccade.pool import report
from saccade.s3 import located
from saccade.simulate import photo_scene
from saccade.simulate.cutouts import Cutouts, PhotosConfig, load_cutouts, photo_set, prepare_cutouts
from saccade.simulate.evidence import Evidence, noise_rate
from saccade.simulate.photos import warn_unreadable
from saccade.simulate.plan import GENERATOR, make_scene
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.shapes import CLASSES
from saccade.simulate.simulation import Scene, Truth, simulate
from saccade.types import Events, InputError

LABEL_RATE_HZ = 200
CHUNK_US = 200_000  # events written at once: each piece costs HDF5 some milliseconds
CUTOUTS = "cutouts.npz"  # in the data set's folder

# First seed of each split within the million of a data set: a larger data set has the same recordings and more, in the same splits
SPLITS = {"train": 0, "val": 800_000, "test": 900_000}
MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RecordingConfig:
    """All that a simulated recording depends on; with the generator's number it is the recording."""

    seed: int
    width: int = 160
    height: int = 128
    seconds: float = 8.0
    sensor: SensorConfig = field(default_factory=SensorConfig)
    photos: PhotosConfig | None = None  # None: a drawn street
    split: str | None = None  # photographs of this split only, None = of all
    standing: float = photo_scene.STANDS  # of photographs: probability that the camera doesn't move
    driving: float = photo_scene.DRIVES  # probability that one which moves does so as in a car

    @property
    def generator(self) -> int | str:
        return GENERATOR if self.photos is None else f"photos {photo_scene.GENERATOR}"

    def scene(self, folder: Path | None = None) -> Scene:
        """FOLDER is the data set's, where the cut-outs of photographs are."""
        if self.photos is None:
            return make_scene(self.seed, self.width, self.height, self.seconds)
        if folder is None:
            raise InputError("RecordingConfig.scene: a scene of photographs needs the data set's folder, for its cut-outs")
        photos = photo_set(self.photos.labels, self.photos.images)
        if photos.digest != self.photos.digest:
            raise InputError(f"{self.photos.labels}: is not the label file that the recording was made from; simulate anew")
        cutouts = _cutouts(folder / CUTOUTS, self.photos)
        size = (self.width, self.height, self.seconds)
        return photo_scene.make_photo_scene(
            self.seed, photos, cutouts, *size, split=self.split, standing=self.standing, driving=self.driving
        )


@lru_cache(maxsize=2)
def _cutouts(path: Path, photos: PhotosConfig) -> Cutouts:
    found = load_cutouts(path, photos)
    if found is None:
        raise InputError(f"{path}: no cut-outs of {photos.labels} there; the `saccade simulate` command that made the data set makes them")
    return found


def write_recording(events_path: Path, config: RecordingConfig, progress: Callable[[float], None] | None = None) -> dict[str, str]:
    """Write the three files, the events last: where they are, the rest is, too. Returns photographs that can't be read: name -> error.

    `progress` gets the seconds simulated so far, and may raise to give up.
    """
    scene = config.scene(events_path.parent.parent)
    times_us = np.arange(0, scene.duration_us + 1, 1_000_000 // LABEL_RATE_HZ)
    truth = scene.truth(times_us)
    evidence = None
    if config.photos is not None:  # before a photograph, as before a real camera, much moves that can't be seen
        evidence = Evidence(truth, times_us, config.width, config.height, noise_rate(config.sensor, scene.finer))

    def chunks() -> Iterator[Events]:
        for events in simulate(scene, config.sensor, chunk_us=CHUNK_US):
            if progress and len(events):
                progress(float(events.t[-1]) * 1e-6)
            if evidence:
                evidence.add(events)
            yield events

    with replacing(events_path) as temporary:
        write_events(chunks(), temporary, width=config.width, height=config.height, overwrite=True)
        truth = evidence.seen() if evidence else truth
        with replacing(labels_path(events_path)) as labels, labels.open("wb") as file:
            np.savez_compressed(file, times_us=times_us, **{item.name: getattr(truth, item.name) for item in fields(truth)})
        about = {"generator": config.generator, "classes": list(scene.classes), "label_rate_hz": LABEL_RATE_HZ} | to_plain(config)
        with replacing(events_path.with_suffix(".json")) as description:
            description.write_text(json.dumps(about, indent=1) + "\n")
    return scene.unreadable if isinstance(scene, photo_scene.PhotoScene) else {}


def labels_path(events_path: Path) -> Path:
    return events_path.with_name(events_path.stem + "_labels.npz")


def read_truth(events_path: Path | str) -> tuple[np.ndarray, Truth]:
    """The labelled times (int64 us, a grid of 200 Hz; some have no object) and the objects at them."""
    path = labels_path(located(events_path))
    try:
        with open_arrays(path) as arrays:
            return arrays["times_us"], Truth(**{item.name: arrays[item.name] for item in fields(Truth)})
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: no labels of a simulated recording ({error}); write them with `saccade simulate DIR`") from error


def read_config(events_path: Path | str) -> RecordingConfig:
    """What the recording was made of. `.scene(folder of the data set)` builds the scene again, for the truth at any microsecond."""
    path = located(events_path).with_suffix(".json")
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        generator = about["generator"]
        values = {item.name: about[item.name] for item in fields(RecordingConfig) if item.name in about}
        config = from_plain(RecordingConfig, values, str(path))
    except (OSError, KeyError, TypeError, ValueError, InputError) as error:
        raise InputError(f"{path}: no description of a simulated recording ({error}); write one with `saccade simulate`") from error
    if generator != config.generator:
        raise InputError(
            f"{path}: made by generator {generator}, this saccade has {config.generator}: another scene would come out; simulate anew"
        )
    return config


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    recordings: int = 400
    seconds: float = 8.0
    width: int = 160
    height: int = 128
    seed: int = 0
    sensor: SensorConfig = field(default_factory=SensorConfig)
    photos: PhotosConfig | None = None  # None: drawn streets. With photographs and the sensor as built every recording has its own sensor
    split: str | None = None  # all recordings go into this one, None = 80, 10 and 10 % of them and of the photographs
    standing: float = photo_scene.STANDS  # of photographs: share of the recordings whose camera doesn't move
    driving: float = photo_scene.DRIVES  # share of the moving cameras that move as in a car

    def __post_init__(self) -> None:
        for name in ("standing", "driving"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"data set: {name}={getattr(self, name)} must be from 0 to 1")
        if not 1 <= self.recordings <= SPLITS["val"] or self.seed < 0:
            raise InputError(f"data set: recordings={self.recordings} must be within 1 and {SPLITS['val']:,}, seed={self.seed} 0 or more")
        if self.split is not None and self.split not in SPLITS:
            raise InputError(f"data set: split={self.split!r} must be one of {', '.join(SPLITS)}")

    def seeds(self) -> dict[str, list[int]]:
        """80, 10 and 10 % of the recordings, at least one for training; or all in one split."""
        tenth = self.recordings // 10
        counts = {"train": self.recordings - 2 * tenth, "val": tenth, "test": tenth}
        if self.split is not None:
            counts = dict.fromkeys(SPLITS, 0) | {self.split: self.recordings}
        return {split: [self.seed * MILLION + SPLITS[split] + i for i in range(counts[split])] for split in SPLITS}

    def recording(self, seed: int, split: str) -> RecordingConfig:
        sensor = photo_scene.draw_sensor(seed) if self.photos is not None and self.sensor == SensorConfig() else self.sensor
        shared = None if self.photos is None or self.split is not None else split
        size: dict[str, Any] = {"width": self.width, "height": self.height, "seconds": self.seconds}
        return RecordingConfig(
            seed=seed, **size, sensor=sensor, photos=self.photos, split=shared, standing=self.standing, driving=self.driving
        )


def write_dataset(
    folder: Path | str,
    config: DatasetConfig,
    processes: int | None = None,
    progress: Callable[[str, float], None] | None = None,
    cutting: Callable[[int, int], None] | None = None,
    on: str = LOCAL,
) -> list[Path]:
    """Write or complete the data set and return the paths of all its recordings. The bytes depend neither on the number of processes nor
    on where they run: ON is local, ray or ray://HEAD:PORT.

    `progress` gets the path of a recording and the seconds of it that are new, `cutting` how many cut-outs of photographs are made and how
    many are wanted. A second run that writes to the same folder at the same time is refused.
    """
    folder = located(folder)
    with only_writer(folder):
        return _write(folder, config, processes, progress, cutting, on)


def _write(
    folder: Path,
    config: DatasetConfig,
    processes: int | None,
    progress: Callable[[str, float], None] | None,
    cutting: Callable[[int, int], None] | None,
    on: str,
) -> list[Path]:
    _prepare(folder, config)
    if config.photos is not None:
        prepare_cutouts(folder / CUTOUTS, config.photos, processes, cutting, on)
    jobs = {folder / split / f"{seed:09d}.h5": (seed, split) for split, seeds in config.seeds().items() for seed in seeds}
    missing = [path for path in jobs if not path.exists()]
    for path in jobs:
        if progress and path.exists():
            progress(str(path), config.seconds)
    tasks = [(path, config.recording(*jobs[path])) for path in missing]
    unreadable: dict[str, str] = {}
    for (path, _), failed in spread(_work, tasks, processes, on=on, what="simulate", seen=folder / LOCK):
        unreadable |= failed
        if progress:
            progress(str(path), config.seconds)
    if config.photos is not None:
        warn_unreadable(config.photos.labels, "scenes", unreadable)
    return list(jobs)


def _work(task: tuple[Path, RecordingConfig]) -> dict[str, str]:
    return write_recording(*task, progress=lambda seconds: report())


def _prepare(folder: Path, config: DatasetConfig) -> None:
    """Make the folders and dataset.json; refuse a folder that holds something else."""
    about: dict[str, Any] = {"format": "saccade simulated", "generator": config.recording(0, "train").generator, "classes": list(CLASSES)}
    about |= {"label_rate_hz": LABEL_RATE_HZ} | to_plain(config)
    about["splits"] = {split: [f"{split}/{seed:09d}.h5" for seed in seeds] for split, seeds in config.seeds().items()}
    path = folder / "dataset.json"
    if path.exists():
        differs = _differences(path, about)
        if differs:
            raise InputError(f"{folder}: holds a data set of other settings ({differs}); give these settings again, or another folder")
    elif folder.exists() and (not folder.is_dir() or any(file.name not in (CUTOUTS, LOCK) for file in folder.iterdir())):
        raise InputError(f"{folder}: exists and holds no data set of saccade; give a new or an empty folder")
    try:
        for split, seeds in config.seeds().items():
            if seeds:
                (folder / split).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: can't be made a folder ({error.strerror}); choose another") from error
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(about, indent=1) + "\n")


def _differences(path: Path, about: dict[str, Any]) -> str:
    """Between the data set that is there and the one wanted. What an older saccade didn't write has its default."""
    try:
        there = to_plain(DatasetConfig()) | json.loads(path.read_text())
        there["sensor"] = to_plain(SensorConfig()) | there["sensor"]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: can't be read as a data set's description ({error}); choose another folder") from error
    return ", ".join(differences(there | {"splits": about["splits"]}, about))
