"""DETECTOR -> ONNX GRAPH of one step, written layer by layer in milliseconds, as the runtimes of a CPU compute it fastest.

All that can be is folded into the weights: batch norms, layer scales, the attention's scale; gates are one product. Features are rows, one
per pixel, up to the neck, and no layer cares for their order: windows and grid of the attention, and the neighbours that a convolution
reads, are rows picked by number. Left out are the first convolution (`saccade.export.stem`) and what depends on dt alone
(`sampled_inputs`). Batch 1, one size, standard operators.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn

from saccade.detection.boxes import LARGEST_LOG, cell_grid
from saccade.export.build_memory import CLOCK, memory, sampled_inputs
from saccade.export.writer import StateRows, Writer, array, bias_of, inverse
from saccade.model import values
from saccade.model.backbone import STRIDES, Stage
from saccade.model.detector import Detector
from saccade.model.mixing import AttentionBlock, ConvNeXt, ConvNeXtBlock, FeedForward, WindowAndGrid
from saccade.model.yolox import CSP, ConvNormAct, Neck, ScaleHead
from saccade.types import InputError

__all__ = ["CLOCK", "FIRST", "ROWS", "StepGraph", "build_step", "sampled_inputs"]

FIRST, ROWS = "first", "rows"  # the first convolution's output; predictions as `saccade.detection.decode.dense` gives them
Order = np.ndarray  # the pixel of each row, or the row of each pixel
Sides = tuple[int, int]  # rows and columns


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Inputs: FIRST, those of `sampled_inputs`, the states. Outputs: ROWS, if it detects, and every state with `next_` before its name."""

    model: bytes  # ONNX
    sampled: tuple[str, ...]
    states: dict[str, StateRows]  # names as in `Runtime.state_to_arrays`
    order: Order  # pixel of each row of FIRST


def build_step(detector: Detector, height: int, width: int, detects: bool = True) -> StepGraph:
    """For frames of this size, which needs no padding; with detects=False memory only. InputError if a layer has no such graph."""
    graph = Writer()
    partition = height // detector.config.backbone.multiple, width // detector.config.backbone.multiple
    features: list[str] = []
    x = FIRST
    first = before = np.zeros(0, np.int64)
    for index, (stage, stride) in enumerate(zip(detector.backbone.stages, STRIDES, strict=True)):
        sides = rows, columns = height // stride, width // stride
        enter, leave = _orders(stage.mixing, sides, partition)
        if index:
            x = _downsample(graph, x, stage, inverse(before).reshape(2 * rows, 2 * columns), enter)
        else:
            first, graph.inputs[FIRST] = enter, (len(enter), stage.dim)
        x = _mixing(graph, graph.norm(x, stage.norm), stage.mixing, enter, leave, partition, sides)
        x = memory(graph, x, stage, index, leave, rows, columns)
        before = leave
        features.append(_image(graph, x, inverse(leave), stage.dim, rows, columns) if index and detects else "")
    if detects:
        _head(graph, _neck(graph, features[1:], detector.neck), cast(list[ScaleHead], list(detector.head.scales)), height, width)
    model = graph.model(detector.config.name, *([ROWS] if detects else []))
    return StepGraph(model, tuple(name for name in graph.inputs if name != FIRST and name not in graph.states), graph.states, first)


