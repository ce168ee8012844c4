"""WHICH STATE, WHICH DT: the one rule by which a frame continues from an earlier one, for streams, evaluation and training."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from saccade.types import InputError, Stepping

FrameTimes = Int64[np.ndarray, "n"]  # ends of windows in microseconds, each later than the one before
FrameIndices = Int64[np.ndarray, "n"]

FRESH = -1  # in place of a predecessor: the memory has seen nothing
FRESH_DT = 1.0  # of a frame whose memory has seen nothing, at any rate
TIES = 100  # two frames whose distances differ by less than a hundredth of a window are as near: rounded ends don't change the choice


def elapsed(end_us: Any, before_us: Any, window_us: int) -> Any:
    """dt of a frame, or of frames, that ended then and continue from what ended at BEFORE_US, in windows of the training."""
    return (end_us - before_us) / window_us  # whole microseconds until here: float32 would lose them within seconds


def predecessors(ends_us: FrameTimes, window_us: int, stepping: Stepping = "direct") -> FrameIndices:
    """Which frame each continues from.

    direct: the one before. interleaved: of those that ended more than half a window before, the one nearest to a whole window before
    (the later of two as near); frames of the stream's first window begin anew. At k times the training rate that is k chains, each the
    very network that was trained; at rates below it is the one before.
    """
    if (np.diff(ends_us) <= 0).any():
        i = int(np.argmax(np.diff(ends_us) <= 0))
        raise InputError(f"stepping: frames end at {ends_us[i]} and then at {ends_us[i + 1]} us; each must end later than the one before")
    if stepping == "direct":
        return np.arange(-1, len(ends_us) - 1)
    return _nearest(ends_us, ends_us, window_us, int(ends_us[0]) if len(ends_us) else 0)


def _nearest(ends_us: FrameTimes, times_us: Int64[np.ndarray, "m"], window_us: int, began_us: int) -> Int64[np.ndarray, "m"]:
    """The rule of interleaved stepping in a stream that began then. It never goes back while time goes on: that is what makes levels."""
    if not len(ends_us):
        return np.full(len(times_us), FRESH, np.int64)
    wanted_us = times_us - window_us
    earlier = np.searchsorted(ends_us, wanted_us, "right") - 1
    last = np.searchsorted(ends_us, times_us - window_us // 2 - window_us // TIES) - 1
    later = np.minimum(earlier + 1, last)
    too_early_us, too_late_us = wanted_us - ends_us[earlier], ends_us[later] - wanted_us
    chosen = np.where((earlier >= 0) & (too_early_us + window_us // TIES < too_late_us), earlier, later)
    return np.where(times_us - began_us < window_us - window_us // TIES, FRESH, chosen)


@dataclass(frozen=True, eq=False)
class History:
    """What a live stream remembers, frame by frame: the states of the last window, or only the newest if it is stepped directly.

    state, dt = history.choose(end_us)       # None = begin with detector.initial_state(frame)
    pyramid, state = detector.encode(frame, state, dt)
    history = history.add(end_us, state)
    """

    window_us: int
    stepping: Stepping = "direct"
    reset_every: int = 0
    ends_us: tuple[int, ...] = ()
    states: tuple[Any, ...] = ()  # of a detector, or of whatever else computes its steps
    depths: tuple[int, ...] = ()
    began_us: int = 0

    def choose(self, end_us: int) -> tuple[Any, float]:
        """Where a frame that ends then continues from, and how long ago that was, in windows."""
        row = self._before(end_us)
        if row == FRESH or (self.reset_every and (self.depths[row] + 1) % self.reset_every == 0):
            return None, FRESH_DT
        return self.states[row], elapsed(end_us, self.ends_us[row], self.window_us)

    def add(self, end_us: int, state: Any) -> "History":
        """With the state after the frame that ended then, without those that no later frame continues from."""
        row = self._before(end_us)
        depth = 0 if row == FRESH else self.depths[row] + 1
        kept = len(self.ends_us) if self.stepping == "direct" else max(row, 0)
        return History(
            self.window_us, self.stepping, self.reset_every,
            (*self.ends_us[kept:], end_us), (*self.states[kept:], state), (*self.depths[kept:], depth),
            self.began_us if self.ends_us else end_us,
        )  # fmt: skip

    def _before(self, end_us: int) -> int:
        if self.ends_us and end_us <= self.ends_us[-1]:
            raise InputError(f"stepping: a frame that ends at {end_us} us after one that ended at {self.ends_us[-1]}; time must go on")
        if self.stepping == "direct":
            return len(self.ends_us) - 1
        return int(_nearest(np.array(self.ends_us, np.int64), np.array([end_us]), self.window_us, self.began_us)[0])
