"""TASKS + RECORDINGS -> KEPT ANSWERS, in this process or in several; answers that are already on disk aren't computed again."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from saccade.cluster import LOCAL, spread
from saccade.datasets.classes import renumbered
from saccade.datasets.recording import LabelledRecording, Sampling
from saccade.evaluation.run.passes import Pass, lean, passes_of, run, run_in_graph
from saccade.evaluation.run.store import AnswerWriter, Kept, Task, path_of, read_kept
from saccade.evaluation.run.timeline import Timeline, timeline
from saccade.export.fast import ENGINE, GraphRuntime, SizedGraph
from saccade.export.step import TorchRuntime, torch_threads
from saccade.files import LOCK
from saccade.machine import compiled, keep_freed_memory
from saccade.model.detector import Detector
from saccade.pool import report
from saccade.types import InputError
from saccade.weights.load import load_detector, save_detector

Tick = Callable[[str, float], None]  # name of the condition, seconds of recording done since the last call
NEVER_US = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class RecordingBatch:
    """Recordings that go through the network together."""

    task: Task
    recordings: Sequence[LabelledRecording]
    out: Path
    places: tuple[int, ...]  # of the detector's classes among the data set's


@dataclass(eq=False)
class _Open:
    """A recording whose answers are being computed."""

    recording: LabelledRecording
    fingerprint: str
    line: Timeline
    late: np.ndarray | None  # the frame of the first phase that is ready by each instant
    passes: list[Pass]
    runs: list[Pass]  # the same, without frames that no answer depends on
    writer: AnswerWriter
    recorded_s: float
    frames: int = 0
    seconds: float = 0.0
    over: set[int] = field(default_factory=set)


def work(
    detector: Detector, batches: Sequence[RecordingBatch], processes: int, tick: Tick, on: str = LOCAL
) -> Iterator[tuple[RecordingBatch, list[Kept]]]:
    """Batches as they are done. Each process computes with one thread, so that no number depends on how many there are, nor on where."""
    if on == LOCAL and min(processes, len(batches)) <= 1:
        keep_freed_memory()
        with torch_threads(1):  # with another number its kernels may add in another order
            yield from spread(partial(answer, _runtime(detector)), batches, 1, heard=tick)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.safetensors"
        save_detector(detector, path)
        weights = path.read_bytes()  # another machine has no such file
    place = next(detector.parameters()).device
    device = str(place) if on == LOCAL else place.type  # of several GPUs a node gives one
    yield from spread(
        _answer_here,
        batches,
        processes,
        on=on,
        heard=tick,
        begin=_begin,
        arguments=(weights, device),
        what="evaluate",
        seen=batches[0].out / LOCK if batches else None,
        gpus=int(place.type == "cuda"),
    )


def _runtime(detector: Detector) -> GraphRuntime | TorchRuntime:
    """On a CPU graphs where they can be, elsewhere torch, in batches; one thread."""
    on_cpu = next(detector.parameters()).device.type == "cpu"
    return GraphRuntime(detector, threads=1, owned=True) if on_cpu else TorchRuntime(detector)


_loaded: list[GraphRuntime | TorchRuntime] = []  # of a process of the pool, loaded once


def _begin(weights: bytes, device: str) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.safetensors"
        path.write_bytes(weights)
        _loaded[:] = [_runtime(load_detector(path, device))]


def _answer_here(batch: RecordingBatch) -> list[Kept]:
    return answer(_loaded[0], batch)


def answer(runtime: GraphRuntime | TorchRuntime, batch: RecordingBatch) -> list[Kept]:
    """The answers about the recordings of a batch, written into its folder; each file appears when it is complete."""
    task, detector = batch.task, runtime.detector
    first = batch.recordings[0]
    graph = runtime.chosen(first.height, first.width) if isinstance(runtime, GraphRuntime) else runtime
    computed_by = ENGINE if isinstance(graph, SizedGraph) else "torch"
    with ExitStack() as stack:
        done: dict[str, Kept] = {}
        opened: list[_Open] = []
        for recording in batch.recordings:
            path = path_of(batch.out, task.condition, recording.name)
            fingerprint = task.fingerprint(recording, detector, computed_by)
            kept = read_kept(path)
            if kept is not None and kept.fingerprint == fingerprint:
                done[recording.name] = kept
                report(task.condition.name, kept.recorded_s)
            else:
                opened.append(_open(detector, task, recording, fingerprint, stack.enter_context(AnswerWriter(path))))
        owners = [(one, phase) for one in opened for phase in range(len(one.runs))]
        started = time.perf_counter()
        runs = [one.runs[phase] for one, phase in owners]
        if isinstance(graph, SizedGraph):
            results = run_in_graph(graph, runs, task.decoding)
        else:
            results = run(detector, runs, task.decoding, together=len(batch.recordings))
        for found in results:
            one, phase = owners[found.number]
            one.writer.add(phase, renumbered(found.detections, batch.places))
            one.seconds += time.perf_counter() - started
            one.frames += found.frames
            one.over |= {phase} if found.last else set()
            total = sum(len(part.phase.ends_us) for part in one.runs)
            report(task.condition.name, one.recorded_s * found.frames / max(total, 1))
            if len(one.over) == len(one.passes):
                done[one.recording.name] = _finish(one)
            started = time.perf_counter()
        return [done[recording.name] for recording in batch.recordings]


def _open(detector: Detector, task: Task, recording: LabelledRecording, fingerprint: str, writer: AnswerWriter) -> _Open:
    config = detector.config
    line = timeline(recording, task.condition, config, task.label_rate_hz, task.nearest)
    passes = passes_of(recording, line, task.condition, config.window_us)
    late = None
    if task.step_us is not None:  # a live stream has one phase: its answers are as old as they are
        late = newest_ready(line.phases[0].ends_us, line.instants_us, task.step_us)
        passes[0].wanted[late[late >= 0]] = True
    trained_us = recording.ends_us(Sampling.of(config))
    recorded_s = (int(trained_us[-1] - trained_us[0]) + config.window_us) / 1e6 if len(trained_us) else 0.0
    runs = passes if task.nearest else [lean(part) for part in passes]  # stored frames are read as they follow one another
    return _Open(recording, fingerprint, line, late, passes, runs, writer, recorded_s)


def _finish(one: _Open) -> Kept:
    kept = Kept(one.recording.name, one.fingerprint, one.frames, one.seconds, one.recorded_s, len(one.line.phases[0].ends_us))
    firsts = np.cumsum([0, *(part.wanted.sum() for part in one.passes)])
    places = [np.cumsum(part.wanted) - 1 for part in one.passes]
    rows = np.full(len(one.line.instants_us), -1, np.int64)
    for phase, place in enumerate(places):
        own = (one.line.phase == phase) & (one.line.frame >= 0)
        rows[own] = firsts[phase] + place[one.line.frame[own]]
    late = None
    if one.late is not None:
        late = np.full(len(one.late), -1, np.int64)
        late[one.late >= 0] = places[0][one.late[one.late >= 0]]
    one.writer.finish(kept, one.recording, one.line, rows, late)
    return kept


def ready_frames(ends_us: Int64[np.ndarray, "frames"], step_us: int) -> Int64[np.ndarray, "frames"]:
    """When the answer of each frame is ready, NEVER_US for those that a newer frame overtook while the worker was busy.

    A frame is ready STEP_US after the later of its end and the moment at which the worker is free.
    """
    if step_us < 0:
        raise InputError(f"latency: step_us={step_us} must be 0 or more")
    if len(ends_us) > 1 and (ends_us[1:] < ends_us[:-1]).any():
        raise InputError("latency: the ends of frames must be in the order of time")
    return _ready(np.ascontiguousarray(ends_us), int(step_us))


def newest_ready(
    ends_us: Int64[np.ndarray, "frames"], instants_us: Int64[np.ndarray, "instants"], step_us: int
) -> Int64[np.ndarray, "instants"]:
    """Number of the newest frame whose answer is ready at each instant, -1 = none yet. With a step of 0 the newest that has ended.

    A quicker worker isn't always the better one at a single instant: it may have begun just before a frame that a slower one waited for.
    """
    ready_us = ready_frames(ends_us, step_us)
    answered = np.flatnonzero(ready_us != NEVER_US)
    place = np.searchsorted(ready_us[answered], instants_us, side="right") - 1
    return np.where(place < 0, -1, np.append(answered, -1)[place])


@compiled
def _ready(ends_us: np.ndarray, step_us: int) -> np.ndarray:
    ready_us = np.full(len(ends_us), NEVER_US)
    i, free_us = 0, ends_us[0] if len(ends_us) else 0
    while i < len(ends_us):
        start_us = max(ends_us[i], free_us)
        while i + 1 < len(ends_us) and ends_us[i + 1] <= start_us:
            i += 1
        ready_us[i] = free_us = start_us + step_us
        i += 1
    return ready_us
