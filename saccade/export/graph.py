"""DETECTOR -> FILE: one graph of a step, with frames, state and dt as inputs, that serves every rate; compared with torch once written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from saccade.detection.decode import dense
from saccade.export.exported import ExportedRuntime, Signature
from saccade.export.onnx_runtime import open_onnx
from saccade.export.package import open_package, write_compiled, write_program
from saccade.export.quantise import SCOPES, quantise_onnx
from saccade.export.quiet import quiet
from saccade.export.runtime import TorchRuntime, state_names
from saccade.files import replacing
from saccade.model.detector import Detector
from saccade.types import InputError

OPSET = 20  # the first with GELU as an operator of its own
BOX_TOLERANCE_PX, SCORE_TOLERANCE = 0.01, 1e-4
RATES = (1.0, 1.0, 0.1, 4.0, 0.02, 0.5, 1.0, 0.3)  # dt of the steps that compare a file with torch
SUFFIXES = (".onnx", ".pt2")


class Step(nn.Module):
    """What is traced: tensors in, tensors out, the states in one row."""

    def __init__(self, detector: Detector, layers: list[int]) -> None:
        super().__init__()
        self.detector, self.layers = detector, layers

    def forward(self, frames: Tensor, dt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tensors = iter(states)
        state = tuple(tuple(next(tensors) for _ in range(count)) for count in self.layers)
        predictions, state = self.detector(frames[None], state, dt[None])
        return dense(predictions), *(tensor for layer in state for tensor in layer)


@dataclass(frozen=True)
class Difference:
    """The largest between a file and torch, over steps at changing rates."""

    box_px: float  # of a corner on the canvas
    score: float  # of an objectness or a class's probability

    @property
    def is_small(self) -> bool:
        return self.box_px <= BOX_TOLERANCE_PX and self.score <= SCORE_TOLERANCE  # NaN is not


def trace(detector: Detector, height: int, width: int) -> tuple[ExportedProgram, Signature]:
    """The graph of a step, its batch open. Sizes are fixed: the attention divides the image into as many windows at every size, and
    their sides as quotients of unknown sides are more than torch.export's algebra copes with.
    """
    if min(height, width) < 1:
        raise InputError(f"export: height={height}, width={width} must be positive")
    multiple = detector.config.backbone.multiple
    height, width = -(-height // multiple) * multiple, -(-width // multiple) * multiple
    detector = detector.cpu().eval()
    frames = torch.zeros(
        2, detector.config.backbone.channels, height, width, dtype=torch.uint8
    )  # of one, the batch would be taken as fixed
    state = detector.initial_state(frames[None])
    states = tuple(tensor for layer in state for tensor in layer)
    signature = Signature(
        detector.config, height, width, {name: tuple(tensor.shape[1:]) for name, tensor in zip(state_names(state), states, strict=True)}
    )
    batch = Dim("batch", min=1, max=4096)
    with torch.no_grad(), quiet():
        program = torch.export.export(
            Step(detector, [len(layer) for layer in state]),
            (frames, torch.ones(2), states),
            dynamic_shapes={"frames": {0: batch}, "dt": {0: batch}, "states": tuple({0: batch} for _ in states)},
        )
    return program, signature


def export_detector(
    detector: Detector,
    path: Path | str,
    *,
    height: int = 240,
    width: int = 304,
    compiled: bool = False,
    quantise: Literal["none", "int8"] = "none",
    calibration: np.ndarray | None = None,
) -> Difference:
    """Write PATH, .onnx or .pt2 by its suffix, unless it differs from torch; what is quantised differs, and is written all the same.

    COMPILED: a .pt2 for this machine, by AOTInductor. CALIBRATION: frames (n, channels, height, width) of a recording, in order, from
    which int8 learns the ranges of values.
    """
    path = Path(path)
    _check(path, compiled, quantise, calibration)
    program, signature = trace(detector, height, width)
    with replacing(path) as temporary:
        if path.suffix == ".onnx":
            _write_onnx(program, signature, temporary)
            if quantise == "int8" and calibration is not None:
                quantise_onnx(temporary, temporary, calibration)
            opened = open_onnx(temporary)
        else:
            with torch.no_grad(), quiet():
                (write_compiled if compiled else write_program)(program, signature, temporary)
            opened = open_package(temporary)
        difference = compare(opened, detector)
        if quantise == "none" and not difference.is_small:
            raise InputError(
                f"{path}: not written: its boxes are up to {difference.box_px:.3g} px and its scores up to {difference.score:.3g} from "
                f"those of torch, where {BOX_TOLERANCE_PX} and {SCORE_TOLERANCE} are allowed; please report this with the weights"
            )
    return difference


def compare(runtime: ExportedRuntime, detector: Detector, rates: tuple[float, ...] = RATES) -> Difference:
    """Step both through noise, each with its own state."""
    signature, torch_runtime = runtime.signature, TorchRuntime(detector)
    height, width = signature.height, signature.width
    frames = np.random.default_rng(0).poisson(0.2, (len(rates), detector.config.backbone.channels, height, width)).astype(np.uint8)
    states: list[Any] = [runtime.initial_state(height, width), torch_runtime.initial_state(height, width)]
    box_px = score = 0.0
    for frame, dt in zip(frames, rates, strict=True):
        (ours, states[0]), (expected, states[1]) = runtime.step(frame, states[0], dt), torch_runtime.step(frame, states[1], dt)
        box_px = np.maximum(box_px, np.abs(_corners(ours, height, width) - _corners(expected, height, width)).max())
        score = np.maximum(score, np.abs(ours[:, 4:] - expected[:, 4:]).max())  # unlike max() of Python, it keeps NaN
    return Difference(float(box_px), float(score))


def _corners(rows: np.ndarray, height: int, width: int) -> np.ndarray:
    """On the canvas: beyond it, an untrained network's boxes are larger than float32 is fine."""
    centre, half = rows[:, :2], rows[:, 2:4] / 2
    return np.clip(np.concatenate([centre - half, centre + half], 1), 0, [width, height] * 2)


