"""PREDICTIONS -> DETECTIONS: what the head says of every cell, as boxes of the sensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.detection.boxes import cells_of, from_raw, from_xywh, precise
from saccade.detection.nms import nms
from saccade.model.predictions import STRIDES, Predictions
from saccade.representation.canvas import Canvas, whole_sensor
from saccade.types import Detections, InputError

Ranking = Literal["product", "class"]
Rows = Float[np.ndarray, "frames cells columns"]  # of `dense`


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How predictions become boxes; see `decode`."""

    threshold: float = 0.1
    nms_iou: float = 0.45
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
    threshold: float = 0.1,
    nms_iou: float = 0.45,
    maximum: int = 300,
    ranking: Ranking = "product",
) -> list[Detections]:
    """One per frame, in pixels of the canvas's sensor (None: the network's input), clipped to it; at most MAXIMUM each.

    THRESHOLD and NMS act on objectness x probability of the best class. That is also the score; with ranking "class", the published
    protocol, the score is the probability of the class alone.
    """
    if canvas is None:
        rows, columns = predictions.grids[0]
        canvas = whole_sensor(columns * STRIDES[0], rows * STRIDES[0])
    cells = dense(predictions).detach().cpu().numpy()
    return decode_rows(cells, times_us, canvas, threshold=threshold, nms_iou=nms_iou, maximum=maximum, ranking=ranking)


def decode_rows(
    rows: Rows,
    times_us: Sequence[int] | np.ndarray,
    canvas: Canvas,
    *,
    threshold: float = 0.1,
    nms_iou: float = 0.45,
    maximum: int = 300,
    ranking: Ranking = "product",
) -> list[Detections]:
    """`decode` of what `dense` gives, whichever runtime computed it."""
    _check(rows, times_us, threshold, nms_iou, maximum, ranking)
    if np.isnan(rows).any():
        raise InputError("decode: the predictions contain NaN; look for NaN in the weights or in the memory's state, and reset it")
    sides = [canvas.sensor_width, canvas.sensor_height] * 2
    result = []
    for frame, time_us in zip(rows, times_us, strict=True):
        possible = frame[frame[:, 4] >= threshold]  # a product is at most its objectness: most cells, and most silent frames, end here
        if not len(possible):
            result.append(Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), int(time_us)))
            continue
        cells = torch.from_numpy(possible)
        likelihood, classes = cells[:, 5:].max(-1)
        product, boxes = cells[:, 4] * likelihood, from_xywh(cells[:, :4])
        chosen = (product >= threshold).nonzero()[:, 0]
        kept = chosen[nms(boxes[chosen], product[chosen], classes[chosen], nms_iou, maximum)]
        scores = (product if ranking == "product" else likelihood)[kept]
        order = scores.sort(descending=True, stable=True).indices
        kept, scores = kept[order], scores[order]
        corners = np.clip(canvas.to_sensor(boxes[kept].double().numpy()), 0, sides).astype(np.float32)
        found = Detections(corners, scores.float().numpy(), classes[kept].numpy(), int(time_us))
        result.append(found[np.all(corners[:, 2:] > corners[:, :2], axis=1)])
    return result


def _check(rows: np.ndarray, times_us: Sequence[int] | np.ndarray, threshold: float, nms_iou: float, maximum: int, ranking: str) -> None:
    if rows.ndim != 3 or rows.shape[-1] < 5:
        raise InputError(f"decode: rows must be (frames, cells, 5 + classes) as `dense` gives them, got {rows.shape}")
    if len(times_us) != len(rows):
        raise InputError(f"decode: {len(times_us)} times_us for {len(rows)} frames; give the end of each frame's window")
    if rows.shape[-1] == 5:
        raise InputError("decode: the predictions have no classes")
    if not (0 <= threshold <= 1 and 0 <= nms_iou <= 1):
        raise InputError(f"decode: threshold={threshold} and nms_iou={nms_iou} must be from 0 to 1")
    if maximum < 1:
        raise InputError(f"decode: maximum={maximum} must be at least 1")
    if ranking not in ("product", "class"):
        raise InputError(f"decode: unknown ranking={ranking!r}; expected product or class")
