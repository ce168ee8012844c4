"""Spatial mixing by attention: first within windows, then over a grid that spans the image (MaxViT, as in RVT)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Image = Float[Tensor, "frames height width channels"]
Partition = tuple[int, int]  # rows and columns of tokens that attend to each other


class WindowAndGrid(nn.Module):
    """What follows a downsampling, whose norm serves the first attention."""

    def __init__(self, dim: int, head_dim: int, layer_scale: float) -> None:
        super().__init__()
        self.window = AttentionBlock(dim, head_dim, layer_scale, norm_first=False)
        self.grid = AttentionBlock(dim, head_dim, layer_scale, norm_first=True)

    def forward(self, x: Image, partition: Partition) -> Image:
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
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.scale = LayerScale(dim, layer_scale)
        self.feed = FeedForward(dim, layer_scale)

    def forward(self, x: Float[Tensor, "groups tokens channels"]) -> Float[Tensor, "groups tokens channels"]:
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, 3 * self.head_dim)).transpose(1, 2)  # of every head [q | k | v], as published
        attended = F.scaled_dot_product_attention(*heads.chunk(3, -1))
        x = x + self.scale(self.project(attended.transpose(1, 2).flatten(2)))
        return self.feed(x)


class FeedForward(nn.Module):
    """x + scaled two-layer perceptron of the normalised x."""

    def __init__(self, dim: int, layer_scale: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.widen = nn.Linear(dim, 4 * dim)
        self.narrow = nn.Linear(4 * dim, dim)
        self.scale = LayerScale(dim, layer_scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.change(x)

    def change(self, x: Tensor) -> Tensor:
        return self.scale(self.narrow(F.gelu(self.widen(self.norm(x)))))


class LayerScale(nn.Module):
    """A learned weight per channel; where it starts near zero, the block begins as the identity."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), start))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight
