"""Linear layers that keep little for the gradient: what comes just before the product, a norm or an activation, is computed again.

Autograd keeps the input of every operation. Of linear(gelu(h)) it keeps h and gelu(h), of linear(norm(x)) x and the normed x; here h and x
alone stay, and the second costs one pass over them in the backward. The twins are the plain compositions; gradients are equal to rounding.

Only within `with recomputing():`. s5-vit-b keeps 88 MB a frame of 320 x 256 then, instead of 128; a training step takes 3 to 6 % longer on
a CPU. Not under autocast, where operations choose their own precisions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.model.linear import linear, matmul

_wanted = ContextVar("recomputing", default=False)


@contextmanager
def recomputing() -> Iterator[None]:
    """Forward passes in this block keep less for their gradients."""
    before = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(before)


def norm_linear(x: Tensor, norm: nn.LayerNorm, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(norm(x))."""
    if not _recomputes(x):
        return linear(norm(x), weight, bias)
    return cast(Tensor, _NormLinear.apply(x, norm.weight, norm.bias, norm.eps, weight, bias))


def gelu_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(gelu(x))."""
    return cast(Tensor, _ActivatedLinear.apply(x, weight, bias, False)) if _recomputes(x) else linear(F.gelu(x), weight, bias)


def gated_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """linear(value gelu(gate)) of x = [value | gate]."""
    return cast(Tensor, _ActivatedLinear.apply(x, weight, bias, True)) if _recomputes(x) else linear(_gated(x), weight, bias)


def _recomputes(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return _wanted.get() and torch.is_grad_enabled() and not torch.is_autocast_enabled(x.device.type)


def _gated(x: Tensor) -> Tensor:
    value, gate = x.chunk(2, -1)
    return value * F.gelu(gate)


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
        normed, mean, deviation = torch.native_layer_norm(x, scale.shape, scale, shift, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, mean, deviation, scale, shift, weight)
        return linear(normed, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, mean, deviation, scale, shift, weight = ctx.saved_tensors
        normed = torch.native_layer_norm(x, scale.shape, scale, shift, ctx.eps)[0]
        into, of_weight, of_bias = _linear_gradients(gradient, normed, weight, (True, ctx.needs_input_grad[4], ctx.needs_input_grad[5]))
        wanted = list(ctx.needs_input_grad[:3])
        of_norm = torch.ops.aten.native_layer_norm_backward(into, x, scale.shape, mean, deviation, scale, shift, wanted)
        return *of_norm, None, of_weight, of_bias


class _ActivatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
        ctx.gated = gated
        ctx.save_for_backward(x, weight)
        return linear(_gated(x) if gated else F.gelu(x), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if not ctx.gated:
            into, of_weight, of_bias = _linear_gradients(gradient, F.gelu(x), weight, ctx.needs_input_grad)
            return torch.ops.aten.gelu_backward(into, x), of_weight, of_bias, None
        value, gate = x.chunk(2, -1)
        opened = F.gelu(gate)
        into, of_weight, of_bias = _linear_gradients(gradient, value * opened, weight, ctx.needs_input_grad)
        of_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        of_value, of_gate = of_x.chunk(2, -1)
        torch.mul(into, opened, out=of_value)
        of_gate.copy_(torch.ops.aten.gelu_backward(into * value, gate))
        return of_x, of_weight, of_bias, None


def _linear_gradients(gradient: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Of a product's input, its weight and its bias."""
    rows = gradient.reshape(-1, len(weight))
    of_weight = matmul(rows.T, x.reshape(len(rows), -1)) if wanted[1] else None
    return linear(gradient, weight.T), of_weight, rows.sum(0) if wanted[2] else None
