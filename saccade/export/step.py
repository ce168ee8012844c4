"""FRAME + STATE + DT -> ROWS + STATE: one step of a detector, whatever computes it; torch's own, and others compared with it."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float

from saccade.config import DetectorConfig
from saccade.detection.decode import dense
from saccade.model.detector import Detector
from saccade.model.values import State
from saccade.representation.histogram import Histogram
from saccade.types import InputError

LONG_MS = 10.0  # a step on one thread; in shorter ones threads lose more by waiting for each other than they gain
WORTH = 0.8  # of one thread's time: what more of them must reach
BOX_TOLERANCE_PX, SCORE_TOLERANCE = 0.01, 1e-4
DenseRows = Float[np.ndarray, "cells columns"]  # of one frame, as `saccade.detection.decode.dense` gives them, in canvas pixels


@runtime_checkable
class Runtime(Protocol):
    """One step of a detector with batch 1. Only the runtime that made a state can read it."""

    config: DetectorConfig

    def initial_state(self, height: int, width: int) -> Any:
        """Empty memory for frames of this size."""

    def step(self, frame: Histogram, state: Any, dt: float) -> tuple[DenseRows, Any]:
        """Predictions of every cell, for `decode_rows`, and the state after the frame; dt in units of the training window."""

    def prepare(self, dt: float) -> None:
        """Compute in advance what depends on dt only."""

    def state_to_arrays(self, state: Any) -> dict[str, np.ndarray]:
        """For saving; names and arrays are the same in every runtime, so another one can continue from them."""

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Inverse of state_to_arrays."""


AnyRuntime = TypeVar("AnyRuntime", bound=Runtime)


class TorchRuntime:
    """The detector itself. threads: while a step runs; None for those of the process."""

    def __init__(self, detector: Detector, threads: int | None = None) -> None:
        self.config, self.threads = detector.config, threads
        self.detector = detector
        self.device = next(detector.parameters()).device

    def initial_state(self, height: int, width: int) -> State:
        frames = torch.zeros((), device=self.device).expand(1, 1, self.config.backbone.channels, height, width)
        return self.detector.initial_state(frames)

    def step(self, frame: Histogram, state: State, dt: float) -> tuple[DenseRows, State]:
        pixels = torch.from_numpy(frame if frame.flags.writeable else frame.copy()).to(self.device)
        with torch.inference_mode(), torch_threads(self.threads):
            predictions, state = self.detector(pixels[None, None], state, dt)
            return dense(predictions)[0].cpu().numpy(), state

    def prepare(self, dt: float) -> None:
        self.detector.prepare(dt)

    def state_to_arrays(self, state: State) -> dict[str, np.ndarray]:
        tensors = [tensor for layer in state for tensor in layer]
        return {name: tensor.cpu().numpy() for name, tensor in zip(state_names(state), tensors, strict=True)}

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> State:
        like = self.initial_state(self.config.backbone.multiple, self.config.backbone.multiple)
        check_names(self.config.name, arrays, state_names(like))
        tensors = iter([torch.from_numpy(arrays[name].copy()).to(self.device) for name in state_names(like)])
        return tuple(tuple(next(tensors) for _ in layer) for layer in like)


def state_names(state: State) -> list[str]:
    """`state_STAGE_NUMBER` for every tensor, in order; exported files use the same names."""
    return [f"state_{stage}_{number}" for stage, layer in enumerate(state) for number in range(len(layer))]


def check_names(where: str, arrays: Mapping[str, np.ndarray], names: list[str]) -> None:
    if set(arrays) != set(names):
        found = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(f"{where}: the state holds {found}, expected {', '.join(names)}; it is of another model")


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """While the block runs, torch computes with so many threads: it has one setting for the whole process."""
    before = torch.get_num_threads()
    if count in (None, before):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fastest(opened: Callable[[int], AnyRuntime], height: int, width: int, threads: int | None = None) -> AnyRuntime:
    """A runtime OPENED with so many threads; None: one, or one per core where a step takes long and they are faster."""
    if threads is not None:
        return opened(threads)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    alone = opened(1)
    if cores == 1 or (alone_ms := _step_ms(alone, height, width)) < LONG_MS:
        return alone
    wide = opened(cores)
    return wide if _step_ms(wide, height, width) < WORTH * alone_ms else alone


def _step_ms(runtime: Runtime, height: int, width: int) -> float:
    """The best of three, after one that warms up."""
    frame = np.zeros((runtime.config.backbone.channels, height, width), np.uint8)
    state, took_s = runtime.initial_state(height, width), []
    for _ in range(4):
        began_s = time.perf_counter()
        runtime.step(frame, state, 1.0)
        took_s.append(time.perf_counter() - began_s)
    return 1000 * min(took_s[1:])


@dataclass(frozen=True)
class Difference:
    """The largest difference between two runtimes, over steps at changing rates."""

    box_px: float  # corners, on the canvas
    score: float  # objectness and class probabilities

    @property
    def is_small(self) -> bool:
        return self.box_px <= BOX_TOLERANCE_PX and self.score <= SCORE_TOLERANCE  # False for NaN


def compare(runtime: Runtime, expected: Runtime, height: int, width: int, rates: tuple[float, ...]) -> Difference:
    """Run both on random frames of this size with these dt, each with its own state."""
    channels = expected.config.backbone.channels
    frames = np.random.default_rng(0).poisson(0.2, (len(rates), channels, height, width)).astype(np.uint8)
    frames[::2] *= frames[::2] > 1  # every second one as sparse as events are
    state, expected_state = runtime.initial_state(height, width), expected.initial_state(height, width)
    box_px = score = 0.0
    for frame, dt in zip(frames, rates, strict=True):
        (found, state), (wanted, expected_state) = runtime.step(frame, state, dt), expected.step(frame, expected_state, dt)
        box_px = np.maximum(box_px, np.abs(_corners(found, height, width) - _corners(wanted, height, width)).max())
        score = np.maximum(score, np.abs(found[:, 4:] - wanted[:, 4:]).max())  # keeps NaN, unlike max()
    return Difference(float(box_px), float(score))


def _corners(rows: np.ndarray, height: int, width: int) -> np.ndarray:
    """Clipped to the canvas: an untrained network's boxes can be so large that float32 rounds by pixels."""
    centre, half = rows[:, :2], rows[:, 2:4] / 2
    return np.clip(np.concatenate([centre - half, centre + half], 1), 0, [width, height] * 2)
