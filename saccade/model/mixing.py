"""Spatial mixing within a frame, one per stage: attention, plain (RVT) or in groups (GET), convolutions (ConvNeXt, RED), or S5 scans."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from saccade.config import BackboneConfig, Mixing
from saccade.model.linear import Linear, linear
from saccade.model.recomputed import gelu_linear, norm_linear
from saccade.model.temporal.s5 import S5

FeatureMap = Float[Tensor, "frames height width channels"]
Partition = tuple[int, int]  # rows and columns of tokens that attend to each other
Tokens = Float[Tensor, "groups tokens channels"]

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
        return _windows_then_grid(x, partition, self.window, self.grid)


def _windows_then_grid(x: FeatureMap, partition: Partition, window: nn.Module, grid: nn.Module) -> FeatureMap:
    frames, height, width, channels = x.shape
    rows, columns = partition
    groups = (frames, height // rows, width // columns)
    windows = x.view(frames, groups[1], rows, groups[2], columns, channels).transpose(2, 3).reshape(-1, rows * columns, channels)
    windows = window(windows).view(*groups, rows, columns, channels)
    # windows are blocks of p x q neighbours; a grid cell takes p x q pixels spread over the image, every (h/p)th row and (w/q)th column
    image = windows.transpose(2, 3).reshape(frames, rows, groups[1], columns, groups[2], channels)
    cells = image.permute(0, 2, 4, 1, 3, 5).reshape(-1, rows * columns, channels)
    cells = grid(cells).view(*groups, rows, columns, channels)
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

    def forward(self, x: Tokens) -> Tokens:
        mixed = norm_linear(x, self.norm, self.qkv.weight, self.qkv.bias) if isinstance(self.norm, nn.LayerNorm) else self.qkv(x)
        heads = mixed.unflatten(-1, (-1, 3 * self.head_dim)).transpose(1, 2)  # of every head [q | k | v], as published
        attended = _attention(*heads.chunk(3, -1))
        x = x + linear(attended.transpose(1, 2).flatten(2), *self.scale.folded(self.project))
        return self.feed(x)


def _attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch's fused attention is made for long sequences: on a CPU, two plain products take two thirds of its time for few tokens."""
    few = FEW_TOKENS if query.dtype == torch.float32 else FEW_HALF_TOKENS
    if query.shape[-2] > few or query.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return F.scaled_dot_product_attention(query, key, value, bias)
    logits = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    return torch.softmax(logits if bias is None else logits + bias, -1) @ value


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
        return x + self.feed.change(_convolve(x, self.depthwise))


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


class SqueezeExcite(nn.Module):
    """RED's block: two 3x3 convolutions, a gate for each channel by its mean over the image, and a residual (Perot et al. 2020).

    RED's own are the block and its gate (squeeze and excitation, Hu et al. 2018). Ours: norms over the channels of a pixel instead of batch
    norms, so that a clip doesn't depend on those beside it; a gate of a quarter of the channels; and a block in every stage: RED has three
    in front, and convolutional memories alone behind them.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.first_norm = nn.LayerNorm(dim)
        self.second = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.second_norm = nn.LayerNorm(dim)
        self.squeeze = nn.Linear(dim, max(dim // 4, 4))
        self.excite = nn.Linear(max(dim // 4, 4), dim)

    def forward(self, x: FeatureMap, partition: Partition) -> FeatureMap:
        y = F.relu(self.first_norm(_convolve(x, self.first)))
        y = self.second_norm(_convolve(y, self.second))
        return x + y * self.gate(y)[:, None, None]

    def gate(self, y: FeatureMap) -> Float[Tensor, "frames channels"]:
        return torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((1, 2))))))


def _convolve(x: Tensor, layer: nn.Conv2d) -> Tensor:
    return layer(x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)


class GroupedWindowAndGrid(nn.Module):
    """Channels in groups, each of one polarity and part of the window, that attend apart and then to each other (GET, Peng et al. 2023).

    GET's own are the groups, fewer and wider from stage to stage, and its dual attention. Ours: groups of our histogram's bins instead of
    its event binning; a grid after the windows, as in all our attention; no position bias; weights that the groups share; the two
    attentions one after the other, each with a residual, where GET carries two sums; and aggregation by the stage's strided convolution,
    in which a group reads those that it is made of, where GET's reads one neighbour more and pools.
    """

    def __init__(self, dim: int, groups: int, head_dim: int, layer_scale: float) -> None:
        super().__init__()
        self.window = DualAttentionBlock(dim, groups, head_dim, layer_scale, norm_first=False)
        self.grid = DualAttentionBlock(dim, groups, head_dim, layer_scale, norm_first=True)

    def forward(self, x: FeatureMap, partition: Partition) -> FeatureMap:
        return _windows_then_grid(x, partition, self.window, self.grid)


class DualAttentionBlock(nn.Module):
    """x + attention of tokens within each group, x + attention between the groups of each token, x + feed-forward over all channels."""

    def __init__(self, dim: int, groups: int, head_dim: int, layer_scale: float, norm_first: bool) -> None:
        super().__init__()
        self.groups = groups
        self.norm = nn.LayerNorm(dim) if norm_first else nn.Identity()
        self.within = GroupAttention(dim // groups, head_dim, layer_scale, axis=1)
        if groups > 1:
            self.between_norm = nn.LayerNorm(dim)
            self.between = GroupAttention(dim // groups, head_dim, layer_scale, axis=2)
            self.bias = nn.Parameter(torch.zeros(groups, groups))  # of a group's attention to another
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Tokens) -> Tokens:
        x = x + self.within(self._grouped(self.norm(x))).flatten(2)
        if self.groups > 1:
            x = x + self.between(self._grouped(self.between_norm(x)), self.bias).flatten(2)
        return self.feed(x)

    def _grouped(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.groups, -1))


class GroupAttention(nn.Module):
    """Scaled attention along an axis of (windows, tokens, groups, channels): 1, tokens, or 2, groups. Groups share the weights."""

    def __init__(self, width: int, head_dim: int, layer_scale: float, axis: int) -> None:
        super().__init__()
        self.head_dim, self.axis = min(head_dim, width), axis
        self.qkv = Linear(width, 3 * width)
        self.project = Linear(width, width)
        self.scale = LayerScale(width, layer_scale)

    def forward(
        self, x: Float[Tensor, "windows tokens groups width"], bias: Tensor | None = None
    ) -> Float[Tensor, "windows tokens groups width"]:
        heads = self.qkv(x).unflatten(-1, (-1, 3 * self.head_dim)).movedim(self.axis, 3)
        query, key, value = heads.flatten(0, 1).chunk(3, -1)  # ONNX's attention has four axes
        attended = _attention(query, key, value, None if bias is None else bias.to(heads.dtype)).unflatten(0, heads.shape[:2])
        return linear(attended.movedim(3, self.axis).flatten(3), *self.scale.folded(self.project))


MIXINGS: dict[Mixing, Callable[[BackboneConfig, int], nn.Module]] = {  # of a backbone's stage
    "attention": lambda config, stage: WindowAndGrid(config.dims[stage], config.head_dim, config.layer_scale),
    "convnext": lambda config, stage: ConvNeXt(config.dims[stage], config.layer_scale),
    "ssm2d": lambda config, stage: RowsAndColumns(config.dims[stage], config.layer_scale),
    "squeeze": lambda config, stage: SqueezeExcite(config.dims[stage]),
    "grouped": lambda config, stage: GroupedWindowAndGrid(config.dims[stage], config.groups[stage], config.head_dim, config.layer_scale),
}
