"""Gated S5 (ours, not in the paper): a linear scan in which gates of the input set the speed of time and what enters the state.

The gates see the input only, so the recurrence stays linear in the state and true to dt: time runs at m = 4 sigmoid(..) dt, the
state moves by the zero-order hold of that step, and two half steps under a held input are one step.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saccade.model.linear import Linear
from saccade.model.temporal import initialise
from saccade.model.temporal.interface import LayerState, check_features, check_state, check_steps
from saccade.model.temporal.pairs import Pair, pack, product, unpack, zero_order_hold
from saccade.model.temporal.scan import linear_scan
from saccade.types import InputError

FASTEST = 4.0  # largest factor by which a gate can speed up time
PIECE = 1_000_000  # elements of a piece: a few megabytes, which fit the cache


class GatedS5(nn.Module):
    """dim / 2 complex states, so that [real | imaginary] is as wide as the features. State: ((B, H, W, dim),)."""

    def __init__(self, dim: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise InputError(f"gs5: dim={dim} must be even: states are pairs")
        self.dim = dim
        random = initialise.numpy_generator(generator)
        turning = 1j * np.linspace(0, 1, dim // 2) if dim > 2 else np.array([1j])
        eigenvalues = initialise.clip_spectrum(random, turning)
        self.log_decay = nn.Parameter(torch.tensor(np.log(-eigenvalues.real), dtype=torch.get_default_dtype()))
        self.frequency = nn.Parameter(torch.tensor(eigenvalues.imag, dtype=torch.get_default_dtype()))
        self.norm = nn.LayerNorm(dim)
        self.pace = Linear(dim, dim // 2)
        self.admit = Linear(dim, dim)
        self.content = Linear(dim, dim, bias=False)  # no bias: silence admits nothing, so it decays
        self.observe = Linear(dim, dim)
        self.show = Linear(dim, dim)
        self.direct = nn.Parameter(torch.ones(dim))  # skips the state, which lags: at high rates it is the mean of a window's inputs
        nn.init.constant_(self.pace.bias, -math.log(FASTEST - 1))  # 4 sigmoid(bias) = 1: time starts at its true speed
        nn.init.zeros_(self.observe.bias)
        with torch.no_grad():  # the state reaches the output from the first training step on
            self.observe.weight.mul_(0.1).add_(torch.eye(dim))

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("gs5", x, self.dim)
        return (torch.zeros(*x.shape[1:], dtype=self.log_decay.dtype, device=x.device),)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("gs5", x, self.dim)
        check_state("gs5", state, [tuple(x.shape[1:])], self.log_decay)
        check_steps("gs5", dt, x)
        u = self.norm(x.to(self.log_decay.dtype))
        gates = [gate(u).flatten(1, 3) for gate in (self.pace, self.admit, self.content)]
        with torch.autocast(x.device.type, enabled=False):  # what makes the state stays in full precision
            full, rows = self.log_decay.dtype, gates[0].shape[1]
            clock = dt.to(full).repeat_interleave(rows // dt.shape[1], 1)[..., None]
            signals = [clock, *(gate.to(full) for gate in gates)]
            system = (*self.eigenvalues(), self.unit_gain())
            states = _in_pieces(signals, system, state[0].flatten(0, 2)).view(x.shape)
        return torch.tanh(self.observe(states) + self.direct * u) * torch.sigmoid(self.show(u)), (states[-1].clone(),)

    def eigenvalues(self) -> Pair:
        return -self.log_decay.exp(), self.frequency

    def unit_gain(self) -> Tensor:
        """Factor of the input that gives the state unit power: sqrt(1 - |decay|^2) / |gain|, both at one training step."""
        real, imag = self.eigenvalues()
        _, gain = zero_order_hold((real, imag), torch.ones_like(real))
        return torch.sqrt(-torch.expm1(2 * real)) / torch.sqrt(gain[0].square() + gain[1].square())


def _gated_scan(
    clock: Tensor, pace: Tensor, admit: Tensor, content: Tensor, real: Tensor, imag: Tensor, unit: Tensor, start: Tensor
) -> Tensor:
    """The states (T, rows, dim): a scan whose step and input come from the gates."""
    decay, gain = zero_order_hold((real, imag), FASTEST * torch.sigmoid(pace) * clock)
    admitted = unpack(torch.sigmoid(admit) * torch.tanh(content))
    return linear_scan(pack(decay), pack(product((gain[0] * unit, gain[1] * unit), admitted)), start)


def _in_pieces(signals: list[Tensor], system: tuple[Tensor, ...], start: Tensor) -> Tensor:
    """On CPU a clip is computed in pieces that fit the cache, and gates again for the gradient: allocating memory costs more there."""
    steps, rows, dim = signals[-1].shape
    length = max(1, PIECE // (rows * dim))
    if start.device.type != "cpu" or torch.compiler.is_compiling() or length >= steps:
        whole: list[Tensor] = [*signals, *system, start]
        return _gated_scan(*whole)
    states = []
    for piece in zip(*(signal.split(length) for signal in signals), strict=True):
        inputs: list[Tensor] = [*piece, *system, start]
        if torch.is_grad_enabled():
            states.append(checkpoint(_gated_scan, *inputs, use_reentrant=False, preserve_rng_state=False))
        else:
            states.append(_gated_scan(*inputs))
        start = states[-1][-1]
    return torch.cat(states)