def _check(path: Path, compiled: bool, quantise: str, calibration: np.ndarray | None) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if compiled and path.suffix != ".pt2":
        raise InputError(f"{path}: only a .pt2 file can be compiled; give a name that ends in .pt2")
    if quantise != "none" and path.suffix != ".onnx":
        raise InputError(f"{path}: only an .onnx file can be quantised; give a name that ends in .onnx")
    if quantise == "int8" and (calibration is None or not len(calibration)):
        raise InputError(f"{path}: int8 needs frames of a recording, to learn the ranges of values; give one with --calibrate")


def _write_onnx(program: ExportedProgram, signature: Signature, path: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch.onnx needs it, and says so in a traceback
    except ImportError as error:
        raise InputError(f"export to ONNX needs {error.name}: install it with `pip install saccade[export]`") from error
    with torch.no_grad(), quiet():
        plain = program.run_decompositions({torch.ops.aten.linalg_matrix_exp.default: matrix_exponential})
        exported = torch.onnx.export(
            plain, dynamo=True, opset_version=OPSET, verbose=False, input_names=signature.inputs, output_names=signature.outputs
        )
    assert exported is not None
    model = exported.model_proto
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param.startswith("s") and dim.dim_param[1:].isdigit():
                dim.dim_param = "batch"
    for node in model.graph.node:  # torch adds the stack that led to each, with paths of this machine
        kept = [entry for entry in node.metadata_props if entry.key == SCOPES]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    metadata = {**signature.to_metadata(), "opset": str(OPSET)}
    onnx.helper.set_model_props(model, metadata | {"inputs": ", ".join(signature.inputs), "outputs": ", ".join(signature.outputs)})
    model.producer_name, model.doc_string = "saccade", " ".join((Signature.__doc__ or "").split())
    onnx.save(model, path)


def matrix_exponential(matrices: Tensor) -> Tensor:
    """exp(A) of matrices (..., n, n) in products alone, for runtimes that know no such operator: Taylor's series of A / 2^14, squared.

    Carried as exp - 1, which keeps its precision while it is small: a runtime that computes in float32 loses digits only at the end.
    """
    small = matrices / 2.0**14
    one = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    less_one = small / 8
    for order in range(7, 0, -1):
        less_one = small @ (one + less_one) / order
    for _ in range(14):
        less_one = 2 * less_one + less_one @ less_one
    return one + less_one