def _orders(mixing: nn.Module, sides: Sides, partition: Sides) -> tuple[Order, Order]:
    """Of the rows that a stage's mixing takes, and of those that it gives: windows and grid of the attention, or the image's."""
    image = np.arange(sides[0] * sides[1])
    if not isinstance(mixing, WindowAndGrid):
        return image, image
    (rows, columns), (down, across) = partition, (sides[0] // partition[0], sides[1] // partition[1])
    windows = image.reshape(down, rows, across, columns).transpose(0, 2, 1, 3)
    grid = image.reshape(rows, down, columns, across).transpose(1, 3, 0, 2)
    return windows.reshape(-1), grid.reshape(-1)


def _downsample(graph: Writer, x: str, stage: Stage, row_of: np.ndarray, order: Order) -> str:
    """A 3x3 convolution of stride 2 as one product: nine rows of the stage before for every pixel, a row of zeros outside the image."""
    channels = stage.downsample.in_channels
    padded = np.pad(row_of, 1, constant_values=row_of.size)
    taps = [padded[i : i + row_of.shape[0] : 2, j : j + row_of.shape[1] : 2].reshape(-1)[order] for i in range(3) for j in range(3)]
    rows = graph.pick(graph.add("Concat", x, np.zeros((1, channels)), axis=0), np.stack(taps, 1).reshape(-1))
    weight = array(stage.downsample.weight).transpose(0, 2, 3, 1).reshape(stage.dim, -1)
    return graph.linear(graph.reshape(rows, -1, 9 * channels), weight)


def _image(graph: Writer, x: str, row_of: Order, channels: int, rows: int, columns: int) -> str:
    return graph.reshape(graph.add("Transpose", graph.pick(x, row_of), perm=[1, 0]), 1, channels, rows, columns)


def _mixing(graph: Writer, x: str, mixing: nn.Module, enter: Order, leave: Order, partition: Sides, sides: Sides) -> str:
    if isinstance(mixing, WindowAndGrid):
        tokens = partition[0] * partition[1]
        x = graph.pick(_attention(graph, x, mixing.window, tokens), inverse(enter)[leave])
        return _attention(graph, x, mixing.grid, tokens)
    if isinstance(mixing, ConvNeXt):
        for block in cast(list[ConvNeXtBlock], list(mixing.blocks)):
            layer, channels = block.depthwise, block.depthwise.in_channels
            image = graph.reshape(graph.add("Transpose", x, perm=[1, 0]), 1, channels, *sides)
            spread = graph.convolution(image, array(layer.weight), bias_of(layer), groups=channels)
            spread = graph.add("Transpose", graph.reshape(spread, channels, -1), perm=[1, 0])
            x = graph.add("Add", x, _feed_forward(graph, spread, block.feed))
        return x
    raise InputError(f"no graph for mixing by {type(mixing).__name__}")


def _attention(graph: Writer, x: str, block: AttentionBlock, tokens: int) -> str:
    width, size = block.project.in_features, block.head_dim
    heads = width // size
    scale = np.array([size**-0.5, 1, 1]).reshape(1, 3, 1, 1)
    weight = (array(block.qkv.weight).reshape(heads, 3, size, width) * scale).swapaxes(0, 1).reshape(3 * width, width)
    bias = (array(block.qkv.bias).reshape(heads, 3, size, 1) * scale).swapaxes(0, 1).reshape(-1)
    normed = graph.norm(x, block.norm) if isinstance(block.norm, nn.LayerNorm) else x
    per_head = graph.reshape(graph.linear(normed, weight, bias), -1, tokens, 3 * heads, size)
    query, key, value = graph.add("Split", graph.add("Transpose", per_head, perm=[0, 2, 1, 3]), axis=1, num_outputs=3, outputs=3)
    attended = graph.add("Softmax", graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 1, 3, 2])), axis=-1)
    together = graph.add("Transpose", graph.add("MatMul", attended, value), perm=[0, 2, 1, 3])
    x = graph.add("Add", x, _scaled(graph, graph.reshape(together, -1, width), block.project, block.scale.weight))
    return graph.add("Add", x, _feed_forward(graph, x, block.feed))


def _feed_forward(graph: Writer, x: str, feed: FeedForward) -> str:
    wide = graph.linear(graph.norm(x, feed.norm), array(feed.widen.weight), array(feed.widen.bias))
    return _scaled(graph, graph.add("Gelu", wide), feed.narrow, feed.scale.weight)


def _scaled(graph: Writer, x: str, layer: nn.Linear, scale: torch.Tensor) -> str:
    return graph.linear(x, array(layer.weight) * array(scale)[:, None], array(layer.bias) * array(scale))


