"""WINDOW ENDS -> which frame continues from which: one chain, or interleaved ones that each step as the network was trained to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from saccade.model.backbone import State
from saccade.model.detector import Detector
from saccade.model.predictions import Pyramid
from saccade.model.state import change
from saccade.types import InputError, Stepping

Ends = Int64[np.ndarray, "n"]  # of windows, in microseconds, each later than the one before
Indices = Int64[np.ndarray, "n"]

FRESH = -1  # in place of a predecessor: the memory has seen nothing
TIES = 100  # two frames whose distances differ by less than a hundredth of a window are as near: rounded ends don't change the choice


@dataclass(frozen=True, eq=False)
class Steps:
    """How the memory goes through the frames of a stream.

    Frames of equal depth, the number of frames between them and a beginning, follow one another: they are a level, whose states come
    from the level before. A memory that is stepped directly has levels of one frame.
    """

    predecessors: Indices  # FRESH, or the frame whose state it continues from
    dt: Float64[np.ndarray, "n"]  # since the predecessor, in windows; 1 for a fresh state
    levels: Int64[np.ndarray, "levels"]  # the first frame of every level, and the number of frames


class Block(NamedTuple):
    """Frames FIRST to FIRST + STEPS * LANES: so many levels of so many frames, each of which continues from its place in the one before."""

    first: int
    steps: int
    lanes: int

    @property
    def frames(self) -> slice:
        return slice(self.first, self.first + self.steps * self.lanes)


def steps_of(ends_us: Ends, window_us: int, stepping: Stepping = "direct", reset_every: int = 0) -> Steps:
    """RESET_EVERY: the memory of a chain ends after so many frames, as the published one does; 0 = never."""
    before = predecessors(ends_us, window_us, stepping)
    levels = np.arange(len(ends_us) + 1) if stepping == "direct" else _levels(before)
    if reset_every:
        for first, last in zip(levels[:-1:reset_every], levels[1::reset_every], strict=True):
            before[first:last] = FRESH
    elapsed_us = ends_us - ends_us[before]  # whole microseconds until here: float32 would lose them within seconds
    return Steps(before, np.where(before == FRESH, 1.0, elapsed_us / window_us), levels)


def predecessors(ends_us: Ends, window_us: int, stepping: Stepping = "direct") -> Indices:
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


def _nearest(ends_us: Ends, times_us: Int64[np.ndarray, "m"], window_us: int, began_us: int) -> Int64[np.ndarray, "m"]:
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


def _levels(before: Indices) -> Int64[np.ndarray, "levels"]:
    """A level ends where the first frame continues from it."""
    edges = [0]
    while edges[-1] < len(before):
        edges.append(int(np.searchsorted(before, edges[-1])))
    return np.array(edges, np.int64)


def needed(steps: Steps, wanted: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """The wanted frames, and all that their states come from: of interleaved chains those that nobody asks needn't be run."""
    found = wanted.copy()
    for first, last in zip(steps.levels[-2::-1], steps.levels[:0:-1], strict=True):
        before = steps.predecessors[first:last][found[first:last]]
        found[before[before != FRESH]] = True
    return found


def only(steps: Steps, kept: Bool[np.ndarray, "n"]) -> Steps:
    """The same steps for some of the frames; what they continue from must be among them."""
    places = np.concatenate(([0], np.cumsum(kept)))
    before = steps.predecessors[kept]
    return Steps(np.where(before == FRESH, FRESH, places[before]), steps.dt[kept], np.unique(places[steps.levels]))


def blocks(steps: Steps, most: int) -> Iterator[Block]:
    """All frames in order, as many levels at once as have their frames in step, up to MOST frames (or one level, if that is larger)."""
    sizes, firsts = np.diff(steps.levels), steps.levels[:-1]
    stray = steps.predecessors != np.arange(len(steps.predecessors)) - np.repeat(sizes, sizes)
    joins = np.zeros(len(sizes), np.bool_)  # whether a level continues the one before frame by frame
    joins[1:] = (sizes[1:] == sizes[:-1]) & ~np.logical_or.reduceat(stray, firsts)[1:] if len(sizes) else False
    level = 0
    while level < len(sizes):
        size, count = int(sizes[level]), 1
        while level + count < len(sizes) and joins[level + count] and (count + 1) * size <= most:
            count += 1
        yield Block(int(firsts[level]), count, size)
        level += count


@dataclass(frozen=True, eq=False)
class Memory:
    """The states of the newest level."""

    first: int  # the level's first frame
    state: State

    def after(self, chosen: Indices) -> State:
        """The states that those frames left."""
        rows = torch.from_numpy(chosen - self.first)
        return change(self.state, lambda tensor: tensor.index_select(0, rows.to(tensor.device)))


def step(
    detector: Detector, frames: Sequence[Tensor], steps: Sequence[Steps], which: Sequence[Block], memories: Sequence[Memory | None]
) -> tuple[list[Pyramid], list[Memory]]:
    """One block of each of several streams, together: their frames (n, channels, H, W) of one size, blocks of as many steps.

    The features of each stream are (steps, lanes, C, H, W), its frames in order if the first two axes are flattened.
    """
    clip = torch.cat([pictures.unflatten(0, (block.steps, block.lanes)) for pictures, block in zip(frames, which, strict=True)], 1)
    dt = np.concatenate([plan.dt[block.frames].reshape(block.steps, -1) for plan, block in zip(steps, which, strict=True)], 1)
    states = []
    for pictures, plan, block, memory in zip(frames, steps, which, memories, strict=True):
        chosen = plan.predecessors[block.first : block.first + block.lanes]
        fresh = memory is None or bool((chosen == FRESH).all())  # a level is fresh as a whole
        states.append(detector.initial_state(pictures[None, : block.lanes]) if fresh or memory is None else memory.after(chosen))
    joined = tuple(tuple(torch.cat(tensors) for tensors in zip(*layers, strict=True)) for layers in zip(*states, strict=True))
    pyramid, state = detector.encode(clip, joined, torch.from_numpy(dt.astype(np.float32)).to(clip.device))
    edges = np.cumsum([0, *(block.lanes for block in which)]).tolist()
    pyramids, after = [], []
    for block, first, last in zip(which, edges[:-1], edges[1:], strict=True):
        fine, middle, coarse = (level[:, first:last] for level in pyramid)
        pyramids.append((fine, middle, coarse))
        after.append(Memory(block.frames.stop - block.lanes, change(state, lambda tensor, a=first, b=last: tensor[a:b])))  # type: ignore[misc]
    return pyramids, after


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
            return None, 1.0
        return self.states[row], (end_us - self.ends_us[row]) / self.window_us

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
