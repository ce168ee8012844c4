"""What a memory carries, as a value: begin anew where a recording begins, cut the gradient between clips."""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.model.backbone import State


def reset(state: State, is_first: Tensor) -> State:
    """Zero for the samples of the batch where IS_FIRST (B,) is true: they begin another recording. NaN is forgotten too."""

    def forget(tensor: Tensor) -> Tensor:
        first = is_first.to(tensor.device).reshape(-1, *[1] * (tensor.ndim - 1))
        return torch.where(first, torch.zeros((), dtype=tensor.dtype, device=tensor.device), tensor)

    return change(state, forget)


def detach(state: State) -> State:
    """The same values, through which no gradient flows: truncated backpropagation."""
    return change(state, Tensor.detach)


def change(state: State, how: Callable[[Tensor], Tensor]) -> State:
    """HOW applied to every tensor, e.g. `lambda tensor: tensor.to(device)`."""
    return tuple(tuple(how(tensor) for tensor in layer) for layer in state)
