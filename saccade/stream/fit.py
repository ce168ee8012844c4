"""ANY SENSOR -> a size that the network knows: padded, scaled, or in tiles; without another training."""

from math import sqrt
from typing import Literal

from saccade.config import DetectorConfig
from saccade.export.exported import ExportedRuntime
from saccade.export.runtime import Runtime
from saccade.representation.canvas import Canvas
from saccade.types import InputError

Fit = Literal["auto", "pad", "scale", "tile"]
Size = tuple[int, int]  # width, height

GEN1_SIZE: Size = (304, 240)
ONE_MPX_SIZE: Size = (640, 360)  # halved
MUCH_LARGER = 1.2  # objects that are larger than in training by more than this are found worse than coarser ones


def known_size(config: DetectorConfig) -> Size:
    """Of the frames that the network was trained on; published weights don't say: Gen1's, or the halved 1 Mpx."""
    if config.trained_size is not None:
        return config.trained_size
    return GEN1_SIZE if config.halved == "no" else ONE_MPX_SIZE


def fixed_size(runtime: Runtime) -> Size | None:
    """Of an exported graph, which takes frames of one size only."""
    return (runtime.signature.width, runtime.signature.height) if isinstance(runtime, ExportedRuntime) else None


def canvas_for(
    config: DetectorConfig, width: int, height: int, fit: Fit = "auto", known: Size | None = None, fixed: Size | None = None
) -> Canvas:
    """Where the sensor's pixels go.

    pad: each pixel stays one, or is halved if the network was trained so. scale: coordinates are scaled down into KNOWN, counts add up;
    if nobody asks for a KNOWN, to as many pixels as the network was trained on, in the sensor's shape. auto: pad, unless the sensor is
    more than 1.2 times as large as that; then scale. Never enlarged. FIXED: the canvas must have this size.
    """
    canvas = _chosen(config, width, height, fit, known or fixed or _shaped(known_size(config), width, height))
    if fixed is None:
        return canvas
    if not _fits(canvas, fixed):
        if fit == "pad":
            needed = f"{canvas.columns.max() + 1}x{canvas.rows.max() + 1}"
            raise InputError(
                f"a sensor of {width} x {height} doesn't fit a graph of {fixed[0]} x {fixed[1]}; export it with --size {needed}"
            )
        canvas = Canvas.scale_to(width, height, fixed, config.backbone.multiple)
    return Canvas(canvas.columns, canvas.rows, *fixed, canvas.scale)


def _shaped(size: Size, width: int, height: int) -> Size:
    """As many pixels in the shape of the sensor, at most the sensor's: a wide one isn't shown smaller than others because it is wide."""
    scale = min(sqrt(size[0] * size[1] / (width * height)), 1.0)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _chosen(config: DetectorConfig, width: int, height: int, fit: Fit, known: Size) -> Canvas:
    multiple = config.backbone.multiple
    whole = Canvas.pad(width, height, multiple)
    native = whole if config.halved == "no" else Canvas.half(width, height, config.halved, multiple)
    if fit == "pad":
        return native
    if fit == "scale":
        return Canvas.scale_to(width, height, known, multiple)
    if _near(width, height, known):
        return whole
    return native if _near(width * native.scale, height * native.scale, known) else Canvas.scale_to(width, height, known, multiple)


def _fits(canvas: Canvas, size: Size) -> bool:
    return int(canvas.columns.max()) < size[0] and int(canvas.rows.max()) < size[1]


def _near(width: float, height: float, known: Size) -> bool:
    return width <= MUCH_LARGER * known[0] and height <= MUCH_LARGER * known[1]
