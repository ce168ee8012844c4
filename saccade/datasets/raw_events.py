"""EVENTS FILE + LABELS -> FRAMES at any rate, without preprocessing: only the events of the asked windows are decoded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from saccade.datasets.recording import BaseRecording, FrameArray, GroundTruth, Halve, Sampling, WindowEnds, ends_between
from saccade.events.hdf5 import try_readers
from saccade.events.open import open_events
from saccade.events.reader import LATEST_US, Reader
from saccade.representation.canvas import Canvas
from saccade.representation.frames import Framer, frames_between
from saccade.representation.windows import Grid
from saccade.s3 import S3Path
from saccade.types import InputError

HDF5_SUFFIXES = (".h5", ".hdf5")
TOGETHER = 64  # recordings
One = TypeVar("One")


@dataclass(frozen=True, eq=False)
class EventRecording(BaseRecording):
    """Opens its file for each call: a data set has thousands of them, and workers must not share one.

    read_truth: (width, height, scale) -> its labels; picklable, see `rules.ruled`.
    sensor: (width, height) where the file may not say it, None = as the file says.
    halve: frames of half the resolution, see `Halve`.
    opening: further arguments of `open_events`.
    """

    name: str
    path: Path
    read_truth: Callable[[int, int, float], GroundTruth]
    sensor: tuple[int, int] | None = None
    halve: Halve = "no"
    opening: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Reader:
        """A reader of its events, to be closed by the caller."""
        width, height = self.sensor or (None, None)
        return open_events(self.path, **{"width": width, "height": height, **self.opening})

    @cached_property
    def size(self) -> tuple[int, int]:
        """(width, height) of the sensor."""
        if self.sensor:
            return self.sensor
        with self.open() as reader:
            return reader.width, reader.height

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """All events lie in [start, end)."""
        with self.open() as reader:
            return reader.start_us, reader.end_us

    @cached_property
    def canvas(self) -> Canvas:
        if self.halve == "no":
            return Canvas.pad(*self.size, multiple=1)
        return Canvas.half(*self.size, how=self.halve, multiple=1)

    @cached_property
    def truth(self) -> GroundTruth:
        return self.read_truth(*self.size, self.canvas.scale)

    @property
    def frame_size(self) -> tuple[int, int]:
        return self.canvas.width, self.canvas.height

    def ends_us(self, sampling: Sampling) -> WindowEnds:
        """From the window of the first event to that of the last one."""
        start_us, end_us = self.span_us
        if end_us <= start_us:
            return np.zeros(0, np.int64)
        grid = self.truth.clock.grid(sampling.rate_hz)
        return ends_between(grid, grid.index(start_us) + 1, grid.index(end_us - 1) + 1)

    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        out = np.zeros((len(ends_us), 2 * sampling.bins, self.height, self.width), np.uint8)
        if not len(ends_us):
            return out
        grid = self.truth.clock.grid(sampling.rate_hz)
        first = check_ends(ends_us, grid, self.name)
        start_us = int(ends_us[0]) - sampling.window_us if sampling.kind == "sliding" else grid.end(first - 1)
        rate_hz = 1_000_000 / grid.step_us
        framer = Framer(
            rate_hz, sampling.kind, sampling.window_us, sampling.bins, sampling.clip, canvas=self.canvas, mode=sampling.histogram,
            reuse=True, origin_us=grid.origin_us, max_gap_us=LATEST_US,
        )  # fmt: skip
        with self.open() as reader:
            for events in reader.stream(start_us, int(ends_us[-1])):
                for frame in framer.push(events):
                    _keep(out, frame, grid, first)
        for frame in framer.advance_to(int(ends_us[-1])):  # what follows the last event, too, still shows events of its window
            _keep(out, frame, grid, first)
        return out

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        """What lies between the first start and the last end is decoded once, however the windows overlap."""
        if not len(ends_us):
            return np.zeros((0, 2 * sampling.bins, self.height, self.width), np.uint8)
        with self.open() as reader:
            events = reader.stream(int(starts_us.min()), int(ends_us.max()))
            return frames_between(events, starts_us, ends_us, self.canvas, sampling.bins, sampling.clip, sampling.histogram)

    def event_counts(self, start_us: int, ends_us: WindowEnds) -> tuple[WindowEnds, int]:
        """How many events came up to each of these ends since the one before, and how many pixels the sensor has: for adaptive rates."""
        counts = np.zeros(len(ends_us), np.int64)
        with self.open() as reader:
            for events in reader.stream(start_us, int(ends_us[-1])):
                inside = events.t[(events.t >= start_us) & (events.t < ends_us[-1])]
                counts += np.bincount(np.searchsorted(ends_us, inside, "right"), minlength=len(counts))
        return counts, self.size[0] * self.size[1]


def opened(recordings: Sequence[One]) -> Iterator[One]:
    """RECORDINGS, of which each is about to be opened: what can be checked for many files at once, is."""
    for first in range(0, len(recordings), TOGETHER):
        group = recordings[first : first + TOGETHER]
        paths: dict[str | None, list[Path]] = {}
        for one in group:
            if isinstance(one, EventRecording) and one.path.suffix in HDF5_SUFFIXES and not isinstance(one.path, S3Path):
                paths.setdefault(one.opening.get("time_unit"), []).append(one.path)
        for time_unit, alike in paths.items():
            try_readers(alike, time_unit)
        yield from group


def _keep(out: FrameArray, frame: Any, grid: Grid, first: int) -> None:
    i = grid.index(frame.end_us) - first
    if i >= 0:  # earlier windows end before the asked ones and are incomplete
        out[i] = frame.data


def check_ends(ends_us: WindowEnds, grid: Grid, name: str) -> int:
    """The number of the first end; InputError unless all are consecutive ends of the grid."""
    first = grid.index(int(ends_us[0]))
    if not np.array_equal(ends_us, ends_between(grid, first, first + len(ends_us) - 1)):
        raise InputError(
            f"{name}: window ends {ends_us[:3].tolist()}... aren't consecutive ends of its grid (from {grid.origin_us} us in steps of "
            f"{float(grid.step_us):g} us); take a slice of ends_us(sampling) with the same sampling"
        )
    return first
