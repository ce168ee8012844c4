"""BOXES AND BOXES, in numpy: how much they overlap (IoU), which of them stay (NMS), which belong together (one-to-one matching)."""

import numpy as np
from jaxtyping import Float, Float64, Int64

from saccade.machine import compiled
from saccade.types import InputError

SMALLEST_AREA = 1e-12  # two boxes without area overlap by 0, not by 0 / 0


def iou(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "m 4"]) -> Float64[np.ndarray, "n m"]:
    """Intersection over union of every box of A with every box of B, all as left, top, right, bottom."""
    return iou_of(np.ascontiguousarray(a, np.float64), np.ascontiguousarray(b, np.float64))


def nms(
    boxes: Float[np.ndarray, "n 4"],
    scores: Float[np.ndarray, "n"],
    classes: Int64[np.ndarray, "n"],
    nms_iou: float = 0.45,
    maximum: int | None = None,
    across_iou: float = 1.0,
) -> Int64[np.ndarray, "kept"]:
    """Rows that stay, best first; a box goes if one with a better score overlaps it: one of its class by more than NMS_IOU, of
    another class by more than ACROSS_IOU.

    Equal scores rank by row, so that the same boxes always give the same answer. Written by hand: torchvision's is a large dependency for
    one loop, takes no classes, and leaves the order of equal scores open.
    """
    return keep_best(boxes, scores, classes, nms_iou, across_iou, len(boxes) if maximum is None else maximum)


def best_pairs(values: Float64[np.ndarray, "rows columns"]) -> Int64[np.ndarray, "rows"]:
    """The one-to-one choice with the largest sum: the column of each row, -1 for none. Pairs of value 0 or less are never made.

    Optimal, not greedy: where two objects pass each other, the best single pair may leave the other two with nothing. Which of several
    equal choices is made is open, except that one row or column alone takes the first of its equals.
    """
    chosen, is_finite, is_best = mutual_pairs(np.ascontiguousarray(values, np.float64))
    if not is_finite:
        raise InputError("best_pairs: values must be finite")
    if is_best:
        return chosen
    from scipy.optimize import linear_sum_assignment  # takes 0.4 s to import, and only trackers need it

    gains = np.maximum(values, 0)
    rows, columns = linear_sum_assignment(gains, maximize=True)
    chosen[:] = -1
    chosen[rows] = np.where(gains[rows, columns] > 0, columns, -1)
    return chosen


@compiled
def mutual_pairs(values: np.ndarray) -> tuple[np.ndarray, bool, bool]:
    """The pairs that are each other's best, whether all values are finite, and whether that is the largest sum: it is if no pair has
    alternatives on both sides, as in most frames.
    """
    rows, columns = values.shape
    chosen, best_row = np.full(rows, -1, np.int64), np.full(columns, -1, np.int64)
    in_row, in_column = np.zeros(rows, np.int64), np.zeros(columns, np.int64)
    for i in range(rows):
        for j in range(columns):
            if not np.isfinite(values[i, j]):
                return chosen, False, False
            if values[i, j] > 0:
                in_row[i] += 1
                in_column[j] += 1
                if chosen[i] < 0 or values[i, j] > values[i, chosen[i]]:
                    chosen[i] = j
                if best_row[j] < 0 or values[i, j] > values[best_row[j], j]:
                    best_row[j] = i
    for i in range(rows):
        for j in range(columns):
            if values[i, j] > 0 and in_row[i] > 1 and in_column[j] > 1:
                return chosen, True, False
    for i in range(rows):
        if chosen[i] >= 0 and best_row[chosen[i]] != i:
            chosen[i] = -1
    return chosen, True, True


@compiled
def iou_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`iou` for compiled callers."""
    result = np.empty((len(a), len(b)))
    areas = np.maximum(b[:, 2] - b[:, 0], 0) * np.maximum(b[:, 3] - b[:, 1], 0)
    for i in range(len(a)):
        left, top, right, bottom = a[i]
        own = max(right - left, 0.0) * max(bottom - top, 0.0)
        for j in range(len(b)):
            width = max(min(right, b[j, 2]) - max(left, b[j, 0]), 0.0)
            height = max(min(bottom, b[j, 3]) - max(top, b[j, 1]), 0.0)
            common = width * height
            result[i, j] = common / max(own + areas[j] - common, SMALLEST_AREA)
    return result


@compiled
def keep_best(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, nms_iou: float, across_iou: float, maximum: int) -> np.ndarray:
    """`nms` for compiled callers."""
    order = np.argsort(-scores, kind="mergesort")
    return order[_keep(boxes[order].astype(np.float64), classes[order], nms_iou, across_iou, maximum)]


@compiled
def _keep(boxes: np.ndarray, classes: np.ndarray, nms_iou: float, across_iou: float, maximum: int) -> np.ndarray:
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
            if width > 0 and height > 0:
                common = width * height
                limit = nms_iou if classes[i] == classes[j] else across_iou
                if common / (areas[i] + areas[j] - common) > limit:
                    gone[j] = True
    return kept[:found]
