"""ONNX FILE -> int8 ONNX FILE: convolutions and linear layers in int8, value ranges calibrated on frames of a recording."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from saccade.export.exported import open_onnx
from saccade.files import replacing
from saccade.types import InputError

CALIBRATION_DT = (1.0, 1.0, 0.5, 0.1)  # dt of the frames in turn, so that the ranges hold at every rate
OPERATORS = ("Conv", "MatMul", "Gemm")
FIRST = "stages.0.downsample"
SCOPES = "pkg.torch.onnx.name_scopes"  # key under which torch's exporter names the layer that a node comes from


def quantise_onnx(source: Path | str, target: Path | str, frames: np.ndarray) -> None:
    """TARGET has the inputs and outputs of SOURCE, and may be the same file. Frames (n, channels, height, width), in order.

    Four parts stay in float32: the first convolution, where a single event is little of the range and the norm after it makes it much (it
    alone cost nano 5 mAP); the memory, which would accumulate rounding errors; the head's last layers, where a step of 1/256 of the range
    is whole pixels; the products of attention, where quantising takes longer than it saves.
    """
    source, target = Path(source), Path(target)
    try:
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    except ImportError as error:
        raise InputError(f"int8 needs {error.name}: install it with `pip install saccade-events[export]`") from error
    if frames.ndim != 4 or not len(frames):
        raise InputError(f"int8: frames must be (n, channels, height, width), n at least 1, got {frames.shape}")
    feeds = _feeds(source, frames)

    class Calibration(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(feeds, None)

    model = onnx.load(source)
    constants = _constants(model)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    with replacing(target) as temporary, quiet():
        quantize_static(
            model,
            str(temporary),
            Calibration(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=[node.name for node in model.graph.node if node.op_type in OPERATORS and _stays_float(node, constants)],
            per_channel=True,
            activation_type=QuantType.QUInt8,  # symmetric int8 is faster in OpenVINO, but costs 5 mAP there
            weight_type=QuantType.QInt8,
        )
        written = onnx.load(temporary)
        onnx.helper.set_model_props(written, metadata | {"quantised": "int8"})
        onnx.save(written, temporary)


def _constants(model: Any) -> set[str]:
    """Names of weights and of reshaped, transposed or cast weights."""
    found = {weight.name for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Transpose", "Reshape", "Cast", "Identity", "Unsqueeze") and found.issuperset(node.input):
            found.update(node.output)
    return found


def _stays_float(node: Any, constants: set[str]) -> bool:
    if node.op_type == "MatMul" and constants.isdisjoint(node.input):
        return True
    scopes = " ".join(entry.value for entry in node.metadata_props if entry.key == SCOPES)
    last_layers = [f"scales.{scale}.{part}'" for scale in range(3) for part in ("boxes", "classes", "objectness")]
    return "memory" in scopes or FIRST in scopes or any(layer in scopes for layer in last_layers)


def _feeds(source: Path, frames: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """The graph's inputs for every frame, each with the state that the frame before it left."""
    runtime = open_onnx(source)
    state = runtime.initial_state(*frames.shape[2:])
    for number, frame in enumerate(frames):
        dt = CALIBRATION_DT[number % len(CALIBRATION_DT)]
        pixels = runtime.signature.pad(source, frame)[None]
        yield dict(zip(runtime.signature.inputs, (pixels, np.array([dt], np.float32), *state), strict=True))
        _, state = runtime.step(frame, state, dt)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, and logs below errors, of torch.onnx and of onnxruntime's quantiser, which uses the root logger."""
    loggers = [logging.getLogger("torch.onnx"), logging.getLogger()]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
