"""PREDICTIONS -> DETECTIONS: what the head says of every cell, as boxes of the sensor."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.detection.boxes import cells_of, from_raw, from_xywh, precise
from saccade.detection.nms import nms
from saccade.model.predictions import STRIDES, Predictions
from saccade.representation.canvas import Canvas
from saccade.types import Detections, InputError

Ranking = Literal["product", "class"]


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
    threshold: float = 0.1,
    nms_iou: float = 0.45,
    maximum: int = 300,
    ranking: Ranking = "product",
) -> list[Detections]:
    """One per frame, in pixels of the canvas's sensor (None: the network's input), clipped to it; at most MAXIMUM each.

    THRESHOLD and NMS act on objectness x probability of the best class. That is also the score; with ranking "class", the published
    protocol, the score is the probability of the class alone.
    """
    _check(predictions, times_us, threshold, nms_iou, maximum, ranking)
    rows = dense(predictions).detach().cpu()
    if rows.isnan().any():
        raise InputError("decode: the predictions contain NaN; look for NaN in the weights or in the memory's state, and reset it")
    likelihood, classes = rows[..., 5:].max(-1)
    product = rows[..., 4] * likelihood
    boxes = from_xywh(rows[..., :4])
    result = []
    for frame, time_us in enumerate(times_us):
        chosen = (product[frame] >= threshold).nonzero()[:, 0]
        kept = chosen[nms(boxes[frame, chosen], product[frame, chosen], classes[frame, chosen], nms_iou, maximum)]
        scores = (product if ranking == "product" else likelihood)[frame, kept]
        order = scores.sort(descending=True, stable=True).indices
        kept, scores = kept[order], scores[order]
        corners = _on_sensor(boxes[frame, kept].double().numpy(), predictions, canvas)
        found = Detections(corners, scores.float().numpy(), classes[frame, kept].numpy(), int(time_us))
        result.append(found[np.all(corners[:, 2:] > corners[:, :2], axis=1)])
    return result


def _on_sensor(boxes: np.ndarray, predictions: Predictions, canvas: Canvas | None) -> np.ndarray:
    rows, columns = predictions.grids[0]
    width, height = columns * STRIDES[0], rows * STRIDES[0]
    if canvas is not None:
        boxes, width, height = canvas.to_sensor(boxes), canvas.sensor_width, canvas.sensor_height
    return np.clip(boxes, 0, [width, height, width, height]).astype(np.float32)


def _check(
    predictions: Predictions, times_us: Sequence[int] | np.ndarray, threshold: float, nms_iou: float, maximum: int, ranking: str
) -> None:
    frames, _, classes = predictions.classes.shape
    if len(times_us) != frames:
        raise InputError(f"decode: {len(times_us)} times_us for {frames} frames; give the end of each frame's window")
    if not classes:
        raise InputError("decode: the predictions have no classes")
    if not (0 <= threshold <= 1 and 0 <= nms_iou <= 1):
        raise InputError(f"decode: threshold={threshold} and nms_iou={nms_iou} must be from 0 to 1")
    if maximum < 1:
        raise InputError(f"decode: maximum={maximum} must be at least 1")
    if ranking not in ("product", "class"):
        raise InputError(f"decode: unknown ranking={ranking!r}; expected product or class")
