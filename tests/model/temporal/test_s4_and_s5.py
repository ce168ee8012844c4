"""The paper's appendix on S4 and S5: with one state matrix and one timescale, S5's states are the sums of those of S4's channels."""

import pytest
import torch

from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5

CHANNELS = 6  # as many inputs H as real states N


def shared(build: type[S4] | type[S4D], discretisation: str) -> tuple[S4 | S4D, S5]:
    """H systems of one input with the same diagonal A and timescale, and the S5 whose B has their input vectors as columns."""
    torch.manual_seed(0)
    many = build(CHANNELS, order=CHANNELS, discretisation=discretisation).double()
    one = S5(CHANNELS, spectrum="half", discretisation=discretisation).double()
    with torch.no_grad():
        many.log_decay.copy_(many.log_decay[:1].expand_as(many.log_decay))
        many.frequency.copy_(many.frequency[:1].expand_as(many.frequency))
        many.B.normal_()
        many.log_step.fill_(-2.0)
        if isinstance(many, S4):
            many.low_rank.zero_()  # what is left of S4 is the normal part, the diagonal matrix that S5 starts from
        one.log_decay.copy_(many.log_decay[0])
        one.frequency.copy_(many.frequency[0])
        one.B.copy_(many.B.transpose(0, 1))
        one.log_step.fill_(-2.0)
    return many, one


@pytest.mark.parametrize("build", [S4, S4D])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_states_of_s5_are_sums_of_those_of_s4(build: type[S4] | type[S4D], discretisation: str) -> None:
    many, one = shared(build, discretisation)
    state_many, state_one = None, None
    for steps, dt in ((5, 1.0), (3, 0.1), (1, 2.7)):  # the state is carried from clip to clip, and the rate changes
        x = torch.randn(steps, 2, 3, 4, CHANNELS, dtype=torch.double)
        time = torch.full((steps, 2), dt, dtype=torch.double)
        _, state_many = many(x, state_many or many.initial_state(x), time)
        y, state_one = one(x, state_one or one.initial_state(x), time)
        summed = state_many[0].sum(1).permute(0, 2, 3, 1)  # over the channels; N real numbers a pixel, [real | imaginary]
        torch.testing.assert_close(state_one[0], summed)
        # y = C^equiv x^(1:H), C^equiv = [C ... C]: every output of S5 sees the states of all H systems, one of S4 only its own
        observe = torch.cat([one.C[..., 0], -one.C[..., 1]], -1)
        torch.testing.assert_close(y[-1], summed @ observe.T + one.D * x[-1])


@pytest.mark.parametrize("blocks", [2, 4])
def test_blocks_of_s5_are_systems_whose_outputs_add_up(blocks: int) -> None:
    """The paper's J: an S5 of J blocks is J smaller S5s beside each other."""
    torch.manual_seed(0)
    dim = 16
    whole = S5(dim, spectrum="half", blocks=blocks).double()
    x, dt = torch.randn(7, 1, 2, 3, dim, dtype=torch.double), torch.rand(7, 1, dtype=torch.double) + 0.1
    y, _ = whole(x, whole.initial_state(x), dt)
    parts = -whole.D * x * (blocks - 1)  # each part brings the direct path
    size = dim // 2 // blocks
    for first in range(0, dim // 2, size):
        part = slice(first, first + size)
        alone = S5(dim, spectrum="half").double()
        for name in ("log_decay", "frequency", "B", "log_step"):
            setattr(alone, name, torch.nn.Parameter(getattr(whole, name)[part]))
        alone.C, alone.D = torch.nn.Parameter(whole.C[:, part]), whole.D
        parts = parts + alone(x, alone.initial_state(x), dt)[0]
    torch.testing.assert_close(y, parts)
