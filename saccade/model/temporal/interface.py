"""The one interface of memory: its types, the checks that every layer makes before it computes, and the cache behind `prepare`."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.types import InputError

Features = Float[Tensor, "T B H W C"]
Steps = Float[Tensor, "T B"]  # 1.0 = the training window; may differ per step and per sample
LayerState = tuple[Tensor, ...]  # real tensors, the batch first; opaque to everyone but their layer
Value = TypeVar("Value")

MOST_PREPARED = 8  # values of dt: a rate whose period is no whole number of microseconds has two, interleaved chains a few more


@runtime_checkable
class TemporalLayer(Protocol):
    def initial_state(self, x: Tensor) -> LayerState: ...

    def __call__(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]: ...


def check_option(where: str, value: str, options: Iterable[str]) -> None:
    if value not in options:
        raise InputError(f"{where} {value!r}: expected one of {', '.join(options)}")


def check_features(name: str, x: Tensor, channels: int) -> None:
    """Forwards are annotated with plain tensors, so that wrong shapes raise this error and not that of the tests' shape checker."""
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
    """Whether all steps are equal: then one discretisation serves all. While tracing, values are unknown and taken to differ. On a GPU they
    would have to be waited for: there, they are equal if they are one number in memory, as `Detector.encode` makes them.
    """
    if tuple(dt.shape) != tuple(x.shape[:2]) or not dt.is_floating_point():
        raise InputError(f"{name}: dt must be float (T, B) = {tuple(x.shape[:2])}, got {dt.dtype} {tuple(dt.shape)}")
    several = dt.requires_grad and dt.numel() > 1  # else only one of the steps would get the gradient
    if torch.compiler.is_compiling():
        return dt.numel() == 1
    if dt.device.type != "cpu":
        return all(size == 1 or stride == 0 for size, stride in zip(dt.shape, dt.stride(), strict=True)) and not several
    lowest, highest = limits_of_steps(name, dt)
    return lowest == highest and not several


def limits_of_steps(name: str, dt: Tensor) -> tuple[float, float]:
    """The shortest and the longest; InputError if they can't be."""
    lowest, highest = (float(limit) for limit in torch.aminmax(dt.detach()))
    if not 0 < lowest <= highest < float("inf"):  # NaN fails every comparison
        raise InputError(f"{name}: dt must be positive and finite, (T, B) = {tuple(dt.shape)}, got values from {lowest} to {highest}")
    return lowest, highest


class Prepared(Generic[Value]):
    """A cache of what a layer computes from its parameters and dt alone: at a constant rate it is the same at every step.

    It holds the newest MOST_PREPARED values, and is used only without gradients, outside tracing, and while the parameters are unchanged:
    an optimiser's step, `load_state_dict`, `to` and `train` invalidate it. Writing to `parameter.data` can't be noticed: don't.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[float, Value] = OrderedDict()
        self._made_from: tuple[tuple[int, int], ...] = ()

    def add(self, layer: nn.Module, dt: float, compute: Callable[[Tensor], Value]) -> None:
        """Store COMPUTE(dt of shape (1, 1)), unless it is there already or the layer is in training."""
        versions = _versions(layer)
        if versions != self._made_from:
            self._values.clear()
            self._made_from = versions
        key = torch.tensor(dt, dtype=torch.float32).item()  # as `encode` rounds it
        if layer.training or not versions:
            return
        if key not in self._values:
            with torch.inference_mode(False), torch.no_grad():
                self._values[key] = compute(torch.full((1, 1), key, device=next(layer.parameters()).device))
        self._values.move_to_end(key)
        while len(self._values) > MOST_PREPARED:
            self._values.popitem(last=False)

    def find(self, layer: nn.Module, dt: Tensor) -> Value | None:
        """The stored value for steps that all equal dt[0, 0], or None."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.is_grad_enabled() or layer.training or not self._values:
            return None
        return self._values.get(dt[0, 0].item()) if _versions(layer) == self._made_from else None


def _versions(layer: nn.Module) -> tuple[tuple[int, int], ...]:
    """Address and version counter of each parameter; empty for inference tensors, which have no version."""
    parameters = list(layer.parameters())
    if any(parameter.is_inference() for parameter in parameters):
        return ()
    return tuple((parameter.data_ptr(), parameter._version) for parameter in parameters)
