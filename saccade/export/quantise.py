"""ONNX FILE -> int8 ONNX FILE: convolutions and linear layers in whole numbers, their ranges learnt from frames of a recording."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.export.onnx_runtime import open_onnx
from saccade.export.quiet import quiet
from saccade.files import replacing
from saccade.types import InputError

RATES = (1.0, 1.0, 0.5, 0.1)  # dt of the frames in turn: the ranges are those of every rate
OPERATORS = ("Conv", "MatMul", "Gemm")
SCOPES = "pkg.torch.onnx.name_scopes"  # where torch's exporter says which layer a node comes from


def quantise_onnx(source: Path | str, target: Path | str, frames: np.ndarray) -> None:
    """TARGET has the inputs and outputs of SOURCE, and may be the same file. Frames (n, channels, height, width), in order.

    The memory stays in float32: what it rounds it would carry on for ever. So does the head's last layer, whose steps of 1 / 256 of the
    range would be pixels, and so do the products within the attention, where rounding takes longer than it saves.
    """
    source, target = Path(source), Path(target)
    try:
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    except ImportError as error:
        raise InputError(f"int8 needs {error.name}: install it with `pip install saccade[export]`") from error
    if frames.ndim != 4 or not len(frames):
        raise InputError(f"int8: frames must be (n, channels, height, width), n at least 1, got {frames.shape}")
    feeds = _feeds(source, frames)

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(feeds, None)

    model = onnx.load(source)
    constants = _constants(model)
    said = {entry.key: entry.value for entry in model.metadata_props}
    with replacing(target) as temporary, quiet():
        quantize_static(
            model,
            str(temporary),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=[node.name for node in model.graph.node if node.op_type in OPERATORS and _stays(node, constants)],
            per_channel=True,
            activation_type=QuantType.QUInt8,  # int8 around zero would be faster in OpenVINO, and cost 5 mAP there
            weight_type=QuantType.QInt8,
        )
        written = onnx.load(temporary)
        onnx.helper.set_model_props(written, said | {"quantised": "int8"})
        onnx.save(written, temporary)


def _constants(model: Any) -> set[str]:
    """Weights, and what is only a weight in another shape."""
    found = {weight.name for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Transpose", "Reshape", "Cast", "Identity", "Unsqueeze") and found.issuperset(node.input):
            found.update(node.output)
    return found


def _stays(node: Any, constants: set[str]) -> bool:
    if node.op_type == "MatMul" and constants.isdisjoint(node.input):
        return True
    scopes = " ".join(entry.value for entry in node.metadata_props if entry.key == SCOPES)
    last_layers = [f"scales.{scale}.{part}'" for scale in range(3) for part in ("boxes", "classes", "objectness")]
    return "memory" in scopes or any(layer in scopes for layer in last_layers)


def _feeds(source: Path, frames: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """The inputs of every step through the frames, the memory going on."""
    runtime = open_onnx(source)
    state = runtime.initial_state(*frames.shape[2:])
    for number, frame in enumerate(frames):
        dt = RATES[number % len(RATES)]
        pixels = runtime.signature.pad(source, frame)[None]
        yield dict(zip(runtime.signature.inputs, (pixels, np.array([dt], np.float32), *state), strict=True))
        _, state = runtime.step(frame, state, dt)
