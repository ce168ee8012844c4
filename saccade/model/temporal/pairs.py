"""Complex numbers as packed real tensors: the last axis is [real parts | imaginary parts]. Complex tensors export to no runtime."""

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
