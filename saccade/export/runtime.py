"""WEIGHTS, NAME OR EXPORTED FILE -> Runtime: the fastest that is installed, or the one that is asked for."""

from pathlib import Path
from typing import Literal, get_args

import torch

from saccade.export.exported import open_onnx, open_openvino, open_package
from saccade.export.fast import GraphRuntime
from saccade.export.step import Runtime, TorchRuntime, fastest
from saccade.machine import device_named
from saccade.model.detector import Detector
from saccade.types import InputError
from saccade.weights.load import load_detector

__all__ = ["Runtime", "RuntimeName", "TorchRuntime", "open_runtime"]

MOST_THREADS = 1024

RuntimeName = Literal["auto", "torch", "onnxruntime", "openvino", "package"]
BY_SUFFIX: dict[str, RuntimeName] = {".onnx": "onnxruntime", ".pt2": "package"}


def open_runtime(
    weights: Path | str | Detector,
    runtime: RuntimeName = "auto",
    device: str = "auto",
    threads: int | None = None,
    *,
    trust: bool = False,
) -> Runtime:
    """Of a Detector, a weights file or name, or a file of `saccade export`.

    auto: on a CPU onnxruntime, compared with torch at the start, and torch where that fails; for an exported file the one that reads it.
    threads: of the runtime, and of torch in the whole process; None: one, or more where they are measured to be faster.
    trust: open a .pt2, which can run any code as soon as it is opened; weights files and .onnx can't.
    """
    if not isinstance(weights, Detector) and Path(weights).suffix == ".pt2" and not trust:
        raise InputError(
            f"{weights}: a .pt2 can run any code of whoever wrote it as soon as it is opened; if you trust it, say so with --trust "
            "(trust=True), else take an .onnx or a weights file, which can't"
        )
    if runtime not in get_args(RuntimeName):
        raise InputError(f"unknown runtime={runtime!r}; expected one of {', '.join(get_args(RuntimeName))}")
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise InputError(f"threads={threads} must be from 1 to {MOST_THREADS}, or None to leave the choice to the runtime")
        torch.set_num_threads(threads)  # for the whole process: torch, and our own loops beside it, have no other setting
    exported = None if isinstance(weights, Detector) else BY_SUFFIX.get(Path(weights).suffix)
    runtime = exported or "auto" if runtime == "auto" else runtime
    if runtime not in ("auto", "torch"):
        if device not in ("auto", "cpu"):
            raise InputError(f"runtime {runtime} computes on cpu, got device={device!r}; take runtime torch for it")
        device = "cpu"
    device = device_named(device)
    runtime = "torch" if runtime == "auto" and device != "cpu" else runtime
    if runtime in ("openvino", "package") or (exported is not None and runtime == "onnxruntime"):
        if isinstance(weights, Detector):
            raise InputError(f"runtime {runtime} runs a file: write it with saccade.export.graph.export_detector, or take runtime auto")
        return _open_file(weights, runtime, threads)
    detector = weights.to(device).eval() if isinstance(weights, Detector) else load_detector(weights, device)
    if runtime == "torch":
        return TorchRuntime(detector)
    return GraphRuntime(detector, threads, strict=runtime != "auto", owned=not isinstance(weights, Detector))


def _open_file(path: Path | str, runtime: RuntimeName, threads: int | None) -> Runtime:
    if runtime == "package":
        return open_package(path)
    opened = {"onnxruntime": open_onnx, "openvino": open_openvino}[runtime]
    alone = opened(path, threads or 1)
    if threads is not None:
        return alone
    return fastest(lambda count: alone if count == 1 else opened(path, count), alone.signature.height, alone.signature.width)
