"""Object detection with event cameras, trained once, run at any rate.

The public API, each with a line that shows how it is called:

    with saccade.open_events("drive.raw") as recording: ...      any recording: DAT, RAW, HDF5, AEDAT4, ROS, npz, csv
    for window in saccade.windows(recording, rate_hz=200): ...   events cut into windows on an exact grid
    for frame in saccade.frames(recording, rate_hz=200): ...     the same as counts per polarity, time bin and pixel

    detector = saccade.load_detector("nano")                     a name, a weights file or a published checkpoint
    stream = saccade.Stream(detector, rate_hz=200)               events in portions of any size -> detections
    for detections in stream.run("drive.raw"): ...

    dataset = saccade.open_dataset("streets", "train")           recordings with labels, recognised by what the folder holds
    saccade.train("streets", "run", "synthetic", steps=300)      -> run/final.safetensors
    saccade.evaluate("nano", "streets", rates_hz=(20, 200))      mAP at every rate, at the same labelled instants

Values that flow: Events (t, x, y, p), Window, Detections (.table(), .to_coco(), .to_supervision()), Labels. Wrong input is an InputError.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.api import evaluate, train
    from saccade.datasets.open import open_dataset
    from saccade.events.open import open_events
    from saccade.representation.frames import frames
    from saccade.representation.windows import windows
    from saccade.stream.stream import Stream
    from saccade.types import Detections, Events, InputError, Labels, Window
    from saccade.weights.load import load_detector

__version__ = "0.1.0"
__all__ = [
    "Detections", "Events", "InputError", "Labels", "Stream", "Window", "__version__", "evaluate", "frames", "load_detector",
    "open_dataset", "open_events", "train", "windows",
]  # fmt: skip

# Imported when they are asked for: torch takes two seconds, and reading a recording needs none of it; the list of commands needs nothing.
_LATER = {
    **dict.fromkeys(("Detections", "Events", "InputError", "Labels", "Window"), "saccade.types"),
    "Stream": "saccade.stream.stream",
    "evaluate": "saccade.api",
    "frames": "saccade.representation.frames",
    "load_detector": "saccade.weights.load",
    "open_dataset": "saccade.datasets.open",
    "open_events": "saccade.events.open",
    "train": "saccade.api",
    "windows": "saccade.representation.windows",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
