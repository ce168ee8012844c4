"""RED's memory: what it computes, and how far a pixel's memory goes."""

import torch
from torch import Tensor

from saccade.model.temporal.convlstm import ConvLSTM

DIM = 3


def plain(layer: ConvLSTM, x: Tensor) -> Tensor:
    """Step by step and pixel by pixel, by the equations; x (T, H, W, C)."""
    weight, bias = layer.gates.weight, layer.gates.bias
    assert bias is not None
    hidden = cell = torch.zeros_like(x[0])
    outputs = []
    for now in x:
        both = torch.nn.functional.pad(torch.cat([now, hidden], -1), (0, 0, 1, 1, 1, 1))
        gates = torch.stack(
            [
                torch.stack([torch.einsum("hwc,ochw->o", both[y : y + 3, x : x + 3], weight) for x in range(now.shape[1])])
                for y in range(now.shape[0])
            ]
        )
        forget, admit, show, candidate = (gates + bias).split(DIM, -1)
        cell = forget.sigmoid() * cell + admit.sigmoid() * candidate.tanh()
        hidden = show.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs)


@torch.no_grad()
def test_it_is_the_equations() -> None:
    torch.manual_seed(0)
    layer, clip = ConvLSTM(DIM).double(), torch.randn(4, 2, 3, 5, DIM, dtype=torch.float64)
    y, (hidden, _) = layer(clip, layer.initial_state(clip), torch.ones(4, 2))
    for sample in range(2):
        torch.testing.assert_close(y[:, sample], plain(layer, clip[:, sample]))
    torch.testing.assert_close(hidden, y[-1])


@torch.no_grad()
def test_memory_moves_by_one_pixel_a_step() -> None:
    torch.manual_seed(0)
    layer, quiet = ConvLSTM(DIM), torch.zeros(3, 1, 9, 9, DIM)
    (hidden, cell), dt = layer.initial_state(quiet), torch.ones(3, 1)
    touched = hidden.clone()
    touched[0, 4, 4] = 1
    expected, found = layer(quiet, (hidden, cell), dt)[0], layer(quiet, (touched, cell), dt)[0]
    for step, difference in enumerate((found - expected).abs().amax(-1)[:, 0]):
        reach = slice(3 - step, 6 + step)
        assert (difference[reach, reach] > 0).all()
        difference[reach, reach] = 0
        assert not difference.any()
