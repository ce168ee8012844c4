"""y = Re(C x) + D u with x[t] = decay x[t-1] + gain B u[t], over all pixels: two GEMMs around a scan, with a hand-written gradient.

One autograd function owns its buffers: B u becomes the states in place, and so do the gradients on the way back. Kept for the backward:
the input and the states, nothing per step.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from saccade.model.linear import matmul
from saccade.model.temporal.pairs import multiply, multiply_conjugate
from saccade.model.temporal.scan import (
    Decay,
    ScanMethod,
    Start,
    choose,
    grouped,
    reverse_in_place,
    scan_in_place,
    start_gradient,
    traced_scan,
)

PixelSequence = Float[Tensor, "T rows H"]


class _DiagonalSystem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u, weight_in, decay, gain, weight_out, direct, start, method: ScanMethod | None, keep: bool) -> Any:
        ctx.lower = torch.get_autocast_dtype(u.device.type) if torch.is_autocast_enabled(u.device.type) else start.dtype
        with torch.autocast(u.device.type, enabled=False):
            states = _matmul(u, weight_in.T, ctx.lower, start.dtype)
            if gain is not None:
                _scale_in_place(states, gain, multiply)
            ctx.method = method or choose(states)
            scan_in_place(decay, states, start, ctx.method)
            y = _matmul(states, weight_out.T, ctx.lower, start.dtype).addcmul_(u, direct)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(u, weight_in, decay, gain, weight_out, direct, start, states)
        # A copy, so that the last state doesn't keep those of the whole clip in memory. A stream without gradients needs none.
        return y, states[-1].clone() if keep or len(states) > 1 else states[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_gradient: Tensor | None, last_gradient: Tensor | None) -> Any:
        u, weight_in, decay, gain, weight_out, direct, start, states = ctx.saved_tensors
        y_gradient = torch.zeros_like(u) if y_gradient is None else y_gradient.contiguous()
        flow = _matmul(y_gradient, weight_out, ctx.lower, start.dtype)
        if last_gradient is not None:
            flow[-1] += last_gradient
        weight_out_gradient = _matmul(y_gradient.flatten(0, 1).T, states.flatten(0, 1), ctx.lower, start.dtype)
        decay_gradient = reverse_in_place(decay, flow, states, start, ctx.method)
        from_start = start_gradient(decay, flow) if ctx.needs_input_grad[6] else None  # before the gain, which the start doesn't pass
        gain_gradient = None
        if gain is not None:
            gain_gradient = _gain_gradient(u, weight_in, gain, flow, ctx.lower)
            _scale_in_place(flow, gain, multiply_conjugate)
        weight_in_gradient = _matmul(flow.flatten(0, 1).T, u.flatten(0, 1), ctx.lower, start.dtype)
        u_gradient = _matmul(flow, weight_in, ctx.lower, start.dtype).addcmul_(y_gradient, direct) if ctx.needs_input_grad[0] else None
        direct_gradient = torch.stack([(a * b).sum(0) for a, b in zip(y_gradient, u, strict=True)]).sum(0)  # a step fits the cache
        gradients = (u_gradient, weight_in_gradient, decay_gradient, gain_gradient, weight_out_gradient, direct_gradient, from_start)
        return *gradients, None, None


def _matmul(left: Tensor, right: Tensor, lower: torch.dtype, dtype: torch.dtype) -> Tensor:
    """In the precision of autocast if it is on; the result, like all state, in full precision."""
    flat = matmul(left.flatten(0, -2).to(lower), right.to(lower)).to(dtype)
    return flat.view(*left.shape[:-1], right.shape[1])


def _scale_in_place(values: Tensor, gain: Tensor, how) -> None:
    wide, rows = grouped(gain, values)
    for t in range(len(rows)):
        rows[t] = how(rows[t], wide[min(t, len(wide) - 1)])


def _gain_gradient(u: Tensor, weight_in: Tensor, gain: Tensor, flow: Tensor, lower: torch.dtype) -> Tensor:
    """Steps rarely differ: B u is computed again instead of being stored."""
    gradient = torch.zeros_like(gain)
    for t in range(len(u)):
        values = _matmul(u[t], weight_in.T, lower, flow.dtype)
        gradient[min(t, len(gain) - 1)] += multiply_conjugate(grouped(gain, flow[t])[1], grouped(gain, values)[1]).sum(1)
    return gradient


def diagonal_system(
    u: PixelSequence,
    weight_in: Float[Tensor, "twoP H"],
    decay: Decay,
    gain: Decay | None,
    weight_out: Float[Tensor, "H twoP"],
    direct: Float[Tensor, "H"],
    start: Start,
    method: ScanMethod | None = None,
) -> tuple[PixelSequence, Start]:
    """(y, the last state). `weight_in` is [Re B; Im B], `weight_out` [Re C, -Im C]. gain None: it's already in weight_in."""
    if torch.compiler.is_compiling():
        values = F.linear(u, weight_in)
        if gain is not None:
            values = multiply(*reversed(grouped(gain, values))).reshape(values.shape)
        states = traced_scan(decay, values, start)
        return F.linear(states, weight_out) + direct * u, states[-1]
    inputs = (u.contiguous(), weight_in, decay.contiguous(), gain, weight_out, direct, start.contiguous())
    return cast(tuple[Tensor, Tensor], _DiagonalSystem.apply(*inputs, method, torch.is_grad_enabled()))
