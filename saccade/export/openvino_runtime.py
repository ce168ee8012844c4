"""ONNX FILE -> Runtime, through OpenVINO, which reads the same file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saccade.export.exported import ExportedRuntime, Signature, exported_file
from saccade.machine import killing_signal
from saccade.types import InputError


def open_openvino(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """A file that `saccade export` wrote, compiled for this CPU; float32 throughout, where OpenVINO would choose bfloat16."""
    path = exported_file(path, ".onnx", "openvino")
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
        metadata = {name: str(value.value) for name, value in said}
        signature = Signature.from_metadata(path, metadata)
        if "quantised" in metadata:
            _check_whole_numbers(path)
        request = _compiled(core, path, settings).create_infer_request()
    except RuntimeError as error:
        raise InputError(f"{path}: OpenVINO can't load it ({str(error).strip():.200}); damaged, or no ONNX file?") from error
    inputs, outputs = signature.inputs, signature.outputs

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        found = request.infer(dict(zip(inputs, (frames, dt, *states), strict=True)), share_inputs=True)
        return [found[name] for name in outputs]

    return ExportedRuntime(path, signature, run)


def _compiled(core: Any, path: Path, settings: dict[str, str]) -> Any:
    """With the batch open, else fixed to one. OpenVINO 2026.4 fuses patterns that aren't there: with a batch of one it takes S5's complex
    product for a rotary embedding, with an open one the attention's windows for shuffled channels if sides and channels are equal.
    """
    try:
        return core.compile_model(core.read_model(path), "CPU", settings)
    except RuntimeError:
        model = core.read_model(path)
        model.reshape({port.any_name: [1, *list(port.partial_shape)[1:]] for port in model.inputs})
        return core.compile_model(model, "CPU", settings)


def _check_whole_numbers(path: Path) -> None:
    """Another process tries int8 first: where a virtual machine offers its instructions and refuses them, it ends."""
    code = (
        "import sys, numpy, openvino\n"
        "model = openvino.compile_model(sys.argv[1], 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})\n"
        "shape = lambda port: [1, *(side.get_length() for side in list(port.partial_shape)[1:])]\n"
        "model({port.any_name: numpy.zeros(shape(port), port.element_type.to_dtype()) for port in model.inputs})"
    )
    number = killing_signal(code, str(path))
    if number is not None:
        raise InputError(
            f"{path}: int8 in OpenVINO ends a process on this machine with signal {number}; take runtime onnx, or set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI before the start"
        )
