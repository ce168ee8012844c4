"""RECORDING + LABELS -> frames and boxes at any rate: the one interface of every data set, and what its implementations share."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import floor
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int64
from typing_extensions import Protocol, runtime_checkable  # the check of Python 3.11's own reads every property, and so opens files

from saccade.config import DetectorConfig
from saccade.files import sampled_digest
from saccade.representation.frames import FrameArray, WindowEnds
from saccade.representation.windows import WIDEST, Grid
from saccade.s3 import located
from saccade.types import InputError, Labels, Times, check_class_names

Instants = Int64[np.ndarray, "m"]  # labelled points in time, in microseconds
Halve = Literal["no", "events", "published"]  # half resolution: by halved event coordinates, or as published for 1 Mpx by odd pixels only

STRETCH_MOST = Fraction(5, 1000)  # how far the rate of labels may differ from a whole number of hertz and still be taken for it
DRIFT_LEAST_US = 1000  # a smaller difference over all labels isn't worth a grid of fractions


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How events become frames."""

    rate_hz: float = 20.0
    kind: Literal["sliding", "disjoint"] = "sliding"
    window_us: int = 50_000  # of sliding windows; disjoint ones are as long as the step
    bins: int = 10
    histogram: Literal["exact", "published"] = "exact"
    clip: int = 10  # counts end here

    def __post_init__(self) -> None:
        if not 1e-6 <= self.rate_hz <= 1_000_000:
            raise InputError(f"sampling: rate_hz={self.rate_hz!r} must be above 0 (at least 1e-6) and at most 1,000,000 frames per second")
        if self.kind not in ("sliding", "disjoint") or self.histogram not in ("exact", "published"):
            raise InputError(
                f"sampling: kind={self.kind!r}, histogram={self.histogram!r}; expected sliding or disjoint, and exact or published"
            )
        if self.bins < 1 or self.window_us < self.bins:
            raise InputError(f"sampling: window_us={self.window_us} must hold at least 1 us for each of bins={self.bins}, at least one")
        if not 1 <= self.clip <= 255:
            raise InputError(f"sampling: clip={self.clip} must be from 1 to 255, the largest count of a uint8 frame")

    @classmethod
    def of(cls, config: DetectorConfig) -> "Sampling":
        """As the detector was trained: one window after the other."""
        rate_hz = 1e6 / config.window_us
        return cls(rate_hz=rate_hz, window_us=config.window_us, bins=config.bins, histogram=config.histogram, clip=config.clip)

    @property
    def step_us(self) -> Fraction:
        return 1_000_000 / Fraction(self.rate_hz).limit_denominator(1_000_000)


