"""RVT's LSTM: one cell per pixel, gates by a 1x1 convolution of [x, hidden], optionally a depthwise 3x3 on the hidden state first."""

import torch
from torch import Tensor, nn

from saccade.model.linear import linear
from saccade.model.temporal.interface import LayerState, check_features, check_state, check_steps


class LSTM(nn.Module):
    """State: (hidden, cell), each (B, H, W, C). dt is accepted and ignored: that is the paper's comparison.

    `gates.weight` (4C, 2C) is the published `conv1x1.weight` without its last two axes; order: forget, input, output, candidate.
    """

    def __init__(self, dim: int, *, depthwise: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.gates = nn.Linear(2 * dim, 4 * dim)
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim) if depthwise else None

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("lstm", x, self.dim)
        zeros = torch.zeros(*x.shape[1:], dtype=self.gates.weight.dtype, device=x.device)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("lstm", x, self.dim)
        check_state("lstm", state, [tuple(x.shape[1:])] * 2, self.gates.weight)
        check_steps("lstm", dt, x)
        from_x, from_hidden = self.gates.weight.chunk(2, 1)
        (hidden, cell), outputs = state, []
        for now in x:
            seen = hidden if self.depthwise is None else self.depthwise(hidden.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            given = linear(now.to(hidden.dtype), from_x, self.gates.bias)
            gates = (given + linear(seen.to(hidden.dtype), from_hidden)).to(hidden.dtype)
            forget, admit, show = torch.sigmoid(gates[..., : 3 * self.dim]).chunk(3, -1)
            cell = forget * cell + admit * torch.tanh(gates[..., 3 * self.dim :])
            hidden = show * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs), (hidden, cell)
