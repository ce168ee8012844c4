"""BOXES -> FEWER BOXES: of boxes of one class that overlap, the best stays."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from saccade.detection.boxes import area
from saccade.detection.boxes import iou as overlaps
from saccade.machine import compiled


def nms(
    boxes: Float[Tensor, "n 4"],
    scores: Float[Tensor, "n"],
    classes: Int64[Tensor, "n"],
    iou: float = 0.45,
    maximum: int | None = None,
    method: Literal["compiled", "torch"] | None = None,
) -> Int64[Tensor, "kept"]:
    """Rows that stay, best first; a box goes if one of its class with a better score overlaps it by more than IOU.

    Equal scores rank by row, so that the same boxes always give the same answer. Method: None = compiled on CPU, torch elsewhere.
    """
    order = torch.sort(scores, descending=True, stable=True).indices
    corners, kinds = boxes[order].double(), classes[order]  # float64, so that both methods decide alike at the threshold
    if (method or ("compiled" if boxes.device.type == "cpu" else "torch")) == "compiled":
        limit = len(order) if maximum is None else maximum
        kept = torch.from_numpy(_keep(corners.cpu().numpy(), kinds.cpu().numpy(), iou, limit)).to(order.device)
    else:
        kept = _keep_torch(corners, kinds, iou).nonzero()[:, 0][:maximum]
    return order[kept]


@compiled
def _keep(boxes: np.ndarray, classes: np.ndarray, threshold: float, maximum: int) -> np.ndarray:
    count = len(boxes)
    gone = np.zeros(count, np.bool_)
    areas = np.maximum(boxes[:, 2] - boxes[:, 0], 0) * np.maximum(boxes[:, 3] - boxes[:, 1], 0)
    kept = np.empty(min(count, maximum), np.int64)
    found = 0
    for i in range(count):
        if found == maximum:
            break
        if gone[i]:
            continue
        kept[found] = i
        found += 1
        left, top, right, bottom = boxes[i]
        for j in range(i + 1, count):
            width = min(right, boxes[j, 2]) - max(left, boxes[j, 0])
            height = min(bottom, boxes[j, 3]) - max(top, boxes[j, 1])
            if width > 0 and height > 0 and classes[i] == classes[j]:
                common = width * height
                if common / (areas[i] + areas[j] - common) > threshold:
                    gone[j] = True
    return kept[:found]


def _keep_torch(boxes: Tensor, classes: Tensor, threshold: float) -> Tensor:
    """A box stays if none that stays and ranks before it overlaps it: repeated until nothing changes, which the first such answer is.

    After k rounds at least the first k boxes are decided, and mostly all of them after a few: chains of overlaps are short.
    """
    has_area = area(boxes) > 0
    hides = (overlaps(boxes, boxes) > threshold) & (classes[:, None] == classes) & has_area[:, None] & has_area
    hides = hides.triu(1)
    stays = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    while True:
        after = ~(hides & stays[:, None]).any(0)
        if torch.equal(after, stays):
            return stays
        stays = after
