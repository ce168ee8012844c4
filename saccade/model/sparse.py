"""The first convolution, from the counts that aren't zero: of a frame's cells, one in a hundred or so.

Every count adds its share to the few outputs whose patch it is in, straight from the bytes: no copy of the frame as floats in another
order, and the bytes are all that the gradient needs. The twin is `torch.nn.functional.conv2d`; results differ by rounding only.
"""

from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, UInt8, UInt64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.machine import compiled

Frames = UInt8[np.ndarray, "n channels height width"]
Words = UInt64[np.ndarray, "n channels height words"]
Kernel = Float[np.ndarray, "channels size size outputs"]
Channels = Float[np.ndarray, "n rows columns outputs"]

DENSEST = 0.03  # share of cells that aren't zero above which the dense convolution is the faster one
WORD = 8  # bytes that are looked at together: most are all zero


def convolve_frames(frames: Tensor, layer: nn.Conv2d) -> Tensor:
    """LAYER of frames (n, channels, H, W), counts as bytes or floats, as (n, rows, columns, outputs)."""
    if layer.groups == 1 and _pays(frames, layer.weight):
        return cast(Tensor, _SparseConvolution.apply(frames.contiguous(), layer.weight, layer.stride[0]))
    # channels last, as every later step reads them; counts are moved as bytes and converted to float afterwards
    pixels = frames.contiguous(memory_format=torch.channels_last).to(layer.weight.dtype)
    return cast(Tensor, layer(pixels)).permute(0, 2, 3, 1)


def _pays(frames: Tensor, weight: Tensor) -> bool:
    return (
        frames.dtype == torch.uint8
        and frames.device.type == "cpu"
        and weight.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and frames.shape[-1] % WORD == 0
        and count(frames.contiguous().numpy().reshape(-1)) <= DENSEST * frames.numel()
    )


class _SparseConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, frames: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(frames, weight)
        ctx.stride = stride
        size = weight.shape[-1]
        rows, columns = ((side + 2 * (size // 2) - size) // stride + 1 for side in frames.shape[-2:])
        out = torch.zeros(len(frames), rows, columns, len(weight))
        counts = frames.numpy()
        add_counts(counts, counts.view(np.uint64), weight.detach().permute(1, 2, 3, 0).contiguous().numpy(), stride, out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        frames, weight = ctx.saved_tensors
        out = torch.zeros(*weight.shape[1:], len(weight))
        counts = frames.numpy()
        add_weight_gradient(counts, counts.view(np.uint64), gradient.contiguous().numpy(), ctx.stride, out.numpy())
        return None, out.permute(3, 0, 1, 2).contiguous(), None


@compiled
def count(cells: UInt8[np.ndarray, "cells"]) -> int:
    """Of those that aren't zero."""
    found = 0
    for cell in cells:
        found += cell != 0
    return found


@compiled
def add_counts(frames: Frames, words: Words, kernel: Kernel, stride: int, out: Channels) -> None:
    """OUT += the convolution. WORDS are the same memory as FRAMES."""
    size, (rows, columns, outputs) = kernel.shape[1], out.shape[1:]
    pad, width = size // 2, frames.shape[3]
    places, counts = np.empty(width + 1, np.int64), np.empty(width + 1, np.float32)
    for n, channel, y in np.ndindex(words.shape[:3]):
        found = 0
        for word in range(words.shape[3]):
            if words[n, channel, y, word]:
                for x in range(word * WORD, (word + 1) * WORD):  # without a branch, which no processor could foresee
                    places[found], counts[found] = x, frames[n, channel, y, x]
                    found += frames[n, channel, y, x] != 0
        if not found:
            continue
        for row in range(max((y + pad - size) // stride + 1, 0), min((y + pad) // stride + 1, rows)):
            line = kernel[channel, y + pad - row * stride]
            for place in range(found):
                x, value = places[place], counts[place]
                for column in range(max((x + pad - size) // stride + 1, 0), min((x + pad) // stride + 1, columns)):
                    sums, weights = out[n, row, column], line[x + pad - column * stride]
                    for output in range(outputs):
                        sums[output] += value * weights[output]


@compiled
def add_weight_gradient(frames: Frames, words: Words, gradient: Channels, stride: int, out: Kernel) -> None:
    """OUT += the gradient of the kernel: the same walk, with sums and weights in each other's place."""
    size, (rows, columns, outputs) = out.shape[1], gradient.shape[1:]
    pad = size // 2
    for n, channel, y in np.ndindex(words.shape[:3]):
        first_row, end_row = max((y + pad - size) // stride + 1, 0), min((y + pad) // stride + 1, rows)
        for word in range(words.shape[3]):
            if not words[n, channel, y, word]:
                continue
            for x in range(word * WORD, (word + 1) * WORD):
                value = np.float32(frames[n, channel, y, x])
                if not value:
                    continue
                first_column, end_column = max((x + pad - size) // stride + 1, 0), min((x + pad) // stride + 1, columns)
                for row in range(first_row, end_row):
                    for column in range(first_column, end_column):
                        sums = out[channel, y + pad - row * stride, x + pad - column * stride]
                        flow = gradient[n, row, column]
                        for output in range(outputs):
                            sums[output] += value * flow[output]