def _neck(graph: Writer, features: list[str], neck: Neck) -> list[str]:
    fine, middle, coarse = features
    from_coarse = _conv_norm_act(graph, coarse, neck.reduce_coarse)
    merged = _csp(graph, [_double(graph, from_coarse), middle], neck.merge_middle)
    from_middle = _conv_norm_act(graph, merged, neck.reduce_middle)
    fine = _csp(graph, [_double(graph, from_middle), fine], neck.merge_fine)
    middle = _csp(graph, [_conv_norm_act(graph, fine, neck.down_fine), from_middle], neck.out_middle)
    coarse = _csp(graph, [_conv_norm_act(graph, middle, neck.down_middle), from_coarse], neck.out_coarse)
    return [fine, middle, coarse]


def _folded(layer: ConvNormAct) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of the convolution with its batch norm."""
    mean, variance = layer.norm.running_mean, layer.norm.running_var
    assert mean is not None
    assert variance is not None
    scale = array(layer.norm.weight) / np.sqrt(array(variance) + layer.norm.eps)
    return array(layer.conv.weight) * scale[:, None, None, None], array(layer.norm.bias) - array(mean) * scale


def _conv_norm_act(graph: Writer, x: str, layer: ConvNormAct) -> str:
    return graph.silu(graph.convolution(x, *_folded(layer), stride=layer.conv.stride[0]))


def _csp(graph: Writer, parts: list[str], layer: CSP) -> str:
    x = graph.add("Concat", *parts, axis=1)
    through = _conv_norm_act(graph, x, layer.through)
    for narrow, wide in cast(list[tuple[ConvNormAct, ConvNormAct]], list(layer.bottlenecks)):
        through = _conv_norm_act(graph, _conv_norm_act(graph, through, narrow), wide)
    return _conv_norm_act(graph, graph.add("Concat", through, _conv_norm_act(graph, x, layer.around), axis=1), layer.join)


def _double(graph: Writer, x: str) -> str:
    sides = np.array([1.0, 1.0, 2.0, 2.0])
    return graph.add("Resize", x, "", sides, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _head(graph: Writer, levels: list[str], scales: list[ScaleHead], height: int, width: int) -> None:
    """Both branches as one convolution of two groups, the last layers as one with zeros where a branch has no say."""
    parts = []
    for level, scale in zip(levels, scales, strict=True):
        x = _conv_norm_act(graph, level, scale.stem)
        for number, (of_boxes, of_classes) in enumerate(zip(scale.box_branch, scale.class_branch, strict=True)):
            pairs = zip(_folded(cast(ConvNormAct, of_boxes)), _folded(cast(ConvNormAct, of_classes)), strict=True)
            weight, bias = (np.concatenate(pair) for pair in pairs)
            x = graph.silu(graph.convolution(x, weight, bias, groups=2 if number else 1))
        layers = (scale.boxes, scale.objectness, scale.classes)
        boxes, objectness, classes = (array(layer.weight) for layer in layers)
        none = np.zeros_like(objectness)
        weight = np.concatenate([np.concatenate([*pair], 1) for pair in (
            (boxes, none.repeat(4, 0)), (objectness, none), (none.repeat(len(classes), 0), classes))])  # fmt: skip
        x = graph.convolution(x, weight, np.concatenate([bias_of(layer) for layer in layers]))
        parts.append(graph.reshape(x, len(weight), -1))
    cells = cell_grid(tuple((height // stride, width // stride) for stride in values.STRIDES))
    corners, strides = np.stack([cells.x, cells.y], 1), cells.stride[:, None].numpy()
    every = graph.add("Transpose", graph.add("Concat", *parts, axis=1), perm=[1, 0])
    centres, logs, logits = graph.split(every, 2, 2, len(weight) - 4)
    centres = graph.add("Mul", graph.add("Add", centres, corners), strides)
    sizes = graph.add("Mul", graph.add("Exp", graph.add("Min", logs, np.array(LARGEST_LOG))), strides)
    graph.add("Concat", centres, sizes, graph.add("Sigmoid", logits), axis=1, to=ROWS)
