"""ONNX FILE -> Runtime, through onnxruntime."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from saccade.export.exported import ExportedRuntime, Signature, exported_file
from saccade.types import InputError


def open_onnx(path: Path | str, threads: int | None = None) -> ExportedRuntime:
    """A file that `saccade export` wrote, ready to step."""
    path = exported_file(path, ".onnx", "onnx")
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("runtime onnx needs onnxruntime: install it with `pip install saccade[export]`") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: it warns of every folded constant
    options.add_free_dimension_override_by_name("batch", 1)  # a known batch is planned better
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common class
        raise InputError(f"{path}: onnxruntime can't load it ({error!s:.200}); damaged, or no ONNX file?") from error
    signature = Signature.from_metadata(path, session.get_modelmeta().custom_metadata_map)
    inputs, outputs = signature.inputs, signature.outputs

    def run(frames: np.ndarray, dt: np.ndarray, states: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return session.run(outputs, dict(zip(inputs, (frames, dt, *states), strict=True)))

    return ExportedRuntime(path, signature, run)
