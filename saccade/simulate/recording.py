"""SCENE -> FILES AND BACK: NAME.h5 (events), NAME_labels.npz (boxes at 200 Hz), NAME.json (from which boxes at any time follow)."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from saccade.events.write import write_events
from saccade.files import from_plain, replacing, to_plain
from saccade.simulate import photo_scene
from saccade.simulate.cutouts import Cutouts, PhotosConfig, load_cutouts, photo_set
from saccade.simulate.plan import GENERATOR, make_scene
from saccade.simulate.scene import Scene, Truth
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.simulation import simulate
from saccade.types import Events, InputError

LABEL_RATE_HZ = 200
CUTOUTS = "cutouts.npz"  # in the data set's folder


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
        return photo_scene.make_photo_scene(self.seed, photos, cutouts, self.width, self.height, self.seconds, split=self.split)


@lru_cache(maxsize=2)
def _cutouts(path: Path, photos: PhotosConfig) -> Cutouts:
    found = load_cutouts(path, photos)
    if found is None:
        raise InputError(f"{path}: no cut-outs of {photos.labels} there; the `saccade simulate` command that made the data set makes them")
    return found


def write_recording(events_path: Path, config: RecordingConfig, progress: Callable[[float], None] | None = None) -> int:
    """Write the three files, the events last: where they are, the rest is, too. Returns the number of events.

    `progress` gets the seconds simulated so far, and may raise to give up.
    """
    scene = config.scene(events_path.parent.parent)
    times_us = np.arange(0, scene.duration_us + 1, 1_000_000 // LABEL_RATE_HZ)
    truth = scene.truth(times_us)
    with replacing(labels_path(events_path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, times_us=times_us, **{item.name: getattr(truth, item.name) for item in fields(truth)})
    about = {"generator": config.generator, "classes": list(scene.classes), "label_rate_hz": LABEL_RATE_HZ} | to_plain(config)
    with replacing(events_path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(about, indent=1) + "\n")

    def chunks() -> Iterator[Events]:
        for events in simulate(scene, config.sensor):
            if progress and len(events):
                progress(float(events.t[-1]) * 1e-6)
            yield events

    return write_events(chunks(), events_path, width=config.width, height=config.height, overwrite=True)


def labels_path(events_path: Path) -> Path:
    return events_path.with_name(events_path.stem + "_labels.npz")


def read_truth(events_path: Path | str) -> tuple[np.ndarray, Truth]:
    """The labelled times (int64 us, a grid of 200 Hz; some have no object) and the objects at them."""
    path = labels_path(Path(events_path))
    try:
        with np.load(path) as arrays:
            return arrays["times_us"], Truth(**{item.name: arrays[item.name] for item in fields(Truth)})
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: no labels of a simulated recording ({error}); write them with `saccade simulate DIR`") from error


def read_config(events_path: Path | str) -> RecordingConfig:
    """What the recording was made of. `.scene(folder of the data set)` builds the scene again, for the truth at any microsecond."""
    path = Path(events_path).with_suffix(".json")
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
