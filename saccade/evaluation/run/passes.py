"""DETECTOR + STREAMS OF WINDOWS -> DETECTIONS of the frames that are asked for, after all frames before them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool

from saccade.datasets.recording import LabelledRecording
from saccade.detection.decode import Decoding, decode, decode_rows
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.levels import Block, LevelStates, StreamSteps, blocks, needed, only, step, steps_of
from saccade.evaluation.run.timeline import Phase, Timeline
from saccade.export.fast import GraphState, SizedGraph
from saccade.export.step import Runtime
from saccade.model.detector import Detector
from saccade.model.stepping import FRESH, History
from saccade.model.values import Pyramid, pick
from saccade.representation.canvas import Canvas
from saccade.types import Detections

CHUNK = 16  # frames of a recording that go through the network at once
MEASURED = 20  # steps whose median is the time of one
WARMING = 3  # steps before those


@dataclass(frozen=True, eq=False)
class Pass:
    """A phase of a recording, once from its beginning to its end."""

    recording: LabelledRecording
    phase: Phase
    steps: StreamSteps
    wanted: Bool[np.ndarray, "n"]  # frames that go through neck and head, too


class Found(NamedTuple):
    number: int  # of the pass
    frames: int  # that went through the network
    detections: list[Detections]  # of those that were wanted
    last: bool  # whether the pass is over


@dataclass(eq=False)
class _UnderWay:
    number: int
    what: Pass
    blocks: Iterator[Block]
    block: Block
    memory: LevelStates | None = None


def passes_of(recording: LabelledRecording, line: Timeline, condition: Condition, window_us: int) -> list[Pass]:
    """Those of all phases of a timeline that have frames."""
    return [
        Pass(recording, phase, steps_of(phase.ends_us, window_us, condition.stepping, condition.reset_every), line.wanted(number))
        for number, phase in enumerate(line.phases)
    ]


def lean(what: Pass) -> Pass:
    """The same answers from fewer frames: interleaved chains that answer no label are left out. Its windows must be had singly."""
    kept = needed(what.steps, what.wanted)
    if kept[: np.flatnonzero(kept).max(initial=-1) + 1].all():
        return what  # one chain
    phase = replace(what.phase, starts_us=what.phase.starts_us[kept], ends_us=what.phase.ends_us[kept], regular=False)
    return Pass(what.recording, phase, only(what.steps, kept), what.wanted[kept])


@torch.inference_mode()
def run(detector: Detector, passes: Sequence[Pass], decoding: Decoding, *, chunk: int = CHUNK, together: int = 1) -> Iterator[Found]:
    """All passes, TOGETHER of them at a time; never more frames in memory than CHUNK, or a level, of each of those.

    Kernels may add in another order for another number of images, so the last bits of an answer depend on what else goes through the
    network with it. With together=1 they don't depend on the other recordings.
    """
    waiting = iter(enumerate(passes))
    under_way: list[_UnderWay] = []
    while True:
        while len(under_way) < together and (following := next(waiting, None)) is not None:
            number, what = following
            parts = blocks(what.steps, chunk)
            block = next(parts, None)
            if block is None:
                yield Found(number, 0, [], True)
            else:
                under_way.append(_UnderWay(number, what, parts, block))
        if not under_way:
            return
        first = under_way[0]
        group = [one for one in under_way if one.block.steps == first.block.steps and _size(one) == _size(first)]
        for one, found in zip(group, _advance(detector, group, decoding), strict=True):
            frames, following_block = one.block.steps * one.block.lanes, next(one.blocks, None)
            if following_block is None:
                under_way.remove(one)
            else:
                one.block = following_block
            yield Found(one.number, frames, found, following_block is None)
        under_way.sort(key=lambda one: one.block.first)  # who lags behind is first, so that groups stay large


def run_in_graph(graph: SizedGraph, passes: Sequence[Pass], decoding: Decoding, *, chunk: int = CHUNK) -> Iterator[Found]:
    """As `run`, frame by frame: in a graph one frame is as fast as many, and no bit depends on what goes through the network beside it."""
    for number, what in enumerate(passes):
        canvas = Canvas.pad(what.recording.width, what.recording.height, graph.config.backbone.multiple)
        count, states = len(what.phase.ends_us), dict[int, GraphState]()
        last_use = np.full(count, FRESH)  # the last frame that continues from each
        continued = np.flatnonzero(what.steps.predecessors != FRESH)
        last_use[what.steps.predecessors[continued]] = continued
        if not count:
            yield Found(number, 0, [], True)
        for first in range(0, count, chunk):
            frames, found = what.phase.frames(what.recording, slice(first, first + chunk)), []
            for i, frame in enumerate(frames, first):
                before, dt = int(what.steps.predecessors[i]), float(what.steps.dt[i])
                state = graph.initial_state(*graph.size) if before == FRESH else states[before]
                if what.wanted[i]:
                    rows, state = graph.step(frame, state, dt)
                    found += decode_rows(rows[None], what.phase.ends_us[i : i + 1], canvas, **vars(decoding))
                else:
                    state = graph.remember(frame, state, dt)
                if before != FRESH and last_use[before] == i:
                    del states[before]
                if last_use[i] != FRESH:
                    states[i] = state
            yield Found(number, len(frames), found, first + chunk >= count)


def _size(one: _UnderWay) -> tuple[int, int]:
    return one.what.recording.width, one.what.recording.height


def _advance(detector: Detector, group: list[_UnderWay], decoding: Decoding) -> list[list[Detections]]:
    """The next block of each, and what was found in its wanted frames."""
    device = next(detector.parameters()).device
    frames = [torch.from_numpy(one.what.phase.frames(one.what.recording, one.block.frames)).to(device) for one in group]
    pyramids, memories = step(
        detector, frames, [one.what.steps for one in group], [one.block for one in group], [one.memory for one in group]
    )
    for one, memory in zip(group, memories, strict=True):
        one.memory = memory
    wanted = [one.what.wanted[one.block.frames] for one in group]
    times_us = np.concatenate([one.what.phase.ends_us[one.block.frames][own] for one, own in zip(group, wanted, strict=True)])
    if not len(times_us):
        return [[] for _ in group]
    picked = [
        pick(pyramid, torch.from_numpy(own.reshape(one.block.steps, -1)).to(device))
        for one, own, pyramid in zip(group, wanted, pyramids, strict=True)
    ]
    fine, middle, coarse = (torch.cat(levels) for levels in zip(*picked, strict=True))
    decoded = _decode(detector, (fine, middle, coarse), times_us, group[0].what.recording, decoding)
    edges = np.cumsum([0, *(own.sum() for own in wanted)]).tolist()
    return [decoded[first:last] for first, last in pairwise(edges)]


def _decode(
    detector: Detector, pyramid: Pyramid, times_us: np.ndarray, recording: LabelledRecording, decoding: Decoding
) -> list[Detections]:
    canvas = Canvas.pad(recording.width, recording.height, detector.config.backbone.multiple)
    return decode(detector.detect(pyramid), times_us, canvas, **vars(decoding))


def measured_step_ms(runtime: Runtime, recording: LabelledRecording, phase: Phase, decoding: Decoding) -> float:
    """What one step of a live stream takes: building its frame, network and boxes, one frame at a time."""
    canvas = Canvas.pad(recording.width, recording.height, runtime.config.backbone.multiple)
    count = min(MEASURED + WARMING, len(phase.ends_us))
    phase.frames(recording, slice(0, min(count, 1)))  # compiles what builds frames
    started = time.perf_counter()
    frames = phase.frames(recording, slice(0, count))
    building_s = (time.perf_counter() - started) / max(count, 1)
    history, took_s = History(runtime.config.window_us), []
    for frame, end_us in zip(frames, phase.ends_us[:count], strict=True):
        started = time.perf_counter()
        state, dt = history.choose(int(end_us))
        rows, state = runtime.step(frame, runtime.initial_state(*frame.shape[1:]) if state is None else state, dt)
        history = history.add(int(end_us), state)
        decode_rows(rows[None], [int(end_us)], canvas, **vars(decoding))
        took_s.append(time.perf_counter() - started)
    return 1000 * (building_s + median(took_s[WARMING:] or took_s or [0.0]))
