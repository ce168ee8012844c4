"""ONNX FILE -> Runtime, through OpenVINO, which reads the same file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from saccade.deploy.exported import ExportedRuntime, Signature
from saccade.deploy.onnx_runtime import check_suffix
from saccade.events.files import check_readable
from saccade.types import InputError


def open_openvino(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """A file that `saccade export` wrote, compiled for this CPU; float32 throughout, where OpenVINO would choose bfloat16."""
    path = Path(path)
    check_suffix(path, ".onnx", "openvino")
    check_readable(path)
    try:
        import openvino
    except ImportError as error:
        raise InputError("runtime openvino needs OpenVINO: install it with `pip install saccade[openvino]`") from error
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    try:
        core = openvino.Core()
        model = core.read_model(path)
        said = model.get_rt_info()["framework"].items() if model.has_rt_info("framework") else ()
        signature = Signature.from_metadata(path, {name: str(value.value) for name, value in said})
        # The batch stays open: with a batch of one, OpenVINO 2026.4 takes S5's complex product for a rotary embedding, and fails.
        request = core.compile_model(model, "CPU", settings).create_infer_request()
    except RuntimeError as error:
        raise InputError(f"{path}: OpenVINO can't load it ({str(error).strip():.200}); damaged, or no ONNX file?") from error
    inputs, outputs = signature.inputs, signature.outputs

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        found = request.infer(dict(zip(inputs, (frames, dt, *states), strict=True)), share_inputs=True)
        return [found[name] for name in outputs]

    return ExportedRuntime(path, signature, run)
