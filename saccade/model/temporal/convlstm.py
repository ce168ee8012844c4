"""RED's ConvLSTM: gates by a 3x3 convolution of [x, hidden], so that what is remembered can move to a neighbouring pixel."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.temporal.interface import LayerState, check_features, check_state, check_steps


class ConvLSTM(nn.Module):
    """State: (hidden, cell), each (B, H, W, C). dt is accepted and ignored, as by the LSTM.

    Shi et al. 2015, without peepholes. Order of the gates as in our LSTM: forget, input, output, candidate. In RED the layer also halves
    the resolution; here the stage's own convolution before it does.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.gates = nn.Conv2d(2 * dim, 4 * dim, 3, padding=1)

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("convlstm", x, self.dim)
        zeros = torch.zeros(*x.shape[1:], dtype=self.gates.weight.dtype, device=x.device)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("convlstm", x, self.dim)
        check_state("convlstm", state, [tuple(x.shape[1:])] * 2, self.gates.weight)
        check_steps("convlstm", dt, x)
        from_x, from_hidden = self.gates.weight.chunk(2, 1)
        (hidden, cell), outputs = state, []
        given = _convolve(x.flatten(0, 1).to(hidden.dtype), from_x, self.gates.bias).unflatten(0, x.shape[:2])
        for now in given:
            gates = (now + _convolve(hidden, from_hidden)).to(hidden.dtype)
            forget, admit, show = torch.sigmoid(gates[..., : 3 * self.dim]).chunk(3, -1)
            cell = forget * cell + admit * torch.tanh(gates[..., 3 * self.dim :])
            hidden = show * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs), (hidden, cell)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """3x3, of channels that come last."""
    return F.conv2d(x.permute(0, 3, 1, 2), weight, bias, padding=1).permute(0, 2, 3, 1)
