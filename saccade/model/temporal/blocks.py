"""What surrounds a memory in the backbone, features in, features out: as published for S5, S4D and S4; gated S5's is ours."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.linear import Linear
from saccade.model.recomputed import gated_linear, gelu_linear, norm_linear
from saccade.model.temporal.gs5 import GatedS5
from saccade.model.temporal.interface import LayerState, check_features
from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5


class S5Block(nn.Module):
    """S5, then a gated feed-forward. Residuals are taken after the norm, so that published weights load."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.memory = S5(dim, **options)
        self.feed_norm = nn.LayerNorm(dim)
        self.feed_in = Linear(dim, 2 * dim, bias=False)
        self.feed_out = Linear(dim, dim, bias=False)

    def initial_state(self, x: Tensor) -> LayerState:
        return self.memory.initial_state(x)

    def prepare(self, dt: float) -> None:
        self.memory.prepare(dt)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("s5", x, self.memory.dim)
        u = self.norm(x.to(self.norm.weight.dtype))
        y, state = self.memory(u, state, dt)
        v = self.feed_norm(F.gelu(y) + u)
        return gated_linear(self.feed_in(v), self.feed_out.weight) + v, state


class MixedBlock(nn.Module):
    """S4 or S4D see one channel each; a gated linear unit mixes them (S4's output mixing). Residual before the norm."""

    def __init__(self, memory: S4 | S4D) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(memory.dim)
        self.memory = memory
        self.mix = Linear(memory.dim, 2 * memory.dim)

    def initial_state(self, x: Tensor) -> LayerState:
        return self.memory.initial_state(x)

    def prepare(self, dt: float) -> None:
        self.memory.prepare(dt)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("s4 or s4d", x, self.memory.dim)
        x = x.to(self.norm.weight.dtype)
        y, state = self.memory(self.norm(x), state, dt)
        return x + F.glu(gelu_linear(y, self.mix.weight, self.mix.bias), -1), state


class GatedBlock(nn.Module):
    """Gated S5, then a gated feed-forward that combines memory and input; both with a residual before the norm, as in S4D's block."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__()
        self.memory = GatedS5(dim, **options)  # has its own norm
        self.feed_norm = nn.LayerNorm(dim)
        self.feed_in = Linear(dim, 2 * dim, bias=False)
        self.feed_out = Linear(dim, dim, bias=False)
        self.project = Linear(dim, dim, bias=False)

    def initial_state(self, x: Tensor) -> LayerState:
        return self.memory.initial_state(x)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        y, state = self.memory(x, state, dt)
        x = x.to(self.project.weight.dtype) + self.project(y)
        return x + gated_linear(norm_linear(x, self.feed_norm, self.feed_in.weight, None), self.feed_out.weight), state
