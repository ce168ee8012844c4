"""PREDICTIONS -> DETECTIONS: boxes of all cells, threshold, NMS, pixels of the sensor. Torch up to `dense`, then numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.config import SCORE
from saccade.detection.boxes import cells_of, from_raw, precise
from saccade.detection.matching import keep_best
from saccade.machine import compiled
from saccade.model.values import STRIDES, Predictions
from saccade.representation.canvas import Canvas, whole_sensor
from saccade.types import Detections, InputError

Ranking = Literal["product", "class"]
ACROSS = 0.7  # what overlaps by more is one object, whatever its class: shown once, as what it most likely is
DenseBatch = Float[np.ndarray, "frames cells columns"]  # of `dense`


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How predictions become boxes; see `decode`."""

    threshold: float | None = None  # a stream takes that of its weights, else it is `saccade.config.SCORE`
    nms_iou: float = 0.45
    across_iou: float = ACROSS
    maximum: int = 300
    ranking: Ranking = "product"


def dense(predictions: Predictions) -> Float[Tensor, "frames cells columns"]:
    """Centre x, y, width, height in canvas pixels, objectness, probabilities of the classes; for every cell in the published order."""
    boxes = from_raw(predictions.boxes, cells_of(predictions))
    objectness = precise(predictions.objectness).sigmoid()
    return torch.cat([boxes, objectness[..., None], precise(predictions.classes).sigmoid()], -1)


def decode(
    predictions: Predictions,
    times_us: Sequence[int] | np.ndarray,
    canvas: Canvas | None = None,
    *,
    threshold: float | None = None,
    nms_iou: float = 0.45,
    across_iou: float = ACROSS,
    maximum: int = 300,
    ranking: Ranking = "product",
) -> list[Detections]:
    """One per frame, in pixels of the canvas's sensor (None: the network's input), clipped to it; at most MAXIMUM each.

    THRESHOLD and NMS act on objectness x probability of the best class. That is also the score; with ranking "class", the published
    protocol, the score is the probability of the class alone. A box goes if a better one of its class overlaps it by more than NMS_IOU,
    or one of any class by more than ACROSS_IOU (1: each class for itself, as protocols score).
    """
    if canvas is None:
        rows, columns = predictions.grids[0]
        canvas = whole_sensor(columns * STRIDES[0], rows * STRIDES[0])
    cells = dense(predictions).detach().cpu().numpy()
    overlaps = {"nms_iou": nms_iou, "across_iou": across_iou}
    return decode_rows(cells, times_us, canvas, threshold=threshold, maximum=maximum, ranking=ranking, **overlaps)


def decode_rows(
    rows: DenseBatch,
    times_us: Sequence[int] | np.ndarray,
    canvas: Canvas,
    *,
    threshold: float | None = None,
    nms_iou: float = 0.45,
    across_iou: float = ACROSS,
    maximum: int = 300,
    ranking: Ranking = "product",
) -> list[Detections]:
    """`decode` of what `dense` gives, whichever runtime computed it; numpy only."""
    threshold = SCORE if threshold is None else threshold
    _check(rows, times_us, threshold, (nms_iou, across_iou), maximum, ranking)
    rows = rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)
    limits = rows.dtype.type(threshold), nms_iou, across_iou, maximum, ranking == "class"
    place = canvas.scale, float(canvas.sensor_width), float(canvas.sensor_height)
    result = []
    for cells, time_us in zip(rows, times_us, strict=True):
        is_number, boxes, scores, classes = _boxes(cells, *limits, *place)
        if not is_number:
            raise InputError("decode: the predictions contain NaN; look for NaN in the weights or in the memory's state, and reset it")
        result.append(Detections(boxes, scores, classes, int(time_us)))
    return result


@compiled
def _boxes(
    cells: np.ndarray, threshold: float, nms_iou: float, across_iou: float, maximum: int, by_class: bool, scale: float, width: float,
    height: float,
) -> tuple[bool, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Of one frame, in one call: whether no cell is NaN; boxes on the sensor, scores and classes, best first."""
    corners, products, likelihoods, classes = _likely_cells(cells, threshold)
    kept = keep_best(corners, products, classes, nms_iou, across_iou, maximum)
    scores = likelihoods[kept] if by_class else products[kept]
    if by_class:
        order = np.argsort(-scores, kind="mergesort")
        kept, scores = kept[order], scores[order]
    boxes, found = np.empty((len(kept), 4), np.float32), 0
    shown, names = np.empty(len(kept), np.float32), np.empty(len(kept), np.int64)
    for i in range(len(kept)):
        for side in range(4):
            at = np.float64(corners[kept[i], side]) / scale
            boxes[found, side] = np.float32(min(max(at, 0.0), width if side % 2 == 0 else height))
        if boxes[found, 2] > boxes[found, 0] and boxes[found, 3] > boxes[found, 1]:
            shown[found], names[found] = scores[i], classes[kept[i]]
            found += 1
    is_number = True
    for cell in cells.flat:
        is_number = is_number and not np.isnan(cell)
    return is_number, boxes[:found], shown[:found], names[:found]


@compiled
def _likely_cells(cells: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the cells whose objectness x probability of the best class reaches THRESHOLD: corners, that product, probability and class."""
    count, columns = cells.shape
    corners, classes = np.empty((count, 4), cells.dtype), np.empty(count, np.int64)
    products, likelihoods = np.empty(count, cells.dtype), np.empty(count, cells.dtype)
    half, found = np.float32(0.5), 0  # a Python number would turn float32 boxes into float64
    for i in range(count):
        if not cells[i, 4] >= threshold:  # a product is at most its objectness: most cells end here
            continue
        best = 5
        for column in range(6, columns):
            if cells[i, column] > cells[i, best]:
                best = column
        product = cells[i, 4] * cells[i, best]
        if not product >= threshold:
            continue
        half_width, half_height = cells[i, 2] * half, cells[i, 3] * half
        corners[found, 0], corners[found, 1] = cells[i, 0] - half_width, cells[i, 1] - half_height
        corners[found, 2], corners[found, 3] = cells[i, 0] + half_width, cells[i, 1] + half_height
        products[found], likelihoods[found], classes[found] = product, cells[i, best], best - 5
        found += 1
    return corners[:found], products[:found], likelihoods[:found], classes[:found]


def _check(
    rows: np.ndarray, times_us: Sequence[int] | np.ndarray, threshold: float, overlaps: tuple[float, float], maximum: int, ranking: str
) -> None:
    if rows.ndim != 3 or rows.shape[-1] < 5:
        raise InputError(f"decode: rows must be (frames, cells, 5 + classes) as `dense` gives them, got {rows.shape}")
    if len(times_us) != len(rows):
        raise InputError(f"decode: {len(times_us)} times_us for {len(rows)} frames; give the end of each frame's window")
    if rows.shape[-1] == 5:
        raise InputError("decode: the predictions have no classes")
    if not all(0 <= value <= 1 for value in (threshold, *overlaps)):
        raise InputError(f"decode: threshold={threshold}, nms_iou={overlaps[0]} and across_iou={overlaps[1]} must be from 0 to 1")
    if maximum < 1:
        raise InputError(f"decode: maximum={maximum} must be at least 1")
    if ranking not in ("product", "class"):
        raise InputError(f"decode: unknown ranking={ranking!r}; expected product or class")
