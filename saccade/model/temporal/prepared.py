"""What a layer computes from its parameters and dt alone, kept for a stream: at a constant rate it is the same at every step."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

MOST = 8  # values of dt: a rate that is no whole number of microseconds has two, interleaved chains a few more
Value = TypeVar("Value")


class Prepared(Generic[Value]):
    """The newest MOST values, each with the versions of the parameters that it was made from.

    Found only without gradients, outside tracing, and while the parameters are those of then: an optimiser's step, `load_state_dict`,
    `to` and `train` end it. What is written to `parameter.data` leaves no trace: don't, between `prepare` and a step.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[float, Value] = OrderedDict()
        self._made_from: tuple[tuple[int, int], ...] = ()

    def add(self, layer: nn.Module, dt: float, compute: Callable[[Tensor], Value]) -> None:
        """Keep COMPUTE of dt (1, 1), unless it is kept already or the layer is in training."""
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
        while len(self._values) > MOST:
            self._values.popitem(last=False)

    def find(self, layer: nn.Module, dt: Tensor) -> Value | None:
        """What is kept for steps that all are dt[0, 0]."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.is_grad_enabled() or layer.training or not self._values:
            return None
        return self._values.get(dt[0, 0].item()) if _versions(layer) == self._made_from else None


def _versions(layer: nn.Module) -> tuple[tuple[int, int], ...]:
    """Where each parameter is and how often it was written to; nothing for parameters that don't count that."""
    parameters = list(layer.parameters())
    if any(parameter.is_inference() for parameter in parameters):
        return ()
    return tuple((parameter.data_ptr(), parameter._version) for parameter in parameters)
