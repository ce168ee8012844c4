"""Spatial mixing without attention: S5 scans along rows, then along columns, each in both directions (the paper's S5-SSM2D)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.attention import FeedForward, Image, LayerScale, Partition
from saccade.model.temporal.s5 import S5


class RowsAndColumns(nn.Module):
    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.rows = ScanBlock(dim, layer_scale)
        self.columns = ScanBlock(dim, layer_scale)

    def forward(self, x: Image, partition: Partition) -> Image:
        x = self.rows(x)
        return self.columns(x.transpose(1, 2)).transpose(1, 2).contiguous()


class ScanBlock(nn.Module):
    """x + scaled scan along the second spatial axis, then a feed-forward. A pixel is a step; scans start from rest at both ends."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.scan = S5(dim, spectrum="half", timescales="clip", bidirectional=True)
        self.project = nn.Linear(dim, dim)
        self.scale = LayerScale(dim, layer_scale)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        along = self.norm(x).permute(2, 0, 1, 3).unsqueeze(3)  # (width, frames, height, 1, channels): width is this scan's time
        steps = torch.ones(along.shape[:2], dtype=torch.float32, device=x.device)
        y, _ = self.scan(along, self.scan.initial_state(along), steps)
        x = x + self.scale(self.project(F.gelu(y.squeeze(3).permute(1, 2, 0, 3))))
        return self.feed(x)
