"""Spatial mixing by large depthwise convolutions (ConvNeXt, Liu et al. 2022): the paper's S5-ConvNeXt."""

import torch
from torch import Tensor, nn

from saccade.model.attention import FeedForward, Image, Partition


class ConvNeXt(nn.Module):
    """Two blocks in the place of the two attentions; each a 7x7 depthwise convolution and a feed-forward under one residual."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ConvNeXtBlock(dim, layer_scale) for _ in range(2))

    def forward(self, x: Image, partition: Partition) -> Image:
        for block in self.blocks:
            x = block(x)
        return x


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        spread = self.depthwise(x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)
        return x + self.feed.change(spread)
