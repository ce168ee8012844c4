"""The one interface of memory, and the checks that every layer makes before it computes."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.types import InputError

Features = Float[Tensor, "T B H W C"]
Steps = Float[Tensor, "T B"]  # 1.0 = the training window; may differ per step and per sample
LayerState = tuple[Tensor, ...]  # real tensors, the batch first; opaque to everyone but their layer


@runtime_checkable
class TemporalLayer(Protocol):
    def initial_state(self, x: Tensor) -> LayerState: ...

    def __call__(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]: ...


def check_option(where: str, value: str, options: Iterable[str]) -> None:
    if value not in options:
        raise InputError(f"{where} {value!r}: expected one of {', '.join(options)}")


def check_features(name: str, x: Tensor, channels: int) -> None:
    """The forwards take plain tensors, so that wrong shapes meet this message and not the tests' shape checker."""
    if x.ndim != 5 or x.shape[-1] != channels or x.numel() == 0:
        raise InputError(f"{name}: features must be (T, B, H, W, {channels}) with no empty axis, got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise InputError(f"{name}: features (T, B, H, W, {channels}) must be floating point, got {x.dtype}")


def check_state(name: str, state: LayerState, shapes: list[tuple[int, ...]], like: Tensor) -> None:
    """`like` has the dtype of the layer's parameters, which state keeps under autocast too."""
    found = [(tuple(tensor.shape), tensor.dtype) for tensor in state] if isinstance(state, tuple) else type(state)
    if found != [(shape, like.dtype) for shape in shapes]:
        raise InputError(f"{name}: the state must be {like.dtype} tensors of {shapes}, got {found}; start from initial_state(x)")


def check_steps(name: str, dt: Tensor, x: Tensor) -> bool:
    """Whether all steps are equal: then one discretisation serves all. While tracing, values are unknown and count as different."""
    if tuple(dt.shape) != tuple(x.shape[:2]) or not dt.is_floating_point():
        raise InputError(f"{name}: dt must be float (T, B) = {tuple(x.shape[:2])}, got {dt.dtype} {tuple(dt.shape)}")
    if torch.compiler.is_compiling():
        return dt.numel() == 1
    lowest, highest = (float(limit) for limit in torch.aminmax(dt.detach()))
    if not 0 < lowest <= highest < float("inf"):  # NaN fails every comparison
        raise InputError(f"{name}: dt must be positive and finite, (T, B) = {tuple(dt.shape)}, got values from {lowest} to {highest}")
    return lowest == highest and not (dt.requires_grad and dt.numel() > 1)  # else the slope would reach only one of the steps