@dataclass(frozen=True)
class Clock:
    """When the labels were made: the grid of window ends is laid on it."""

    origin_us: int = 0
    stretch: Fraction = Fraction(1)  # true length of a nominal second of the labels

    @classmethod
    def of(cls, instants_us: Times) -> "Clock":
        """The first instant, and the stretch if the instants lie on a grid whose rate is nearly a whole number of hertz."""
        if len(instants_us) < 2:
            return cls(int(instants_us[0])) if len(instants_us) else cls()
        origin_us, passed = int(instants_us[0]), instants_us - instants_us[0]
        steps = np.rint(passed / np.median(np.diff(instants_us))).astype(np.int64)
        period_us = Fraction(int(passed[-1]), max(int(steps[-1]), 1))
        nominal_hz = round(1_000_000 / period_us)
        stretch = (period_us * nominal_hz / 1_000_000).limit_denominator(10_000)
        regular = np.abs(passed - steps * float(period_us)).max() <= DRIFT_LEAST_US
        drift_us = abs(passed[-1] - passed[-1] / float(stretch)) if stretch else 0
        if not regular or abs(stretch - 1) > STRETCH_MOST or drift_us < DRIFT_LEAST_US:
            return cls(origin_us)
        return cls(origin_us, stretch)

    def grid(self, rate_hz: float) -> Grid:
        return Grid.of_rate(Fraction(rate_hz).limit_denominator(1_000_000) / self.stretch, self.origin_us)


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The labels of a recording that count, in pixels of its frames."""

    labels: Labels
    instants_us: Instants  # labelled, those without objects too
    clock: Clock
    dropped: Mapping[str, int] = field(default_factory=dict)  # boxes, by the reason
    duplicates: int = 0  # boxes of the file that repeat another to the last digit; they are kept, as everyone does
    ignored: Labels | None = None  # objects of its classes at its instants that are too small, hidden or too wide; None = not known

    def at(self, end_us: int, tolerance_us: float) -> Labels | None:
        """`LabelledRecording.labels_at`."""
        i = match(self.instants_us, np.array([end_us], np.int64), tolerance_us).instants[0]
        if i < 0:
            return None
        first, last = np.searchsorted(self.labels.t, [self.instants_us[i], self.instants_us[i] + 1])
        return self.labels[first:last]


@runtime_checkable
class LabelledRecording(Protocol):
    """One recording with labels; any class with these members will do, `BaseRecording` brings those that follow from others.

    Cheap to construct and to pickle: files are opened when they are needed, in the process that needs them.
    The grid of window ends begins at the recording's first labelled instant (or at 0 without one) and is continued in both directions,
    so that labels of a regular rate lie on window ends, at every frame rate that is a multiple of it. Where the labels' own clock
    differs a little from a whole rate (1 Mpx: 59.94 Hz), the grid's step is stretched by the same factor, at most 0.5 %.

    If its frames come from a file, it should say which: `path`, or `files` if there are several. Neither is required, but without them
    `evaluate` can't see that events changed and reuses what it kept, see `content_of`.
    """

    @property
    def name(self) -> str:
        """Unique in its data set, the same in every run."""

    @property
    def width(self) -> int:
        """Of its frames, unpadded, after halving."""

    @property
    def height(self) -> int: ...

    @property
    def halve(self) -> Halve:
        """How its frames were brought to half the sensor's resolution."""

    @property
    def fixed_sampling(self) -> Sampling | None:
        """The only sampling that it can serve, because it holds frames; None = it holds events, and any will do."""

    @property
    def truth(self) -> GroundTruth:
        """Its labels after the rules, and what the rules dropped."""

    @property
    def labels(self) -> Labels:
        """Of `truth`: boxes in pixels of its frames; classes are indices into `Dataset.classes`."""

    @property
    def instants_us(self) -> Instants:
        """When it was labelled, the instants without objects too."""

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        """Labels of the instant nearest to END_US in (end_us - tolerance_us, end_us + tolerance_us], the earlier of two as near.

        None = that instant isn't labelled, which isn't the same as a labelled instant without objects. TOLERANCE_US counts in whole
        microseconds, rounded down; up to half a step no instant is found twice. `match` counts those that no frame gets.
        """

    def ends_us(self, sampling: Sampling) -> WindowEnds:
        """Window ends of the whole recording on the grid of the rate."""

    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        """Frames of consecutive ends of that grid."""

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        """Frames of any windows [start, end); the rate and length of the sampling don't matter. InputError if it holds no events."""

    def event_counts(self, start_us: int, ends_us: WindowEnds) -> tuple[WindowEnds, int]:
        """Number of events from each end to the next, and number of the sensor's pixels. InputError if it holds no events."""


class BaseRecording(ABC):
    """What recordings share: labels follow from `truth`, sides from `frame_size`; unless overridden, no events and full resolution."""

    name: str

    @property
    @abstractmethod
    def frame_size(self) -> tuple[int, int]:
        """(width, height) of its frames."""

    @property
    @abstractmethod
    def truth(self) -> GroundTruth: ...

    @abstractmethod
    def ends_us(self, sampling: Sampling) -> WindowEnds: ...

    @abstractmethod
    def frames(self, ends_us: WindowEnds, sampling: Sampling) -> FrameArray: ...

    def __getstate__(self) -> dict[str, Any]:
        """Without cached values: a worker reads what it needs."""
        return {name: value for name, value in vars(self).items() if not isinstance(getattr(type(self), name, None), cached_property)}

    @property
    def width(self) -> int:
        return self.frame_size[0]

    @property
    def height(self) -> int:
        return self.frame_size[1]

    @property
    def halve(self) -> Halve:
        return "no"

    @property
    def fixed_sampling(self) -> Sampling | None:
        return None

    @property
    def labels(self) -> Labels:
        return self.truth.labels

    @property
    def instants_us(self) -> Instants:
        return self.truth.instants_us

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        return self.truth.at(end_us, tolerance_us)

    def windows(self, starts_us: WindowEnds, ends_us: WindowEnds, sampling: Sampling) -> FrameArray:
        raise InputError(f"{self.name}: holds frames and no events, so there are no windows at other places; use the raw recordings")

    def event_counts(self, start_us: int, ends_us: WindowEnds) -> tuple[WindowEnds, int]:
        raise InputError(f"{self.name}: holds frames and no events, so no rate can follow its activity; use the recording it was made of")


