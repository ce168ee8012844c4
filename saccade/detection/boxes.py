"""RAW OUTPUTS, LABELS -> BOXES as tensors, for loss and decoding: corners, overlaps, and the grid of cells. In numpy: `matching`."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from saccade.detection.matching import SMALLEST_AREA
from saccade.model.values import STRIDES, Predictions
from saccade.representation.canvas import Canvas
from saccade.types import InputError, Labels

BoxTensor = Float[Tensor, "*rows 4"]  # left, top, right, bottom in pixels
Grids = tuple[tuple[int, int], ...]

LARGEST_LOG = 14.0  # e^14 strides are wider than any canvas, and their area is still far below float32's maximum


class Target(NamedTuple):
    """The true boxes of one frame."""

    boxes: Float[Tensor, "n 4"]  # left, top, right, bottom in pixels of the canvas
    classes: Int64[Tensor, "n"]


class Cells(NamedTuple):
    """Where the head's cells are, in the order of Predictions."""

    x: Float[Tensor, "cells"]  # left and top corner in strides: column and row
    y: Float[Tensor, "cells"]
    stride: Float[Tensor, "cells"]  # pixels


def from_xywh(boxes: BoxTensor) -> BoxTensor:
    """Centre x, y, width, height -> corners."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], -1)


def to_xywh(boxes: BoxTensor) -> BoxTensor:
    """Corners -> centre x, y, width, height."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(low + high) / 2, high - low], -1)


def overlap(a: Float[Tensor, "*#rows 4"], b: Float[Tensor, "*#rows 4"]) -> Float[Tensor, "..."]:
    """Intersection over union of boxes, element by element (axes broadcast)."""
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp_min(0)
    common = sides[..., 0] * sides[..., 1]
    return common / (area(a) + area(b) - common).clamp_min(SMALLEST_AREA)


def area(boxes: BoxTensor) -> Float[Tensor, "*rows"]:
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp_min(0)
    return sides[..., 0] * sides[..., 1]


def precise(values: Tensor) -> Tensor:
    """At least float32: half precision can't tell neighbouring pixels apart above 256."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def from_raw(boxes: BoxTensor, cells: Cells) -> BoxTensor:
    """Raw outputs of the head -> centre x, y, width, height in pixels, as published: (xy + corner) stride, e^wh stride."""
    boxes, stride = precise(boxes), cells.stride[:, None]
    corner = torch.stack([cells.x, cells.y], -1)
    return torch.cat([(boxes[..., :2] + corner) * stride, boxes[..., 2:].clamp_max(LARGEST_LOG).exp() * stride], -1)


def cell_grid(grids: Grids, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Cells:
    """The cells of grids of (rows, columns), one per stride; cached, so that a stream doesn't build them for every frame."""
    if torch.compiler.is_compiling():
        return _build_grid(grids, torch.device(device), dtype)  # tensors built while tracing belong to the graph and must not be cached
    return _kept_grid(tuple((int(rows), int(columns)) for rows, columns in grids), torch.device(device), dtype)


@lru_cache(maxsize=32)
def _kept_grid(grids: Grids, device: torch.device, dtype: torch.dtype) -> Cells:
    with torch.inference_mode(False):  # tensors made in inference mode can't be used in training afterwards
        return _build_grid(grids, device, dtype)


def _build_grid(grids: Grids, device: torch.device, dtype: torch.dtype) -> Cells:
    if len(grids) != len(STRIDES):
        raise InputError(f"cells: {len(grids)} grids {grids}, but the head has one for each of the strides {STRIDES}")
    parts = []
    for stride, (rows, columns) in zip(STRIDES, grids, strict=True):
        y, x = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
        parts.append(torch.stack([x.flatten(), y.flatten(), torch.full_like(x, stride).flatten()]))
    x, y, strides = torch.cat(parts, 1).to(dtype)
    return Cells(x, y, strides)


def cells_of(predictions: Predictions) -> Cells:
    """The cells of these predictions, in the precision of their decoded boxes."""
    count = sum(rows * columns for rows, columns in predictions.grids)
    if predictions.boxes.shape[1] != count:
        raise InputError(f"predictions: {predictions.boxes.shape[1]} cells, but grids {predictions.grids} have {count}")
    return cell_grid(predictions.grids, predictions.boxes.device, precise(predictions.boxes[:0]).dtype)


def from_labels(labels: Labels, canvas: Canvas | None = None) -> Target:
    """The labels of one frame, on the canvas."""
    boxes = labels.boxes.astype(np.float64)
    if canvas is not None:
        boxes = canvas.to_canvas(boxes)
    target = Target(torch.from_numpy(boxes.astype(np.float32)), torch.from_numpy(labels.classes))
    check_target(target)
    return target


def check_target(target: Target, classes: int | None = None) -> None:
    """Refuse boxes without area, which overlap nothing, and classes that the head doesn't have."""
    boxes, ids = target
    wrong = ~((boxes[:, 2:] > boxes[:, :2]).all(-1) & boxes.isfinite().all(-1))
    if wrong.any():
        row = int(wrong.nonzero()[0, 0])
        raise InputError(
            f"labels: box {row} is {boxes[row].tolist()}; expected finite left < right, top < bottom in pixels; drop such labels"
        )
    if classes is not None and len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < classes:
        raise InputError(f"labels: classes from {int(ids.min())} to {int(ids.max())}, but the head has {classes}: 0 to {classes - 1}")
