"""TASKS + RECORDINGS -> KEPT ANSWERS, in this process or in several; what is kept already isn't computed again."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any

import numpy as np
import torch

from saccade.datasets.recording import LabelledRecording
from saccade.evaluation.run.latency import newest_ready
from saccade.evaluation.run.passes import Pass, lean, passes_of, run
from saccade.evaluation.run.store import Kept, Task, Writer, path_of, read_kept
from saccade.evaluation.run.timeline import Timeline, sampling_of, timeline
from saccade.machine import keep_freed_memory
from saccade.model.detector import Detector
from saccade.types import InputError
from saccade.weights.load import load_detector, save_detector

POLL_S = 0.5  # how often processes are asked how far they are
Tick = Callable[[str, float], None]  # name of the condition, seconds of recording done since the last call


@dataclass(frozen=True)
class Job:
    """Recordings that go through the network together."""

    task: Task
    recordings: Sequence[LabelledRecording]
    out: Path


@dataclass(eq=False)
class _Open:
    """A recording whose answers are being computed."""

    recording: LabelledRecording
    fingerprint: str
    line: Timeline
    late: np.ndarray | None  # the frame of the first phase that is ready by each instant
    passes: list[Pass]
    runs: list[Pass]  # the same, without frames that no answer depends on
    writer: Writer
    recorded_s: float
    frames: int = 0
    seconds: float = 0.0
    over: set[int] = field(default_factory=set)


class Interrupted(Exception):
    """Another process asked this one to stop."""


def work(detector: Detector, jobs: Sequence[Job], processes: int, tick: Tick) -> Iterator[tuple[Job, list[Kept]]]:
    """Jobs as they are done. Each process computes with one thread, so that no number depends on how many there are."""
    if processes == 1 or len(jobs) < 2:
        with one_thread():
            for job in jobs:
                yield job, answer(detector, job, tick)
        return
    context = get_context("spawn")  # a forked child may inherit locks of torch, h5py or numba in the middle of their use
    stop, said = context.Event(), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "detector.safetensors"
        save_detector(detector, weights)
        device = str(next(detector.parameters()).device)
        with ProcessPoolExecutor(min(processes, len(jobs)), context, _begin, (weights, device, stop, said)) as pool:
            left: dict[Future[list[Kept]], Job] = {pool.submit(_answer_there, job): job for job in jobs}
            try:
                while left:
                    done, _ = wait(left, POLL_S, FIRST_COMPLETED)
                    _pass_on(said, tick)
                    for future in done:
                        yield left.pop(future), future.result()
            except BrokenProcessPool as error:
                raise InputError(
                    "evaluate: a process ended before its work did; is there enough memory? Try fewer processes, or a smaller batch; "
                    "a second evaluation into the same folder goes on"
                ) from error
            finally:
                stop.set()  # those under way end after the frames at hand
                pool.shutdown(wait=True, cancel_futures=True)


def answer(detector: Detector, job: Job, tick: Tick) -> list[Kept]:
    """The answers about the recordings of a job, kept in its folder; each file appears when it is complete."""
    task = job.task
    with ExitStack() as stack:
        done: dict[str, Kept] = {}
        opened: list[_Open] = []
        for recording in job.recordings:
            path = path_of(job.out, task.condition, recording.name)
            fingerprint = task.fingerprint(recording, detector)
            kept = read_kept(path)
            if kept is not None and kept.fingerprint == fingerprint:
                done[recording.name] = kept
                tick(task.condition.name, kept.recorded_s)
            else:
                opened.append(_open(detector, task, recording, fingerprint, stack.enter_context(Writer(path))))
        owners = [(one, phase) for one in opened for phase in range(len(one.runs))]
        started = time.perf_counter()
        for found in run(detector, [one.runs[phase] for one, phase in owners], task.decoding, together=len(job.recordings)):
            one, phase = owners[found.number]
            one.writer.add(phase, found.detections)
            one.seconds += time.perf_counter() - started
            one.frames += found.frames
            one.over |= {phase} if found.last else set()
            total = sum(len(part.phase.ends_us) for part in one.runs)
            tick(task.condition.name, one.recorded_s * found.frames / max(total, 1))
            if len(one.over) == len(one.passes):
                done[one.recording.name] = _finish(one)
            started = time.perf_counter()
        return [done[recording.name] for recording in job.recordings]


def _open(detector: Detector, task: Task, recording: LabelledRecording, fingerprint: str, writer: Writer) -> _Open:
    config = detector.config
    line = timeline(recording, task.condition, config, task.label_rate_hz, task.nearest)
    passes = passes_of(recording, line, task.condition, config.window_us)
    late = None
    if task.step_us is not None:  # a live stream has one phase: its answers are as old as they are
        late = newest_ready(line.phases[0].ends_us, line.instants_us, task.step_us)
        passes[0].wanted[late[late >= 0]] = True
    trained_us = recording.ends_us(sampling_of(config))
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


@contextmanager
def one_thread() -> Iterator[None]:
    """While the block runs, torch computes with one thread: with another number its kernels may add in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_here: dict[str, Any] = {}  # what a process of the pool keeps between its jobs


def _begin(weights: Path, device: str, stop: Any, said: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal: only the first one decides
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    _here.update(detector=load_detector(weights, device), stop=stop, said=said)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for its next job for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer_there(job: Job) -> list[Kept]:
    def tick(name: str, seconds: float) -> None:
        if _here["stop"].is_set():
            raise Interrupted
        _here["said"].put((name, seconds))

    return answer(_here["detector"], job, tick)


def _pass_on(said: Any, tick: Tick) -> None:
    while True:
        try:
            name, seconds = said.get_nowait()
        except Empty:
            return
        tick(name, seconds)
