"""SCENE -> FILES AND BACK: NAME.h5 (events), NAME_labels.npz (boxes at 200 Hz), NAME.json (from which boxes at any time follow)."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from saccade.events.write import write_events
from saccade.files import replacing
from saccade.simulate.plan import GENERATOR, make_scene
from saccade.simulate.scene import Scene, Truth
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.simulation import simulate
from saccade.types import Events, InputError

LABEL_RATE_HZ = 200


@dataclass(frozen=True, kw_only=True)
class RecordingConfig:
    """All that a simulated recording depends on; with the generator's number it is the recording."""

    seed: int
    width: int = 160
    height: int = 128
    seconds: float = 8.0
    sensor: SensorConfig = field(default_factory=SensorConfig)

    def scene(self) -> Scene:
        return make_scene(self.seed, self.width, self.height, self.seconds)


def write_recording(events_path: Path, config: RecordingConfig, progress: Callable[[float], None] | None = None) -> int:
    """Write the three files, the events last: where they are, the rest is, too. Returns the number of events.

    `progress` gets the seconds simulated so far, and may raise to give up.
    """
    scene = config.scene()
    times_us = np.arange(0, scene.duration_us + 1, 1_000_000 // LABEL_RATE_HZ)
    truth = scene.truth(times_us)
    with replacing(labels_path(events_path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, times_us=times_us, **{item.name: getattr(truth, item.name) for item in fields(truth)})
    about = {"generator": GENERATOR, "classes": list(scene.classes), "label_rate_hz": LABEL_RATE_HZ} | asdict(config)
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
    """What the recording was made of. `.scene()` builds the scene again, for the truth at any microsecond."""
    path = Path(events_path).with_suffix(".json")
    try:
        about = json.loads(path.read_text())
        generator = about["generator"]
        values = {item.name: about[item.name] for item in fields(RecordingConfig)}
        values["sensor"] = SensorConfig(**values["sensor"])
        config = RecordingConfig(**values)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: no description of a simulated recording ({error}); write one with `saccade simulate`") from error
    if generator != GENERATOR:
        raise InputError(
            f"{path}: made by generator {generator}, this saccade has {GENERATOR}: another scene would come out; simulate anew"
        )
    return config