def content_of(recording: LabelledRecording) -> str:
    """Digest of the files with its events or frames, "" if it names none: its member `files` (paths), or else `path`, a file or a folder.

    Equal content is the same content: neither the names of the files nor their times of change matter, see `sampled_digest`. What isn't
    on this disk, such as a URL, counts as no file.
    """
    named = getattr(recording, "files", None)
    paths = [located(path) for path in (named or [getattr(recording, "path", None)]) if isinstance(path, str | os.PathLike)]
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]
    try:
        return hashlib.sha256("".join(map(sampled_digest, files)).encode()).hexdigest() if files else ""
    except OSError as error:
        raise InputError(f"{recording.name}: {error.filename} can't be read ({error.strerror}); ask its owner, or copy it again") from error


@dataclass(frozen=True)
class Dataset:
    """The recordings of one split."""

    name: str
    split: str
    classes: tuple[str, ...]
    recordings: Sequence[LabelledRecording]
    missing: tuple[str, ...] = ()  # files without their partner: recordings without labels, labels without a recording
    notes: tuple[str, ...] = ()  # what else was left out or decided, and why

    def __post_init__(self) -> None:
        if self.classes:  # a tree without recordings has none
            check_class_names(self.classes, self.name)


@dataclass(frozen=True, eq=False)
class Match:
    """Which labelled instant belongs to which window end."""

    instants: Int64[np.ndarray, "n"]  # for every end the number of its instant, -1 = not labelled
    unused: Bool[np.ndarray, "m"]  # for every instant: no frame gets it, because none ends near enough or another instant is nearer


def match(instants_us: Instants, ends_us: WindowEnds, tolerance_us: float) -> Match:
    """The rule of `labels_at` for many ends at once; both times in increasing order. Every instant is used once or counted as unused."""
    tolerance_us = floor(tolerance_us)  # whole, so that half a step that isn't can't let two ends share an instant
    if len(ends_us) > 1 and tolerance_us * 2 > np.diff(ends_us).min():
        raise InputError(f"match: a tolerance of {tolerance_us} us is more than half a step, so one label could belong to two frames")
    chosen = np.full(len(ends_us), -1, np.int64)
    if len(instants_us):
        after = np.searchsorted(instants_us, ends_us)
        for i in (np.minimum(after, len(instants_us) - 1), np.maximum(after - 1, 0)):  # the earlier one last, so that it wins a tie
            away = instants_us[i] - ends_us
            best = np.where(chosen >= 0, np.abs(instants_us[chosen] - ends_us), np.iinfo(np.int64).max)
            near = (away > -tolerance_us) & (away <= tolerance_us) & (np.abs(away) <= best)
            chosen = np.where(near, i, chosen)
    unused = np.ones(len(instants_us), np.bool_)
    unused[chosen[chosen >= 0]] = False
    return Match(chosen, unused)


def ends_between(grid: Grid, first: int, last: int) -> WindowEnds:
    """Ends number FIRST to LAST of a grid, both included."""
    numerator, denominator = grid.step_us.numerator, grid.step_us.denominator
    if max(abs(first), abs(last)) * numerator > WIDEST:
        return np.array([grid.end(k) for k in range(first, last + 1)], np.int64)
    return grid.origin_us + np.arange(first, last + 1) * numerator // denominator
