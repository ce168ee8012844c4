"""FRAME + STATE + DT -> ROWS + STATE: one step of a detector, computed by torch or from an exported file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float

from saccade.config import DetectorConfig
from saccade.detection.decode import dense
from saccade.export.exported import open_onnx, open_openvino, open_package
from saccade.model.detector import Detector
from saccade.model.values import State
from saccade.representation.histogram import Histogram
from saccade.types import InputError
from saccade.weights.load import load_detector

RuntimeName = Literal["torch", "onnx", "openvino", "package"]
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


class TorchRuntime:
    """The detector itself."""

    def __init__(self, detector: Detector) -> None:
        self.config = detector.config
        self.detector = detector
        self.device = next(detector.parameters()).device

    def initial_state(self, height: int, width: int) -> State:
        frames = torch.zeros((), device=self.device).expand(1, 1, self.config.backbone.channels, height, width)
        return self.detector.initial_state(frames)

    def step(self, frame: Histogram, state: State, dt: float) -> tuple[DenseRows, State]:
        pixels = torch.from_numpy(frame if frame.flags.writeable else frame.copy()).to(self.device)
        with torch.inference_mode():
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


def open_runtime(
    weights: Path | str | Detector,
    runtime: RuntimeName = "torch",
    device: str = "cpu",
    threads: int | None = None,
    *,
    trust: bool = False,
) -> Runtime:
    """Runtime of a Detector, weights file or name (torch), or of a file of `saccade export`; threads=None: the runtime's default.

    trust: open a .pt2, which can run any code as soon as it is opened; weights files and .onnx can't.
    """
    if not isinstance(weights, Detector) and Path(weights).suffix == ".pt2" and not trust:
        raise InputError(
            f"{weights}: a .pt2 can run any code of whoever wrote it as soon as it is opened; if you trust it, say so with --trust "
            "(trust=True), else take an .onnx or a weights file, which can't"
        )
    if runtime not in get_args(RuntimeName):
        raise InputError(f"unknown runtime={runtime!r}; expected one of {', '.join(get_args(RuntimeName))}")
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads} must be at least 1, or None to leave the choice to the runtime")
    if runtime == "torch":
        if threads is not None:
            torch.set_num_threads(threads)  # for the whole process: torch has no other setting
        return TorchRuntime(weights.to(device).eval() if isinstance(weights, Detector) else load_detector(weights, device))
    if isinstance(weights, Detector):
        raise InputError(f"runtime {runtime} runs a file: write it with saccade.export.graph.export_detector, or take runtime torch")
    if device != "cpu":
        raise InputError(f"runtime {runtime} computes on cpu, got device={device!r}; take runtime torch for it")
    return {"onnx": open_onnx, "openvino": open_openvino, "package": open_package}[runtime](weights, threads)
