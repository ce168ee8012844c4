"""Sampling x' = eigenvalue x + u with a step: x[t] = decay x[t-1] + gain u[t]. Real pairs; all shapes broadcast.

`zoh` is exact when the input is constant within a step, and so composes: two half steps are one step. `bilinear` is what the
published weights were trained with. `euler` is kept for comparison.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.model.temporal.pairs import Pair, quotient, reciprocal


def zero_order_hold(eigenvalues: Pair, step: Tensor) -> tuple[Pair, Pair]:
    """decay = exp(z), gain = (exp(z) - 1) / eigenvalue with z = eigenvalue step; exp(z) - 1 without cancellation at small steps."""
    real, imag = eigenvalues[0] * step, eigenvalues[1] * step
    size = torch.exp(real)
    sine = torch.sin(imag)
    cosine_minus_one = -2 * torch.sin(imag / 2).square()
    decay = size * (1 + cosine_minus_one), size * sine
    return decay, quotient((torch.expm1(real) + size * cosine_minus_one, decay[1]), eigenvalues)


def bilinear(eigenvalues: Pair, step: Tensor) -> tuple[Pair, Pair]:
    """decay = (1 + z/2) / (1 - z/2) = 2 / (1 - z/2) - 1, gain = step / (1 - z/2): stable for every step."""
    half = step / 2
    real, imag = reciprocal((1 - eigenvalues[0] * half, -eigenvalues[1] * half))
    return (2 * real - 1, 2 * imag), (step * real, step * imag)


def euler(eigenvalues: Pair, step: Tensor) -> tuple[Pair, Pair]:
    """decay = 1 + z, gain = step. Where that would grow (a stiff mode or a long step), its modulus becomes the true one, exp(Re z)."""
    real, imag = eigenvalues[0] * step, eigenvalues[1] * step
    size = torch.sqrt((1 + real).square() + imag.square())
    grows = size >= 1
    shrink = torch.where(grows, torch.exp(real) / torch.where(grows, size, 1.0), 1.0)
    return ((1 + real) * shrink, imag * shrink), (step.expand_as(real), torch.zeros_like(real))


DISCRETISATIONS: dict[str, Callable[[Pair, Tensor], tuple[Pair, Pair]]] = {
    "zoh": zero_order_hold,
    "bilinear": bilinear,
    "euler": euler,
}
