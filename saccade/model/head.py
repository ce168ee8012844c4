"""Pyramid -> predictions: YOLOX's decoupled head, one branch for classes, one for boxes and objectness."""

from math import log

import torch
from torch import Tensor, nn

from saccade.model.neck import ConvNormAct
from saccade.model.predictions import Predictions, Pyramid

PRIOR = 0.01  # probability of an object in a cell that the head begins with


class Head(nn.Module):
    def __init__(self, dims: tuple[int, int, int], width: int, classes: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(ScaleHead(dim, width, classes) for dim in dims)

    def forward(self, pyramid: Pyramid) -> Predictions:
        outputs = [scale(level) for scale, level in zip(self.scales, pyramid, strict=True)]
        boxes, objectness, classes = (torch.cat([_cells(part) for part in parts], 1) for parts in zip(*outputs, strict=True))
        grids = tuple((level.shape[-2], level.shape[-1]) for level in pyramid)
        return Predictions(boxes, objectness.squeeze(-1), classes, grids)


class ScaleHead(nn.Module):
    """The head of one stride."""

    def __init__(self, dim: int, width: int, classes: int) -> None:
        super().__init__()
        self.stem = ConvNormAct(dim, width, 1)
        self.class_branch = nn.Sequential(ConvNormAct(width, width, 3), ConvNormAct(width, width, 3))
        self.box_branch = nn.Sequential(ConvNormAct(width, width, 3), ConvNormAct(width, width, 3))
        self.classes = nn.Conv2d(width, classes, 1)
        self.boxes = nn.Conv2d(width, 4, 1)
        self.objectness = nn.Conv2d(width, 1, 1)
        for layer in (self.classes, self.objectness):
            assert layer.bias is not None
            nn.init.constant_(layer.bias, -log((1 - PRIOR) / PRIOR))

    def forward(self, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.stem(level)
        box_features = self.box_branch(x)
        return self.boxes(box_features), self.objectness(box_features), self.classes(self.class_branch(x))


def _cells(x: Tensor) -> Tensor:
    """(frames, channels, rows, columns) -> (frames, cells, channels), row by row."""
    return x.flatten(2).transpose(1, 2)
