"""Predictions and boxes by hand, as a head would give them."""

import numpy as np
import torch

from saccade.detection.boxes import Target
from saccade.model.values import Predictions

SMALL = ((4, 6), (2, 3), (1, 2))  # 32 x 48 pixels
GEN1 = ((32, 40), (16, 20), (8, 10))


def predictions(frames=2, classes=3, grids=SMALL, seed=0, dtype=torch.float32, sharp=1.0):
    generator = torch.Generator().manual_seed(seed)
    cells = sum(rows * columns for rows, columns in grids)
    boxes, objectness, ids = (
        torch.randn(shape, generator=generator, dtype=torch.float64).mul(sharp).to(dtype)
        for shape in ((frames, cells, 4), (frames, cells), (frames, cells, classes))
    )
    return Predictions(boxes, objectness, ids, grids)


def silent(frames=1, classes=2, grids=SMALL):
    """Every cell says: nothing here."""
    cells = sum(rows * columns for rows, columns in grids)
    return Predictions(
        torch.zeros(frames, cells, 4), torch.full((frames, cells), -20.0), torch.full((frames, cells, classes), -20.0), grids
    )


def boxes(count, generator, width=48.0, height=32.0, whole=False):
    """Corners inside the width and height, WHOLE = on whole pixels, where ties and duplicates are common."""
    corner = torch.rand(count, 2, generator=generator, dtype=torch.float64) * torch.tensor([width * 0.8, height * 0.8])
    side = 1 + torch.rand(count, 2, generator=generator, dtype=torch.float64) * torch.tensor([width * 0.5, height * 0.5])
    result = torch.cat([corner, corner + side], 1)
    return (result / 8).ceil() * 8 if whole else result


def targets(counts, classes=3, seed=0, whole=False, width=48.0, height=32.0):
    generator = torch.Generator().manual_seed(seed)
    result = []
    for count in counts:
        found = boxes(count, generator, width, height, whole)
        found[:, 2:] = torch.maximum(found[:, 2:], found[:, :2] + 1)
        result.append(Target(found, torch.randint(0, classes, (count,), generator=generator)))
    return result


def iou(a, b):
    """Of two boxes, in plain numbers."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0.0) * max(height, 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return common / union if union > 0 else 0.0


def cell_list(grids):
    """(column, row, stride) of every cell, one by one."""
    return [
        (column, row, stride)
        for stride, (rows, columns) in zip((8, 16, 32), grids, strict=True)
        for row in range(rows)
        for column in range(columns)
    ]


def corners(raw, cell):
    """The box that a cell says, in plain numbers."""
    (x, y, log_width, log_height), (column, row, stride) = raw, cell
    width, height = np.exp(log_width) * stride, np.exp(log_height) * stride
    return [
        (x + column) * stride - width / 2,
        (y + row) * stride - height / 2,
        (x + column) * stride + width / 2,
        (y + row) * stride + height / 2,
    ]
