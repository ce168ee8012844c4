"""Complex numbers as real tensors, because complex ones export to no runtime, and the discretisation of x' = eigenvalue x + u on them.

A pair is (real, imaginary); packed, the last axis is [real parts | imaginary parts]. Sampled with a step, x[t] = decay x[t-1] + gain u[t];
all shapes broadcast. `zoh` (zero-order hold) is exact when the input is constant within a step, so two half steps are one step.
`bilinear` is what the published weights were trained with. `euler` is kept for comparison.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # (real, imaginary), equal shapes


def from_last_axis(values: Tensor) -> Pair:
    """Of a tensor (..., 2): how parameters are stored, as in the published weights."""
    real, imag = values.unbind(-1)  # one gradient for both; two selections would each make a tensor of zeros
    return real, imag


def pack(pair: Pair) -> Tensor:
    return torch.cat(pair, -1)


def unpack(packed: Tensor) -> Pair:
    half = packed.shape[-1] // 2
    return packed[..., :half], packed[..., half:]


def product(left: Pair, right: Pair) -> Pair:
    (a, b), (c, d) = left, right
    return a * c - b * d, a * d + b * c


def quotient(left: Pair, right: Pair) -> Pair:
    (a, b), (c, d) = left, right
    size = c * c + d * d
    return (a * c + b * d) / size, (b * c - a * d) / size


def reciprocal(pair: Pair) -> Pair:
    size = pair[0].square() + pair[1].square()
    return pair[0] / size, -pair[1] / size


def conjugate(pair: Pair) -> Pair:
    return pair[0], -pair[1]


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """left x right of packed numbers; the other axes broadcast."""
    return pack(product(unpack(left), unpack(right)))


def multiply_conjugate(left: Tensor, right: Tensor) -> Tensor:
    """left x conj(right) of packed numbers: what the chain rule of `multiply` needs."""
    return pack(product(unpack(left), conjugate(unpack(right))))


def rotations(pair: Pair) -> Tensor:
    """Multiplication by complex numbers (..., n) as real matrices (..., 2n, 2n) on [real | imaginary]."""
    real, imag = (torch.diag_embed(part) for part in pair)
    return torch.cat([torch.cat([real, -imag], -1), torch.cat([imag, real], -1)], -2)


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
