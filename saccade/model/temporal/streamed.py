"""One step of S4D and S4 without gradients, compiled: a stream is bound by memory bandwidth, so each state is read and written once.

The twin of `siso.recurrence` for one step on a CPU. A diagonal system is x' = decay x + control u; S4's has a matrix of rank one beside its
diagonal, x' = decay x - left (right . x) + control u, which costs one more look at the states of a channel while they are in the cache.
"""

import numpy as np
import torch
from torch import Tensor

from saccade.machine import compiled


def applies(u: Tensor) -> bool:
    """Whether a step of u (B, C, T, pixels) may go this way."""
    return u.device.type == "cpu" and u.shape[2] == 1 and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def step(
    decay: Tensor, control: Tensor, observe: Tensor, direct: Tensor, u: Tensor, start: Tensor, rank_one: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """y (B, C, 1, pixels) and the states. decay, control, rank_one (1 or B, C, N), observe (C, N), direct (C), start (B, C, N, pixels)."""
    last = torch.empty_like(start, memory_format=torch.contiguous_format)
    given = u[:, :, 0].contiguous()
    y = torch.empty_like(given)
    left, right = (decay[:, :, :0], decay[:, :, :0]) if rank_one is None else rank_one
    inputs = (decay, left, right, control, observe, direct, given, start, last, y)
    _step_channels(*(tensor.detach().contiguous().numpy() for tensor in inputs))
    return y[:, :, None], last


@compiled
def _step_channels(decay, left, right, control, observe, direct, u, state, next_state, y):
    """Writes next_state and y (B, C, pixels). observe has the sign of Re(C x)."""
    batch, channels, _, pixels = state.shape
    share = np.zeros(pixels, state.dtype)
    for b in range(batch):
        g = min(b, decay.shape[0] - 1)
        for c in range(channels):
            given, shown = u[b, c], y[b, c]
            d = direct[c]
            for p in range(pixels):
                shown[p] = d * given[p]
            if right.shape[2]:
                _project(right[g, c], state[b, c], share)
                _advance_rank_one(decay[g, c], left[g, c], control[g, c], observe[c], given, share, state[b, c], next_state[b, c], shown)
            else:
                _advance(decay[g, c], control[g, c], observe[c], given, state[b, c], next_state[b, c], shown)


@compiled
def _project(right, state, share):
    """share = right . state of every pixel, four states at a time: fewer passes over the sum."""
    order, pixels = state.shape
    share[:] = 0
    whole = order - order % 4
    for n in range(0, whole, 4):
        a, b, c, d = right[n], right[n + 1], right[n + 2], right[n + 3]
        one, two, three, four = state[n], state[n + 1], state[n + 2], state[n + 3]
        for p in range(pixels):
            share[p] += a * one[p] + b * two[p] + c * three[p] + d * four[p]
    for n in range(whole, order):
        a, one = right[n], state[n]
        for p in range(pixels):
            share[p] += a * one[p]


@compiled
def _advance(decay, control, observe, given, state, next_state, shown):
    order, pixels = state.shape
    half = order // 2
    for n in range(half):
        ar, ai, br, bi = decay[n], decay[half + n], control[n], control[half + n]
        cr, ci = observe[n], observe[half + n]
        real, imag, next_real, next_imag = state[n], state[half + n], next_state[n], next_state[half + n]
        for p in range(pixels):
            re = ar * real[p] - ai * imag[p] + br * given[p]
            im = ar * imag[p] + ai * real[p] + bi * given[p]
            next_real[p] = re
            next_imag[p] = im
            shown[p] += cr * re + ci * im


@compiled
def _advance_rank_one(decay, left, control, observe, given, share, state, next_state, shown):
    order, pixels = state.shape
    half = order // 2
    for n in range(half):
        ar, ai, br, bi = decay[n], decay[half + n], control[n], control[half + n]
        cr, ci, lr, li = observe[n], observe[half + n], left[n], left[half + n]
        real, imag, next_real, next_imag = state[n], state[half + n], next_state[n], next_state[half + n]
        for p in range(pixels):
            re = ar * real[p] - ai * imag[p] + br * given[p] - lr * share[p]
            im = ar * imag[p] + ai * real[p] + bi * given[p] - li * share[p]
            next_real[p] = re
            next_imag[p] = im
            shown[p] += cr * re + ci * im
