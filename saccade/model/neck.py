"""Pyramid -> pyramid: YOLOX's PAFPN lets the scales see each other, from coarse to fine and back."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.predictions import Pyramid


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
