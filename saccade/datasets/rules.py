"""LABELS OF A FILE -> LABELS THAT COUNT: the official rules of each data set as data, and what each of them dropped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from saccade.config import GEN1_CLASSES, ONE_MPX_CLASSES
from saccade.datasets.labels import RawLabels
from saccade.datasets.recording import Clock, GroundTruth, Instants, ends_between, match
from saccade.types import InputError, Labels, Times

ETRAM_CLASSES = ("pedestrian", "car", "bicycle", "bus", "motorbike", "truck", "tram", "wheelchair")
DSEC_CLASSES = ("pedestrian", "rider", "car", "bus", "truck", "bicycle", "motorcycle", "train")
THINNED_WITHIN_US = 2000  # how far a kept label may be from the grid to which labels are thinned, as published
PRESENT = ("too small", "hidden", "too wide")  # reasons to ignore a label though the object is present


@dataclass(frozen=True, kw_only=True)
class LabelRules:
    """Which labels count. Sizes are pixels of the sensor, at any scale of the frames; boxes are cropped to it, then measured."""

    classes: tuple[str, ...]
    ids: Mapping[int, int] = field(default_factory=dict)  # number in the file -> index into classes; empty = they are the same
    least_side: float = 0.0
    least_diagonal: float = 0.0
    after_us: int | None = None  # instants at or before this count as not labelled
    widest: float | None = None  # fraction of the sensor's width
    least_visible: float = 0.0  # fraction of the object that must be visible, where the labels say
    rate_hz: float | None = None  # denser labels are thinned to this rate, others count as not labelled

    def index_of(self, classes: np.ndarray) -> np.ndarray:
        """Indices into `classes`, -1 for those that don't count."""
        ids = self.ids or {i: i for i in range(len(self.classes))}
        out = np.full(len(classes), -1, np.int64)
        for number, index in ids.items():
            out[classes == number] = index
        return out


HALF_SECOND_US = 500_000
EARLIEST_US = 99_999  # labels of Gen1 to train on begin at 0.1 s, as published: only evaluation leaves out the first half second
GEN1_EVALUATION = LabelRules(classes=GEN1_CLASSES, least_side=10, least_diagonal=30, after_us=HALF_SECOND_US)
GEN1_TRAINING = LabelRules(classes=GEN1_CLASSES, least_side=10, least_diagonal=30, after_us=EARLIEST_US, widest=0.9)
ONE_MPX_EVALUATION = LabelRules(classes=ONE_MPX_CLASSES, least_side=20, least_diagonal=60, after_us=HALF_SECOND_US, rate_hz=10)
ONE_MPX_TRAINING = LabelRules(classes=ONE_MPX_CLASSES, least_side=5, widest=0.9, rate_hz=10)
ETRAM_EVALUATION = LabelRules(classes=ETRAM_CLASSES, least_side=20, least_diagonal=60, after_us=HALF_SECOND_US, rate_hz=10)
ETRAM_TRAINING = LabelRules(classes=ETRAM_CLASSES, least_side=5, widest=0.9, rate_hz=10)  # its authors took over those of 1 Mpx
DSEC = LabelRules(classes=DSEC_CLASSES)

# Recordings that everyone leaves out, because the rules drop all of their labels.
GEN1_IGNORED = (
    "17-04-06_09-57-37_6344500000_6404500000",
    "17-04-13_19-17-27_976500000_1036500000",
    "17-04-06_15-14-36_1159500000_1219500000",
    "17-04-11_15-13-23_122500000_182500000",
)


def apply_rules(raw: RawLabels, rules: LabelRules, width: int, height: int, scale: float = 1.0) -> GroundTruth:
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
        ignored |= kept & wrong & (reason in PRESENT)
        kept &= ~wrong
    speed = None if raw.speed_px_s is None else raw.speed_px_s * np.float32(scale)
    every = Labels(raw.t, (boxes * scale).astype(np.float32), classes, raw.tracks, raw.still_us, raw.visible, speed)
    rows = np.column_stack((raw.t, raw.boxes, raw.classes, raw.tracks))
    return GroundTruth(every[kept], instants_us, clock, dropped, len(rows) - len(np.unique(rows, axis=0)), every[ignored])


def ruled(read: Callable[[], RawLabels], rules: LabelRules) -> Callable[[int, int, float], GroundTruth]:
    """`EventRecording.read_truth` of a label file: READ it, apply RULES. Picklable if READ is."""
    return partial(_ruled, read, rules)


def _ruled(read: Callable[[], RawLabels], rules: LabelRules, width: int, height: int, scale: float) -> GroundTruth:
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
