"""RECORDING + LABELS -> frames and boxes at any rate: the one interface of every data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from saccade.representation.windows import WIDEST, Grid
from saccade.types import InputError, Labels

Ends = Int64[np.ndarray, "n"]  # of windows, in microseconds of the recording's clock
Instants = Int64[np.ndarray, "m"]  # that were labelled
Clip = UInt8[np.ndarray, "n channels height width"]
MEMBERS = ("name", "width", "height", "labels", "instants_us", "ends_us", "frames", "windows", "labels_at")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How events become frames."""

    rate_hz: float = 20.0
    kind: Literal["sliding", "disjoint"] = "sliding"
    window_us: int = 50_000  # of sliding windows; disjoint ones are as long as the step
    bins: int = 10
    histogram: Literal["exact", "published"] = "exact"

    def __post_init__(self) -> None:
        if not 0 < self.rate_hz <= 1_000_000:
            raise InputError(f"sampling: rate_hz={self.rate_hz!r} must be above 0 and at most 1,000,000 frames per second")
        if self.kind not in ("sliding", "disjoint") or self.histogram not in ("exact", "published"):
            raise InputError(
                f"sampling: kind={self.kind!r}, histogram={self.histogram!r}; expected sliding or disjoint, and exact or published"
            )
        if self.bins < 1 or self.window_us < self.bins:
            raise InputError(f"sampling: window_us={self.window_us} must hold at least 1 us for each of bins={self.bins}, at least one")

    @property
    def step_us(self) -> Fraction:
        return 1_000_000 / Fraction(self.rate_hz).limit_denominator(1_000_000)


class _Structural(type(Protocol)):  # type: ignore[misc]
    """`isinstance` by the names of the members: Python 3.11's own check would read every property, and so open files."""

    def __instancecheck__(cls, instance: object) -> bool:
        return all(hasattr(type(instance), name) or name in getattr(instance, "__dict__", ()) for name in MEMBERS)


@runtime_checkable
class LabelledRecording(Protocol, metaclass=_Structural):
    """One recording with labels. Cheap to construct and to pickle: files are opened when they are needed, in the process that needs them.

    The grid of window ends begins at the recording's first labelled instant (or at 0 without one) and is continued in both directions,
    so that labels of a regular rate lie on window ends, at every frame rate that is a multiple of it. Where the labels' own clock runs
    a little off a whole rate (1 Mpx: 59.94 Hz), the grid's step is stretched by the same factor, at most 0.5 %.
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
    def labels(self) -> Labels:
        """After the rules; boxes in pixels of its frames; classes are indices into `Dataset.classes`."""

    @property
    def instants_us(self) -> Instants:
        """When it was labelled, the instants without objects too."""

    def ends_us(self, sampling: Sampling) -> Ends:
        """Window ends of the whole recording on the grid of the rate."""

    def frames(self, ends_us: Ends, sampling: Sampling) -> Clip:
        """Frames of consecutive ends of that grid."""

    def windows(self, starts_us: Ends, ends_us: Ends, sampling: Sampling) -> Clip:
        """Frames of any windows [start, end); of the sampling only bins and histogram matter. InputError where there are no events."""

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        """The labelled instant nearest to END_US in (end_us - tolerance_us, end_us + tolerance_us], the earlier of two as near.

        None = nobody labelled that instant, which isn't the same as a labelled instant without objects. TOLERANCE_US counts in whole
        microseconds, rounded down; up to half a step no instant is found twice. `match` counts those that no frame gets.
        """


@dataclass(frozen=True)
class Dataset:
    """The recordings of one split."""

    name: str
    split: str
    classes: tuple[str, ...]
    recordings: Sequence[LabelledRecording]
    missing: tuple[str, ...] = ()  # files without their partner: recordings without labels, labels without a recording
    notes: tuple[str, ...] = ()  # what else was left out or decided, and why


@dataclass(frozen=True, eq=False)
class Match:
    """Which labelled instant belongs to which window end."""

    instants: Int64[np.ndarray, "n"]  # for every end the number of its instant, -1 = not labelled
    unused: Bool[np.ndarray, "m"]  # for every instant: no frame gets it, because none ends near enough or another instant is nearer


def match(instants_us: Instants, ends_us: Ends, tolerance_us: float) -> Match:
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


def ends_between(grid: Grid, first: int, last: int) -> Ends:
    """Ends number FIRST to LAST of a grid, both included."""
    numerator, denominator = grid.step_us.numerator, grid.step_us.denominator
    if max(abs(first), abs(last)) * numerator > WIDEST:
        return np.array([grid.end(k) for k in range(first, last + 1)], np.int64)
    return grid.origin_us + np.arange(first, last + 1) * numerator // denominator
