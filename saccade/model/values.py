"""The values that enter and leave the network: state of the memory, pyramid of features, raw predictions of the head."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.model.temporal.interface import LayerState

STRIDES = (8, 16, 32)
State = tuple[LayerState, ...]  # of every stage; a stage without memory has ()
Pyramid = tuple[Tensor, Tensor, Tensor]  # strides 8, 16, 32; (T, B, C, H, W), or (frames, C, H, W) of those that were picked


class Predictions(NamedTuple):
    """Raw outputs of the head. Cells in the published order: stride 8, 16, 32, each row by row; frames as in the pyramid, T before B."""

    boxes: Float[Tensor, "frames cells 4"]  # centre x, y in strides from the cell's corner; log of width, height in strides
    objectness: Float[Tensor, "frames cells"]  # logits
    classes: Float[Tensor, "frames cells classes"]  # logits
    grids: tuple[tuple[int, int], ...]  # rows and columns of cells of every stride


def pick(pyramid: Pyramid, which: Tensor) -> Pyramid:
    """The frames where WHICH (T, B) is true, in the order T before B: neck and head are over a quarter of a step's time.

    Where WHICH is on the CPU, how many there are is known without waiting for a GPU.
    """
    rows = which.flatten().nonzero()[:, 0].to(pyramid[0].device, non_blocking=True)
    fine, middle, coarse = (level.flatten(0, 1)[rows] for level in pyramid)
    return fine, middle, coarse


def reset(state: State, is_first: Tensor) -> State:
    """Zero for the samples of the batch where IS_FIRST (B,) is true, those that begin another recording; clears NaN, too."""

    def forget(tensor: Tensor) -> Tensor:
        first = is_first.to(tensor.device).reshape(-1, *[1] * (tensor.ndim - 1))
        return torch.where(first, torch.zeros((), dtype=tensor.dtype, device=tensor.device), tensor)

    return change(state, forget)


def detach(state: State) -> State:
    """The same values without gradient history: truncated backpropagation through time."""
    return change(state, Tensor.detach)


def change(state: State, how: Callable[[Tensor], Tensor]) -> State:
    """HOW applied to every tensor, e.g. `lambda tensor: tensor.to(device)`."""
    return tuple(tuple(how(tensor) for tensor in layer) for layer in state)


def join_states(states: Sequence[State]) -> State:
    """States of several batches, of frames of one size, as the state of one batch: concatenated along the batch axis.

    A single state is returned as it is, not copied.
    """
    if len(states) == 1:
        return states[0]
    return tuple(tuple(torch.cat(tensors) for tensors in zip(*layers, strict=True)) for layers in zip(*states, strict=True))
