"""`saccade export`: weights -> a file that runs without saccade."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.commands.simulate import size_of
from saccade.commands.weights import WeightsFile
from saccade.machine import check_extra
from saccade.types import InputError

if TYPE_CHECKING:
    import numpy as np

    from saccade.config import DetectorConfig

Out = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="File to write: .onnx, or .pt2 for torch itself.")]
CALIBRATION_FRAMES = 64
EXTRA: dict[str, tuple[str, ...]] = {".onnx": ("onnx", "onnxscript", "onnxruntime"), ".pt2": ()}


def export(
    weights: WeightsFile,
    out: Out,
    *,
    size: str | None = None,
    quantise: Literal["none", "int8"] = "none",
    calibrate: Path | None = None,
    compile: bool = False,
    overwrite: bool = False,
) -> None:
    """Write the detector as one graph: frames, dt and state go in, boxes and state come out, so one file serves every rate.

    The file is compared with torch first; one that differs is not written. Names and shapes of inputs, opset and the detector's settings
    are in its metadata. examples/run_onnx.py runs it with numpy.

    Args:
        size: Width x height: of the frames, fixed in the graph; if not given that of the training (published: 304x240 or 640x360).
        quantise: int8 for convolutions and linear layers (.onnx only): smaller, less exact; needs --calibrate.
        calibrate: A recording whose first 64 windows give int8 its value ranges.
        compile: Compile a .pt2 for this machine with AOTInductor (needs a C++ compiler).
        overwrite: Replace files that exist.
    """
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite to replace it")
    asked = None if size is None else size_of(size)
    from saccade.export.graph import SUFFIXES, export_detector
    from saccade.stream.fit import known_size
    from saccade.weights.load import load_detector

    if out.suffix not in SUFFIXES:
        raise InputError(f"{out}: expected a name that ends in {' or '.join(SUFFIXES)}")
    for package in EXTRA[out.suffix]:
        check_extra(out, package, "export")
    detector = load_detector(weights)
    width, height = asked or known_size(detector.config)
    frames = None if calibrate is None else calibration_frames(calibrate, detector.config, height, width)
    started = time.perf_counter()
    difference = export_detector(detector, out, height=height, width=width, compiled=compile, quantise=quantise, calibration=frames)
    took_s = time.perf_counter() - started
    print(f"{out}: {detector.config.name}, {out.stat().st_size / 1e6:.1f} MB in {took_s:.0f} s, frames up to {width} x {height}, any rate")
    print(f"largest difference to torch: boxes {difference.box_px:.2g} px, scores {difference.score:.2g}")


def calibration_frames(path: Path, config: "DetectorConfig", height: int, width: int) -> "np.ndarray":
    """The first windows of a recording, as frames for a graph of this size."""
    from itertools import islice

    import numpy as np

    from saccade.events.open import open_events
    from saccade.representation.frames import frames
    from saccade.stream.fit import canvas_for

    padded_height, padded_width = config.backbone.padded(height, width)
    with open_events(path) as reader:
        canvas = canvas_for(config, reader.width, reader.height, fixed=(padded_width, padded_height))
        rate_hz, mode = 1e6 / config.window_us, config.histogram
        found = frames(reader, rate_hz, window_us=config.window_us, bins=config.bins, canvas=canvas, mode=mode)
        taken = [frame.data for frame in islice(found, CALIBRATION_FRAMES)]
    if not taken:
        raise InputError(f"{path}: holds no whole window of {config.window_us / 1000:g} ms; give a longer recording for --calibrate")
    return np.stack(taken)
