"""EXPORTED FILE -> Runtime: a file's metadata, and a step of its graph in onnxruntime, OpenVINO or torch."""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saccade.config import DetectorConfig
from saccade.export.onnx_data import check_self_contained
from saccade.files import check_readable
from saccade.machine import killing_signal
from saccade.types import InputError

FORMAT = "1"
REQUIRED = {"saccade", "config", "size", "states"}  # keys of a file's metadata; there may be more
PACKAGE_METADATA = "saccade.json"  # name inside a .pt2 that isn't compiled
StateArrays = tuple[np.ndarray, ...]
RunGraph = Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], Sequence[np.ndarray]]  # frames, dt, states -> rows, states


@dataclass(frozen=True)
class Signature:
    """Inputs frames (batch, channels, height, width) uint8 counts, dt (batch,) float32 in windows of the training, and the states,
    float32, zero at the start; outputs rows (batch, cells, 5 + classes), and every state under its name with `next_` before it.
    """  # also written into .onnx files

    config: DetectorConfig
    height: int  # of the graph's input, padded to a multiple that the network can divide
    width: int
    states: dict[str, tuple[int, ...]]  # shapes without the batch, in the order of the inputs

    @property
    def inputs(self) -> list[str]:
        return ["frames", "dt", *self.states]

    @property
    def outputs(self) -> list[str]:
        return ["rows", *(f"next_{name}" for name in self.states)]

    def to_metadata(self) -> dict[str, str]:
        """Text for the file, which can then be run without another one."""
        return {
            "saccade": FORMAT,
            "config": self.config.to_json(),
            "size": f"{self.height}x{self.width}",
            "states": json.dumps({name: list(shape) for name, shape in self.states.items()}),
        }

    @classmethod
    def from_metadata(cls, path: Path, metadata: Mapping[str, str]) -> "Signature":
        if not set(metadata) >= REQUIRED:
            missing = ", ".join(sorted(REQUIRED - set(metadata)))
            raise InputError(f"{path}: not a file of `saccade export` (its metadata lacks {missing}); export the weights again")
        if metadata["saccade"] != FORMAT:
            raise InputError(f"{path}: exported in format {metadata['saccade']}, this saccade reads {FORMAT}; export the weights again")
        try:
            height, width = (int(side) for side in metadata["size"].split("x"))
            states = {str(name): tuple(map(int, shape)) for name, shape in json.loads(metadata["states"]).items()}
            return cls(DetectorConfig.from_json(metadata["config"]), height, width, states)
        except (InputError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"{path}: its metadata is damaged ({error}); export the weights again") from error

    def pad(self, path: Path, frame: np.ndarray) -> np.ndarray:
        """Zeros at the bottom and right, as `Detector.encode` adds them."""
        self.check_size(path, *frame.shape[1:])
        down, across = self.height - frame.shape[1], self.width - frame.shape[2]
        return np.pad(frame, ((0, 0), (0, down), (0, across))) if down or across else frame

    def check_size(self, path: Path, height: int, width: int) -> None:
        if self.config.backbone.padded(height, width) != (self.height, self.width):
            raise InputError(
                f"{path}: was exported for frames of {self.width} x {self.height}, got {width} x {height}; "
                f"export the weights once more with --size {width}x{height}"
            )


class ExportedRuntime:
    """A Runtime around the function that runs a file's graph."""

    def __init__(self, path: Path, signature: Signature, run: RunGraph) -> None:
        self.path, self.signature, self.config, self.run = path, signature, signature.config, run

    def initial_state(self, height: int, width: int) -> StateArrays:
        self.signature.check_size(self.path, height, width)
        return tuple(np.zeros((1, *shape), np.float32) for shape in self.signature.states.values())

    def step(self, frame: np.ndarray, state: StateArrays, dt: float) -> tuple[np.ndarray, StateArrays]:
        channels = self.config.backbone.channels
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[0] != channels:
            raise InputError(f"{self.path}: a frame must be uint8 ({channels}, height, width), got {frame.dtype} {frame.shape}")
        if not 0 < dt < float("inf"):
            raise InputError(f"{self.path}: dt={dt} must be positive and finite")
        frames = np.ascontiguousarray(self.signature.pad(self.path, frame))[None]
        rows, *states = self.run(frames, np.array([dt], np.float32), state)
        return rows[0], tuple(states)

    def prepare(self, dt: float) -> None:
        """Nothing to do: the graph computes what depends on dt in every step."""

    def state_to_arrays(self, state: StateArrays) -> dict[str, np.ndarray]:
        return dict(zip(self.signature.states, state, strict=True))

    def state_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> StateArrays:
        expected = {name: (1, *shape) for name, shape in self.signature.states.items()}
        found = {name: tuple(array.shape) for name, array in arrays.items()}
        if found != expected:
            raise InputError(f"{self.path}: the state holds {found}, expected {expected}; it is of another model or size")
        return tuple(np.ascontiguousarray(arrays[name], np.float32) for name in expected)


