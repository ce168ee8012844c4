"""Recordings for tests of lanes: frames that say where and when they are, labels at chosen instants, no events."""

from dataclasses import dataclass

import numpy as np

from saccade.datasets.recording import Clock, Dataset, GroundTruth, Halve, Sampling
from saccade.types import InputError, Labels


@dataclass(frozen=True, eq=False)
class PaintedRecording:
    """Every pixel is a function of end, channel, row and column. A recording by structure alone, as a user may write one."""

    name: str
    labels: Labels
    duration_us: int
    width: int = 40
    height: int = 24
    broken: bool = False
    halve: Halve = "no"
    fixed_sampling: Sampling | None = None

    @property
    def instants_us(self) -> np.ndarray:
        return np.unique(self.labels.t)

    @property
    def truth(self) -> GroundTruth:
        return GroundTruth(self.labels, self.instants_us, Clock())

    def ends_us(self, sampling: Sampling) -> np.ndarray:
        step_us = sampling.step_us
        return np.arange(1, self.duration_us // step_us + 1, dtype=np.int64) * step_us.numerator // step_us.denominator

    def frames(self, ends_us: np.ndarray, sampling: Sampling) -> np.ndarray:
        if self.broken:
            raise InputError(f"{self.name}: broken off after 3 bytes; copy it again")
        numbers = np.searchsorted(self.ends_us(sampling), ends_us)
        assert (np.diff(numbers) == 1).all(), "frames are asked for in a row"
        channel, row, column = np.indices((2 * sampling.bins, self.height, self.width))
        return ((ends_us // 1000)[:, None, None, None] + 7 * channel + 3 * row + column).astype(np.uint8)

    def windows(self, starts_us: np.ndarray, ends_us: np.ndarray, sampling: Sampling) -> np.ndarray:
        raise InputError(f"{self.name}: is painted on a grid")

    def event_counts(self, start_us: int, ends_us: np.ndarray) -> tuple[np.ndarray, int]:
        raise InputError(f"{self.name}: holds frames and no events")

    def labels_at(self, end_us: int, tolerance_us: float) -> Labels | None:
        away = np.abs(self.labels.t - end_us)
        if not len(away) or away.min() > tolerance_us:
            return None
        return self.labels[self.labels.t == self.labels.t[np.argmin(away)]]


def painted(name: str, frames: int, every: int = 4, *, boxes: int = 2, seed: int = 0, **options) -> PaintedRecording:
    """FRAMES frames at 20 Hz, every so many labelled."""
    random = np.random.default_rng([seed, frames])
    t = np.repeat(np.arange(every, frames + 1, every) * 50_000, boxes)
    corner = random.uniform(0, 12, (len(t), 2))
    boxes_ = np.concatenate([corner, corner + random.uniform(4, 11, (len(t), 2))], 1).astype(np.float32)
    labels = Labels(t, boxes_, random.integers(0, 2, len(t)), np.full(len(t), -1))
    return PaintedRecording(name, labels, frames * 50_000, **options)


def painted_dataset(*frames: int, **options) -> Dataset:
    recordings = [painted(f"recording {i}", count, seed=i, **options) for i, count in enumerate(frames)]
    return Dataset("painted", "train", ("car", "pedestrian"), recordings)
