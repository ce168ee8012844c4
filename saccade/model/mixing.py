"""Spatial mixing within a frame, one per stage: attention over windows and a grid, ConvNeXt blocks, or S5 scans along rows and columns."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from saccade.config import Mixing
from saccade.model.linear import Linear, linear
from saccade.model.recomputed import gelu_linear, norm_linear
from saccade.model.temporal.s5 import S5

FeatureMap = Float[Tensor, "frames height width channels"]
Partition = tuple[int, int]  # rows and columns of tokens that attend to each other

FEW_TOKENS = 32
FEW_HALF_TOKENS = 128  # in half precision, whose fused backward takes twice the time of plain products


class WindowAndGrid(nn.Module):
    """Attention first within windows, then over a grid that spans the image (MaxViT, as in RVT).

    The first attention has no norm of its own: that of the downsampling before it serves.
    """

    def __init__(self, dim: int, head_dim: int, layer_scale: float) -> None:
        super().__init__()
        self.window = AttentionBlock(dim, head_dim, layer_scale, norm_first=False)
        self.grid = AttentionBlock(dim, head_dim, layer_scale, norm_first=True)

    def forward(self, x: FeatureMap, partition: Partition) -> FeatureMap:
        frames, height, width, channels = x.shape
        rows, columns = partition
        groups = (frames, height // rows, width // columns)
        windows = x.view(frames, groups[1], rows, groups[2], columns, channels).transpose(2, 3).reshape(-1, rows * columns, channels)
        windows = self.window(windows).view(*groups, rows, columns, channels)
        # windows are blocks of p x q neighbours; a grid cell takes p x q pixels spread over the image, every (h/p)th row and (w/q)th column
        image = windows.transpose(2, 3).reshape(frames, rows, groups[1], columns, groups[2], channels)
        cells = image.permute(0, 2, 4, 1, 3, 5).reshape(-1, rows * columns, channels)
        cells = self.grid(cells).view(*groups, rows, columns, channels)
        return cells.permute(0, 3, 1, 4, 2, 5).reshape(frames, height, width, channels)


class AttentionBlock(nn.Module):
    """x + scaled attention, then x + scaled feed-forward, over groups of tokens."""

    def __init__(self, dim: int, head_dim: int, layer_scale: float, norm_first: bool) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.norm = nn.LayerNorm(dim) if norm_first else nn.Identity()
        self.qkv = Linear(dim, 3 * dim)
        self.project = Linear(dim, dim)
        self.scale = LayerScale(dim, layer_scale)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Float[Tensor, "groups tokens channels"]) -> Float[Tensor, "groups tokens channels"]:
        mixed = norm_linear(x, self.norm, self.qkv.weight, self.qkv.bias) if isinstance(self.norm, nn.LayerNorm) else self.qkv(x)
        heads = mixed.unflatten(-1, (-1, 3 * self.head_dim)).transpose(1, 2)  # of every head [q | k | v], as published
        attended = _attention(*heads.chunk(3, -1))
        x = x + linear(attended.transpose(1, 2).flatten(2), *self.scale.folded(self.project))
        return self.feed(x)


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """torch's fused attention is made for long sequences: on a CPU, two plain products take two thirds of its time for few tokens."""
    few = FEW_TOKENS if query.dtype == torch.float32 else FEW_HALF_TOKENS
    if query.shape[-2] > few or query.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return F.scaled_dot_product_attention(query, key, value)
    return torch.softmax(query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2), -1) @ value


class FeedForward(nn.Module):
    """x + scaled two-layer perceptron of the normalised x."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.widen = Linear(dim, 4 * dim)
        self.narrow = Linear(4 * dim, dim)
        self.scale = LayerScale(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.change(x)

    def change(self, x: Tensor) -> Tensor:
        wide = norm_linear(x, self.norm, self.widen.weight, self.widen.bias)
        return gelu_linear(wide, *self.scale.folded(self.narrow))


class LayerScale(nn.Module):
    """A learned weight per channel; near zero at first, it makes the block the identity."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), start))

    def folded(self, layer: nn.Linear) -> tuple[Tensor, Tensor]:
        """Weight and bias of a linear layer with its outputs scaled: one pass over the features less, and nothing of them to keep."""
        return layer.weight * self.weight[:, None], layer.bias * self.weight


class ConvNeXt(nn.Module):
    """Large depthwise convolutions instead of attention (ConvNeXt, Liu et al. 2022): the paper's S5-ConvNeXt, two blocks."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ConvNeXtBlock(dim, layer_scale) for _ in range(2))

    def forward(self, x: FeatureMap, partition: Partition) -> FeatureMap:
        for block in self.blocks:
            x = block(x)
        return x


class ConvNeXtBlock(nn.Module):
    """x + feed-forward of a 7x7 depthwise convolution of x."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        spread = self.depthwise(x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)
        return x + self.feed.change(spread)


class RowsAndColumns(nn.Module):
    """S5 scans along rows, then along columns, each in both directions, instead of attention: the paper's S5-SSM2D."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.rows = ScanBlock(dim, layer_scale)
        self.columns = ScanBlock(dim, layer_scale)

    def forward(self, x: FeatureMap, partition: Partition) -> FeatureMap:
        x = self.rows(x)
        return self.columns(x.transpose(1, 2)).transpose(1, 2).contiguous()


class ScanBlock(nn.Module):
    """x + scaled scan along the second spatial axis, then a feed-forward. A pixel is a step; scans start from a zero state at both ends."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.scan = S5(dim, spectrum="half", timescales="clip", bidirectional=True)
        self.project = Linear(dim, dim)
        self.scale = LayerScale(dim, layer_scale)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        along = self.norm(x).permute(2, 0, 1, 3).unsqueeze(3)  # (width, frames, height, 1, channels): width is this scan's time
        steps = torch.ones(along.shape[:2], dtype=torch.float32, device=x.device)
        y, _ = self.scan(along, self.scan.initial_state(along), steps)
        x = x + gelu_linear(y.squeeze(3).permute(1, 2, 0, 3), *self.scale.folded(self.project))
        return self.feed(x)


MIXINGS: dict[Mixing, Callable[[int, int, float], nn.Module]] = {  # of (channels, channels of an attention head, initial layer scale)
    "attention": WindowAndGrid,
    "convnext": lambda dim, head_dim, layer_scale: ConvNeXt(dim, layer_scale),
    "ssm2d": lambda dim, head_dim, layer_scale: RowsAndColumns(dim, layer_scale),
}
