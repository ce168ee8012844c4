"""LIVE CAMERAS -> PORTIONS OF EVENTS, through their makers' packages.

Written from the makers' documentation; dv-processing's part runs on its recordings, neither was tried on a camera. The packages are
imported when a camera is opened.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from saccade.sources.source import Source
from saccade.types import Events, InputError

PORTION_US = 2_000
IDLE_S = 0.0005  # poll interval while a camera has no new events


class PropheseeCamera(Source):
    """A Prophesee camera through Metavision's `EventsIterator`; SERIAL "" is the first one found."""

    def __init__(self, serial: str = "", portion_us: int = PORTION_US) -> None:
        try:
            from metavision_core.event_io import EventsIterator
        except ImportError as error:
            raise InputError(
                "prophesee: needs the Python package metavision_core, which comes with OpenEB or Metavision SDK, not from PyPI; "
                "see https://docs.prophesee.ai, and make sure that this Python sees it (PYTHONPATH)"
            ) from error
        try:
            self._iterator = EventsIterator(input_path=serial, delta_t=portion_us)
            self.height, self.width = (int(side) for side in self._iterator.get_size())
        except (OSError, RuntimeError) as error:
            raise InputError(f"prophesee: no camera {serial or 'found'} ({error}); is it plugged in and used by nobody else?") from error
        self.serial = serial

    def __iter__(self) -> Iterator[Events]:
        for rows in self._iterator:  # of length 0 while there are no events
            if self.closed:
                return
            yield _copied(rows["t"], rows["x"], rows["y"], rows["p"], self.width, self.height)

    def __repr__(self) -> str:
        return f"prophesee:{self.serial}"


class IniVationCamera(Source):
    """A DVS or DAVIS through dv-processing's capture; SERIAL "" is the first one found."""

    def __init__(self, serial: str = "") -> None:
        try:
            import dv_processing
        except ImportError as error:
            raise InputError('inivation: needs the package dv-processing; `pip install "saccade-events[inivation]"`') from error
        modern = getattr(dv_processing.io, "camera", None)  # version 2
        try:
            self._camera = (dv_processing.io.CameraCapture if modern is None else modern.open)(*([serial] if serial else []))
            self.width, self.height = (int(side) for side in self._camera.getEventResolution())
        except (OSError, RuntimeError, TypeError, IndexError) as error:  # the last if there is none at all
            reason = next((line for line in str(error).splitlines() if "Error: " in line), type(error).__name__)  # without its stack
            raise InputError(f"inivation: no camera {serial or 'found'} with events ({reason}); is it plugged in?") from error
        self.serial = serial

    def __iter__(self) -> Iterator[Events]:
        while not self.closed and self._camera.isRunning():
            batch = self._camera.getNextEventBatch()
            if batch is None:
                time.sleep(IDLE_S)
                continue
            rows = batch.numpy()
            yield _copied(rows["timestamp"], rows["x"], rows["y"], rows["polarity"], self.width, self.height)

    def __repr__(self) -> str:
        return f"inivation:{self.serial}"


def open_camera(maker: str, serial: str) -> Source:
    """MAKER is prophesee, inivation, or camera: the first that has a camera."""
    makers: dict[str, type[PropheseeCamera] | type[IniVationCamera]] = {"prophesee": PropheseeCamera, "inivation": IniVationCamera}
    if maker != "camera":
        return makers[maker](serial)
    problems = []
    for one in makers.values():
        try:
            return one(serial)
        except InputError as error:
            problems.append(str(error))
    raise InputError(f"camera: {'; '.join(problems)}")


def _copied(t: Any, x: Any, y: Any, p: Any, width: int, height: int) -> Events:
    """The packages reuse their buffers."""
    pixels = (np.array(x, np.uint16), np.array(y, np.uint16))
    return Events(np.array(t, np.int64), *pixels, np.asarray(p) > 0, width, height)
