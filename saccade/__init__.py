"""Object detection with event cameras, trained once, run at any rate."""

from saccade.events.open import open_events
from saccade.representation.frames import frames
from saccade.representation.windows import windows
from saccade.types import Events, InputError, Window

__all__ = ["Events", "InputError", "Window", "frames", "open_events", "windows"]
