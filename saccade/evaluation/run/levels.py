"""WINDOW ENDS -> LEVELS of frames that go through the network together: the chains of a whole recording, batched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from saccade.model.detector import Detector
from saccade.model.stepping import FRESH, FRESH_DT, FrameIndices, FrameTimes, elapsed, predecessors
from saccade.model.values import Pyramid, State, change, join_states
from saccade.types import Stepping


@dataclass(frozen=True, eq=False)
class StreamSteps:
    """How the memory goes through the frames of a stream.

    Frames of equal depth, the number of frames between them and a beginning, follow one another: they are a level, whose states come
    from the level before. A memory that is stepped directly has levels of one frame.
    """

    predecessors: FrameIndices  # FRESH, or the frame whose state it continues from
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


def steps_of(ends_us: FrameTimes, window_us: int, stepping: Stepping = "direct", reset_every: int = 0) -> StreamSteps:
    """RESET_EVERY: the memory of a chain ends after so many frames, as the published one does; 0 = never."""
    before = predecessors(ends_us, window_us, stepping)
    levels = np.arange(len(ends_us) + 1) if stepping == "direct" else _levels(before)
    if reset_every:
        for first, last in zip(levels[:-1:reset_every], levels[1::reset_every], strict=True):
            before[first:last] = FRESH
    return StreamSteps(before, np.where(before == FRESH, FRESH_DT, elapsed(ends_us, ends_us[before], window_us)), levels)


def _levels(before: FrameIndices) -> Int64[np.ndarray, "levels"]:
    """A level ends where the first frame continues from it."""
    edges = [0]
    while edges[-1] < len(before):
        edges.append(int(np.searchsorted(before, edges[-1])))
    return np.array(edges, np.int64)


def needed(steps: StreamSteps, wanted: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """The wanted frames, and all that their states come from: of interleaved chains those that nobody asks needn't be run."""
    found = wanted.copy()
    for first, last in zip(steps.levels[-2::-1], steps.levels[:0:-1], strict=True):
        before = steps.predecessors[first:last][found[first:last]]
        found[before[before != FRESH]] = True
    return found


def only(steps: StreamSteps, kept: Bool[np.ndarray, "n"]) -> StreamSteps:
    """The same steps for some of the frames; what they continue from must be among them."""
    places = np.concatenate(([0], np.cumsum(kept)))
    before = steps.predecessors[kept]
    return StreamSteps(np.where(before == FRESH, FRESH, places[before]), steps.dt[kept], np.unique(places[steps.levels]))


def blocks(steps: StreamSteps, most: int) -> Iterator[Block]:
    """All frames in order: consecutive levels whose frames match one to one are grouped, up to MOST frames (or one level, if larger)."""
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
class LevelStates:
    """The states of the newest level."""

    first: int  # the level's first frame
    state: State

    def after(self, chosen: FrameIndices) -> State:
        """The states that those frames left."""
        rows = torch.from_numpy(chosen - self.first)
        return change(self.state, lambda tensor: tensor.index_select(0, rows.to(tensor.device)))


def step(
    detector: Detector,
    frames: Sequence[Tensor],
    steps: Sequence[StreamSteps],
    which: Sequence[Block],
    memories: Sequence[LevelStates | None],
) -> tuple[list[Pyramid], list[LevelStates]]:
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
    pyramid, state = detector.encode(clip, join_states(states), torch.from_numpy(dt.astype(np.float32)).to(clip.device))
    edges = np.cumsum([0, *(block.lanes for block in which)]).tolist()
    pyramids, after = [], []
    for block, first, last in zip(which, edges[:-1], edges[1:], strict=True):
        fine, middle, coarse = (level[:, first:last] for level in pyramid)
        pyramids.append((fine, middle, coarse))
        after.append(LevelStates(block.frames.stop - block.lanes, change(state, lambda tensor, a=first, b=last: tensor[a:b])))  # type: ignore[misc]
    return pyramids, after