def open_onnx(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """An .onnx file, run by onnxruntime."""
    path = _checked(path, ".onnx", "onnxruntime")
    check_self_contained(path)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: it warns of every folded constant
    options.add_free_dimension_override_by_name("batch", 1)  # a known batch is planned better
    options.intra_op_num_threads = threads or 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # on a busy machine, waiting threads take others' time
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common class
        raise InputError(f"{path}: onnxruntime can't load it ({error!s:.200}); damaged, or no ONNX file?") from error
    signature = Signature.from_metadata(path, session.get_modelmeta().custom_metadata_map)
    inputs, outputs = signature.inputs, signature.outputs

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return session.run(outputs, dict(zip(inputs, (frames, dt, *states), strict=True)))

    return ExportedRuntime(path, signature, run)


def open_openvino(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """An .onnx file, compiled for this CPU by OpenVINO; in float32, where it would choose bfloat16."""
    path = _checked(path, ".onnx", "openvino")
    check_self_contained(path)
    try:
        import openvino
    except ImportError as error:
        raise InputError("runtime openvino needs OpenVINO: install it with `pip install saccade-events[openvino]`") from error
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": str(threads or 1)}
    try:
        core = openvino.Core()
        model = core.read_model(path)
        entries = model.get_rt_info()["framework"].items() if model.has_rt_info("framework") else ()
        metadata = {name: str(value.value) for name, value in entries}
        signature = Signature.from_metadata(path, metadata)
        if "quantised" in metadata:
            _check_int8(path)
        request = _compiled(core, path, settings).create_infer_request()
    except RuntimeError as error:
        raise InputError(f"{path}: OpenVINO can't load it ({str(error).strip():.200}); damaged, or no ONNX file?") from error
    inputs, outputs = signature.inputs, signature.outputs

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        found = request.infer(dict(zip(inputs, (frames, dt, *states), strict=True)), share_inputs=True)
        return [found[name] for name in outputs]

    return ExportedRuntime(path, signature, run)


def _compiled(core: Any, path: Path, settings: dict[str, str]) -> Any:
    """With a dynamic batch or, if that fails, a batch of one. OpenVINO 2026.4 fuses patterns that aren't there: with a batch of one it
    takes S5's complex product for a rotary embedding, with a dynamic one the attention's windows for a channel shuffle if sides and
    channels are equal.
    """
    try:
        return core.compile_model(core.read_model(path), "CPU", settings)
    except RuntimeError:
        model = core.read_model(path)
        model.reshape({port.any_name: [1, *list(port.partial_shape)[1:]] for port in model.inputs})
        return core.compile_model(model, "CPU", settings)


def _check_int8(path: Path) -> None:
    """Try int8 in a subprocess first: some virtual machines report instructions (AMX) that then end the process with SIGILL."""
    code = (
        "import sys, numpy, openvino\n"
        "model = openvino.compile_model(sys.argv[1], 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})\n"
        "shape = lambda port: [1, *(side.get_length() for side in list(port.partial_shape)[1:])]\n"
        "model({port.any_name: numpy.zeros(shape(port), port.element_type.to_dtype()) for port in model.inputs})"
    )
    number = killing_signal(code, str(path))
    if number is not None:
        raise InputError(
            f"{path}: int8 in OpenVINO ends a process on this machine with signal {number}; take runtime onnxruntime, or set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI before the start"
        )


def open_package(path: Path | str) -> ExportedRuntime:
    """A .pt2 file, as `torch.export` saved it or compiled by AOTInductor. Load only files that you trust: they can run code."""
    import torch

    path = _checked(path, ".pt2", "package")
    try:
        with zipfile.ZipFile(path) as archive:
            is_compiled = any("/aotinductor/" in name for name in archive.namelist())
        if is_compiled:
            module: Callable[..., Sequence[torch.Tensor]] = torch._inductor.aoti_load_package(str(path))
            metadata = module.loader.get_metadata()  # type: ignore[attr-defined]
        else:
            files = {PACKAGE_METADATA: ""}
            module = torch.export.load(path, extra_files=files).module()
            metadata = json.loads(files[PACKAGE_METADATA] or "{}")
    except (zipfile.BadZipFile, RuntimeError, ValueError, KeyError, OSError) as error:
        raise InputError(f"{path}: torch can't load it ({error!s:.200}); damaged, or no package of `saccade export`?") from error
    signature = Signature.from_metadata(path, metadata)

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        with torch.inference_mode():
            pixels = torch.from_numpy(frames if frames.flags.writeable else frames.copy())
            found = module(pixels, torch.from_numpy(dt), tuple(torch.from_numpy(state) for state in states))
        return [tensor.numpy() for tensor in found]

    return ExportedRuntime(path, signature, run)


def _checked(path: Path | str, suffix: str, runtime: str) -> Path:
    """The path, if there is a readable file with the suffix that this runtime reads."""
    path = Path(path)
    if path.suffix != suffix:
        raise InputError(f"{path}: runtime {runtime} reads a {suffix} file; write it with `saccade export {path} {path.stem}{suffix}`")
    check_readable(path)
    return path
