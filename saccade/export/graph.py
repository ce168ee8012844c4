"""DETECTOR -> .onnx or .pt2 FILE: the graph of one step with frames, state and dt as inputs, for every rate; compared with torch."""

import json
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from saccade.detection.decode import dense
from saccade.export.exported import PACKAGE_METADATA, Signature, open_onnx, open_package
from saccade.export.quantise import SCOPES, quantise_onnx, quiet
from saccade.export.step import BOX_TOLERANCE_PX, SCORE_TOLERANCE, Difference, TorchRuntime, compare, state_names
from saccade.files import replacing
from saccade.model.detector import Detector
from saccade.types import InputError

OPSET = 20  # the first that has a GELU operator
COMPARED_DT = (1.0, 1.0, 0.1, 4.0, 0.02, 0.5, 1.0, 0.3)  # dt of the steps that compare a file with torch
SUFFIXES = (".onnx", ".pt2")


class _Step(nn.Module):
    """The module that is traced: it takes and returns tensors, all states in one tuple."""

    def __init__(self, detector: Detector, layers: list[int]) -> None:
        super().__init__()
        self.detector, self.layers = detector, layers

    def forward(self, frames: Tensor, dt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tensors = iter(states)
        state = tuple(tuple(next(tensors) for _ in range(count)) for count in self.layers)
        predictions, state = self.detector(frames[None], state, dt[None])
        return dense(predictions), *(tensor for layer in state for tensor in layer)


def trace(detector: Detector, height: int, width: int) -> tuple[ExportedProgram, Signature]:
    """The graph of one step with a dynamic batch and fixed height and width: the sides of the attention's windows are quotients of the
    image's sides, which torch.export can't handle as symbols.
    """
    if min(height, width) < 1:
        raise InputError(f"export: height={height}, width={width} must be positive")
    backbone = detector.config.backbone
    height, width = backbone.padded(height, width)
    detector = detector.cpu().eval()
    frames = torch.zeros(2, backbone.channels, height, width, dtype=torch.uint8)  # torch.export would take a batch of 1 as fixed
    state = detector.initial_state(frames[None])
    states = tuple(tensor for layer in state for tensor in layer)
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in zip(state_names(state), states, strict=True)}
    batch = Dim("batch", min=1, max=4096)
    with torch.no_grad(), quiet():
        program = torch.export.export(
            _Step(detector, [len(layer) for layer in state]),
            (frames, torch.ones(2), states),
            dynamic_shapes={"frames": {0: batch}, "dt": {0: batch}, "states": tuple({0: batch} for _ in states)},
        )
    return program, Signature(detector.config, height, width, shapes)


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
    """Write PATH, .onnx or .pt2 by its suffix, unless it differs from torch; a quantised one does, and is written all the same.

    COMPILED: a .pt2 for this machine, by AOTInductor. CALIBRATION: frames (n, channels, height, width) of a recording, in order, that
    give int8 its value ranges.
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
            _write_package(program, signature, temporary, compiled)
            opened = open_package(temporary)
        difference = compare(opened, TorchRuntime(detector), signature.height, signature.width, COMPARED_DT)
        if quantise == "none" and not difference.is_small:
            raise InputError(
                f"{path}: not written: its boxes are up to {difference.box_px:.3g} px and its scores up to {difference.score:.3g} from "
                f"those of torch, where {BOX_TOLERANCE_PX} and {SCORE_TOLERANCE} are allowed; please report this with the weights"
            )
    return difference


def _check(path: Path, compiled: bool, quantise: str, calibration: np.ndarray | None) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if compiled and path.suffix != ".pt2":
        raise InputError(f"{path}: only a .pt2 file can be compiled; give a name that ends in .pt2")
    if quantise != "none" and path.suffix != ".onnx":
        raise InputError(f"{path}: only an .onnx file can be quantised; give a name that ends in .onnx")
    if quantise == "int8" and (calibration is None or not len(calibration)):
        raise InputError(f"{path}: int8 needs frames of a recording for the value ranges; give one with --calibrate")


def _write_onnx(program: ExportedProgram, signature: Signature, path: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch.onnx needs it; without it, it fails with a traceback
    except ImportError as error:
        raise InputError(f"export to ONNX needs {error.name}: install it with `pip install saccade-events[export]`") from error
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
    for node in model.graph.node:  # torch adds stack traces with paths of this machine
        kept = [entry for entry in node.metadata_props if entry.key == SCOPES]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    metadata = {**signature.to_metadata(), "opset": str(OPSET)}
    onnx.helper.set_model_props(model, metadata | {"inputs": ", ".join(signature.inputs), "outputs": ", ".join(signature.outputs)})
    model.producer_name, model.doc_string = "saccade", " ".join((Signature.__doc__ or "").split())
    onnx.save(model, path)


def _write_package(program: ExportedProgram, signature: Signature, path: Path, compiled: bool) -> None:
    """As torch.export saves it, for any machine with this version of torch, or compiled for this machine's processor."""
    metadata = signature.to_metadata()
    with torch.no_grad(), quiet():
        if not compiled:
            torch.export.save(program, path, extra_files={PACKAGE_METADATA: json.dumps(metadata)})
            return
        if not (shutil.which("g++") or shutil.which("clang++")):
            raise InputError("AOTInductor compiles C++ and found neither g++ nor clang++; install one, or export without --compile")
        options = {"aot_inductor.metadata": metadata}
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=options)


def matrix_exponential(matrices: Tensor) -> Tensor:
    """exp(A) of matrices (..., n, n) by products only, for runtimes without such an operator: Taylor series of A / 2^14, squared 14 times.

    Kept as exp(A) - 1, which is precise while it is small: a runtime that computes in float32 loses digits only at the end.
    """
    small = matrices / 2.0**14
    one = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    less_one = small / 8
    for order in range(7, 0, -1):
        less_one = small @ (one + less_one) / order
    for _ in range(14):
        less_one = 2 * less_one + less_one @ less_one
    return one + less_one
