"""Pyramid -> predictions: YOLOX's neck (PAFPN), in which the scales see each other, and its decoupled head."""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.values import Predictions, Pyramid

PRIOR = 0.01  # probability of an object in a cell that the head begins with


class Neck(nn.Module):
    def __init__(self, dims: tuple[int, int, int], bottlenecks: int) -> None:
        super().__init__()
        fine, middle, coarse = dims
        self.reduce_coarse = ConvNormAct(coarse, middle, 1)
        self.merge_middle = CSP(2 * middle, middle, bottlenecks)
        self.reduce_middle = ConvNormAct(middle, fine, 1)
        self.merge_fine = CSP(2 * fine, fine, bottlenecks)
        self.down_fine = ConvNormAct(fine, fine, 3, stride=2)
        self.out_middle = CSP(2 * fine, middle, bottlenecks)
        self.down_middle = ConvNormAct(middle, middle, 3, stride=2)
        self.out_coarse = CSP(2 * middle, coarse, bottlenecks)

    def forward(self, pyramid: Pyramid) -> Pyramid:
        fine, middle, coarse = pyramid
        from_coarse = self.reduce_coarse(coarse)
        merged = self.merge_middle(torch.cat([_double(from_coarse), middle], 1))
        from_middle = self.reduce_middle(merged)
        fine = self.merge_fine(torch.cat([_double(from_middle), fine], 1))
        middle = self.out_middle(torch.cat([self.down_fine(fine), from_middle], 1))
        coarse = self.out_coarse(torch.cat([self.down_middle(middle), from_coarse], 1))
        return fine, middle, coarse


class ConvNormAct(nn.Module):
    def __init__(self, dim_in: int, dim_out: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim_in, dim_out, size, stride, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(dim_out)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.conv(x)))


class CSP(nn.Module):
    """Cross-stage partial layer: half of the channels pass the bottlenecks, the other half goes around them."""

    def __init__(self, dim_in: int, dim_out: int, bottlenecks: int) -> None:
        super().__init__()
        half = dim_out // 2
        self.through = ConvNormAct(dim_in, half, 1)
        self.around = ConvNormAct(dim_in, half, 1)
        self.bottlenecks = nn.Sequential(
            *(nn.Sequential(ConvNormAct(half, half, 1), ConvNormAct(half, half, 3)) for _ in range(bottlenecks)),
        )
        self.join = ConvNormAct(2 * half, dim_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.bottlenecks(self.through(x)), self.around(x)], 1))


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest-exact")


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
