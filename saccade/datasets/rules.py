"""LABELS OF A FILE -> LABELS THAT COUNT: the official rules of each data set as data, and what each of them dropped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np

from saccade.config import GEN1_CLASSES, ONE_MPX_CLASSES
from saccade.datasets.labels import RawLabels
from saccade.datasets.recording import Instants, ends_between, match
from saccade.representation.windows import Grid
from saccade.types import InputError, Labels, Times

ETRAM_CLASSES = ("pedestrian", "car", "bicycle", "bus", "motorbike", "truck", "tram", "wheelchair")
DSEC_CLASSES = ("pedestrian", "rider", "car", "bus", "truck", "bicycle", "motorcycle", "train")
STRETCH_MOST = Fraction(5, 1000)  # how far a label clock may run off a whole rate and still be taken for it
THINNED_WITHIN_US = 2000  # of the grid of the rate to which labels are thinned, as published
THERE = ("too small", "hidden", "too wide")  # why labels of objects are dropped that are there all the same, to be found or not
DRIFT_LEAST_US = 1000  # less than this over all labels isn't worth a grid of fractions


@dataclass(frozen=True, kw_only=True)
class LabelRules:
    """Which labels count. Sizes are pixels of the sensor, at any scale of the frames; boxes are cropped to it, then measured."""

    classes: tuple[str, ...]
    ids: Mapping[int, int] = field(default_factory=dict)  # number in the file -> index into classes; empty = they are the same
    least_side: float = 0.0
    least_diagonal: float = 0.0
    after_us: int | None = None  # instants at or before this count as not labelled
    widest: float | None = None  # fraction of the sensor's width
    least_visible: float = 0.0  # fraction of the object that is to be seen, where the labels know it
    rate_hz: float | None = None  # denser labels are thinned to this rate, others count as not labelled

    def index_of(self, classes: np.ndarray) -> np.ndarray:
        """Indices into `classes`, -1 for those that don't count."""
        ids = self.ids or {i: i for i in range(len(self.classes))}
        out = np.full(len(classes), -1, np.int64)
        for number, index in ids.items():
            out[classes == number] = index
        return out


HALF_SECOND_US = 500_000
GEN1_EVALUATION = LabelRules(classes=GEN1_CLASSES, least_side=10, least_diagonal=30, after_us=HALF_SECOND_US)
GEN1_TRAINING = LabelRules(classes=GEN1_CLASSES, least_side=10, least_diagonal=30, after_us=HALF_SECOND_US, widest=0.9)
ONE_MPX_EVALUATION = LabelRules(classes=ONE_MPX_CLASSES, least_side=20, least_diagonal=60, after_us=HALF_SECOND_US, rate_hz=10)
ONE_MPX_TRAINING = LabelRules(classes=ONE_MPX_CLASSES, least_side=5, widest=0.9, rate_hz=10)
ETRAM_EVALUATION = LabelRules(classes=ETRAM_CLASSES, least_side=20, least_diagonal=60, after_us=HALF_SECOND_US, rate_hz=10)
ETRAM_TRAINING = LabelRules(classes=ETRAM_CLASSES, least_side=5, widest=0.9, rate_hz=10)  # its authors took over those of 1 Mpx
DSEC = LabelRules(classes=DSEC_CLASSES)

# Recordings that the field leaves out, because the rules leave no label in them.
GEN1_IGNORED = (
    "17-04-06_09-57-37_6344500000_6404500000",
    "17-04-13_19-17-27_976500000_1036500000",
    "17-04-06_15-14-36_1159500000_1219500000",
    "17-04-11_15-13-23_122500000_182500000",
)


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
class Truth:
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


def apply_rules(raw: RawLabels, rules: LabelRules, width: int, height: int, scale: float = 1.0) -> Truth:
    """RULES on the labels of a WIDTH x HEIGHT sensor; boxes come out times SCALE. A box is counted under the first reason that drops it."""
    clock = Clock.of(raw.instants_us)
    instants_us = thinned(raw.instants_us, clock, rules.rate_hz)
    kept_instant = np.isin(raw.t, instants_us)
    if rules.after_us is not None:
        instants_us = instants_us[instants_us > rules.after_us]
    classes = rules.index_of(raw.classes)
    boxes = np.clip(raw.boxes, 0, np.array([width, height, width, height], np.float64))
    sides = boxes[:, 2:] - boxes[:, :2]
    reasons = {
        "of other classes": classes < 0,
        "between the kept instants": ~kept_instant,
        "too early": raw.t <= rules.after_us if rules.after_us is not None else np.zeros(len(raw.t), np.bool_),
        "outside the sensor": (sides <= 0).any(axis=1),
        "too small": (sides < rules.least_side).any(axis=1) | ((sides**2).sum(axis=1) < rules.least_diagonal**2),
        "hidden": raw.visible < rules.least_visible if raw.visible is not None else np.zeros(len(raw.t), np.bool_),
        "too wide": sides[:, 0] > (rules.widest or np.inf) * width,
    }
    kept, ignored, dropped = np.ones(len(raw.t), np.bool_), np.zeros(len(raw.t), np.bool_), {}
    for reason, wrong in reasons.items():
        dropped[reason] = int((kept & wrong).sum())
        ignored |= kept & wrong & (reason in THERE)
        kept &= ~wrong
    speed = None if raw.speed_px_s is None else raw.speed_px_s * np.float32(scale)
    every = Labels(raw.t, (boxes * scale).astype(np.float32), classes, raw.tracks, raw.still_us, raw.visible, speed)
    rows = np.column_stack((raw.t, raw.boxes, raw.classes, raw.tracks))
    return Truth(every[kept], instants_us, clock, dropped, len(rows) - len(np.unique(rows, axis=0)), every[ignored])


def ruled(read: Callable[[], RawLabels], rules: LabelRules) -> Callable[[int, int, float], Truth]:
    """How a recording gets its labels: (width, height, scale) -> Truth, picklable if READ is."""
    return partial(_ruled, read, rules)


def _ruled(read: Callable[[], RawLabels], rules: LabelRules, width: int, height: int, scale: float) -> Truth:
    return apply_rules(read(), rules, width, height, scale)


def thinned(instants_us: Times, clock: Clock, rate_hz: float | None) -> Instants:
    """The instants on a grid of RATE_HZ from the first one on, at most one for each of its ends."""
    if rate_hz is None or len(instants_us) < 2:
        return instants_us
    if rate_hz <= 0:
        raise InputError(f"labels: rate_hz={rate_hz} must be above 0")
    grid = clock.grid(rate_hz)
    ends = ends_between(grid, 0, grid.index(int(instants_us[-1])) + 1)
    chosen = match(instants_us, ends, min(THINNED_WITHIN_US, float(grid.step_us // 2))).instants
    return instants_us[chosen[chosen >= 0]]
