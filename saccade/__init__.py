"""Object detection with event cameras, trained once, run at any rate."""

from typing import TYPE_CHECKING, Any

from saccade.events.open import open_events
from saccade.representation.frames import frames
from saccade.representation.windows import windows
from saccade.types import Detections, Events, InputError, Labels, Window

if TYPE_CHECKING:
    from saccade.stream.stream import Stream
    from saccade.weights.load import load_detector

__all__ = ["Detections", "Events", "InputError", "Labels", "Stream", "Window", "frames", "load_detector", "open_events", "windows"]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for: torch takes two seconds, reading a recording needs none of it."""
    if name == "load_detector":
        from saccade.weights.load import load_detector

        return load_detector
    if name == "Stream":
        from saccade.stream.stream import Stream

        return Stream
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")
