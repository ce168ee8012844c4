"""The band limit acts in every forward; the H2 norm is what mathematics says it is."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from saccade.model.temporal import build_temporal
from saccade.model.temporal.antialias import Transfer, band_weights, h2_norm
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5
from saccade.types import InputError


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_the_mask_is_the_papers():
    turns = torch.tensor([0.0, 0.2, 0.25, 0.2500001, 0.5, 0.51, 7.0])
    assert band_weights(turns, 0.5, 0.0).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert band_weights(turns, 1.0, 0.0).tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert band_weights(turns, None, 0.0) is None
    assert band_weights(turns, 0, 0.0) is None


def test_the_roll_off_falls_smoothly_within_the_band():
    turns = torch.tensor([0.0, 0.125, 0.1875, 0.25, 1.0], requires_grad=True)
    weights = band_weights(turns, 0.5, 0.5)
    torch.testing.assert_close(weights, torch.tensor([1.0, 1.0, 0.5, 0.0, 0.0]), atol=1e-6, rtol=0)
    weights.sum().backward()
    assert turns.grad[2] < 0


@pytest.mark.parametrize("name", ["s5", "s4d"])
@pytest.mark.parametrize("bandlimit", [0.5, 1.0])
def test_the_mask_silences_exactly_the_right_states_after_training(name, bandlimit):
    """The published code masks once, and training undoes it."""
    size = {"order": 8} if name == "s4d" else {}
    block = build_temporal(name, 16, bandlimit=bandlimit, initialisation="lin", step_limits=(0.02, 0.5), **size)
    memory = block.memory
    before = memory.band().clone()
    optimiser = torch.optim.Adam(block.parameters(), lr=0.02)
    push = torch.randn(memory.log_step.shape).sign()  # half the states speed up, half slow down, and some cross the limit
    x = torch.randn(4, 2, 1, 2, 16)
    for _ in range(100):
        optimiser.zero_grad()
        error = (block(x, block.initial_state(x), torch.ones(4, 2))[0] - x.flip(0)).square().mean()
        (error + (push * memory.log_step).sum()).backward()
        optimiser.step()
    assert not torch.equal(memory.band(), before), "nothing crossed the limit: the test proves nothing"
    step = memory.log_step.exp() if name == "s5" else memory.log_step.exp()[:, None]
    inside = (step * memory.frequency.abs() / (2 * math.pi) <= bandlimit / 2).expand_as(memory.frequency)
    assert inside.any()
    assert not inside.all()
    start = block.initial_state(x)[0]
    quarter = torch.full((4, 2), 0.25)  # at four times the training rate: what was silent in training must not wake up
    usual, _ = memory(x, (start,), quarter)
    for state in range(memory.frequency.numel()):
        changed = start.clone()
        if name == "s5":
            changed[..., state] = 1.0
        else:
            channel, pair = divmod(state, memory.frequency.shape[1])
            changed[:, channel, pair] = 1.0
        differs = not torch.equal(memory(x, (changed,), quarter)[0], usual)
        assert differs == bool(inside.flatten()[state]), state


def small_system(real=False):
    generator = torch.Generator().manual_seed(4)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    eigenvalues = -0.2 - draw(4).abs(), torch.zeros(4, dtype=torch.float64) if real else 2 * draw(4)
    return Transfer(eigenvalues, (draw(4, 3), draw(4, 3)), (draw(2, 4), draw(2, 4)))


def lyapunov(system):
    real, imag = (part.detach().numpy() for part in system.eigenvalues)
    matrix = np.block([[np.diag(real), -np.diag(imag)], [np.diag(imag), np.diag(real)]])
    control = np.concatenate([part.detach().numpy() for part in system.control])
    observe = np.concatenate([system.observe[0].detach().numpy(), -system.observe[1].detach().numpy()], 1)
    return math.sqrt(np.trace(observe @ scipy.linalg.solve_continuous_lyapunov(matrix, -control @ control.T) @ observe.T))


@pytest.mark.parametrize("real", [False, True])
def test_h2_closed_form_is_lyapunovs(real):
    system = small_system(real)
    assert float(h2_norm(system, 0.0)) == pytest.approx(lyapunov(system), rel=1e-10)


@pytest.mark.parametrize("timescales", ["clip", "published"])
def test_h2_of_a_layer_is_lyapunovs(timescales):
    layer = S5(8, timescales=timescales).double()
    assert h2_norm(layer.transfer(), 0.0).item() == pytest.approx(lyapunov(layer.transfer()), rel=1e-8)


@pytest.mark.parametrize("omega_min", [0.0, 0.7, 3.0])
def test_h2_quadrature_is_the_closed_form(omega_min):
    system = small_system()
    tail = float(h2_norm(system, 4000.0)) ** 2
    found = math.sqrt(float(h2_norm(system, omega_min, 4000.0, 400_000)) ** 2 + tail)
    assert found == pytest.approx(float(h2_norm(system, omega_min)), rel=1e-5)


def test_h2_of_s4d_is_the_sum_over_channels():
    layer = S4D(3, order=4, timescales="clip").double()
    whole = layer.transfer()
    parts = []
    for channel in range(3):
        pick = lambda pair, channel=channel: (pair[0][channel], pair[1][channel])  # noqa: E731
        parts.append(lyapunov(Transfer(pick(whole.eigenvalues), pick(whole.control), pick(whole.observe))))
    assert h2_norm(whole, 0.0).item() == pytest.approx(math.hypot(*parts), rel=1e-9)


@pytest.mark.parametrize("omega_max", [None, 50.0])
def test_h2_is_a_loss_that_lowers_the_response(omega_max):
    layer = S5(8, timescales="clip")
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    before = float(h2_norm(layer.transfer()).detach())
    for _ in range(30):
        optimiser.zero_grad()
        loss = h2_norm(layer.transfer(), omega_max=omega_max)
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)
        optimiser.step()
    assert float(h2_norm(layer.transfer()).detach()) < 0.7 * before


def test_h2_of_a_silenced_layer_is_zero_with_finite_gradients():
    for layer in (S5(8, bandlimit=1e-9), S4D(8, order=4, bandlimit=1e-9)):
        norm = h2_norm(layer.transfer())
        assert norm.item() < 1e-9
        norm.backward()
        assert torch.isfinite(layer.C.grad).all()


def test_the_response_is_the_transfer_function():
    system = small_system()
    eigenvalues, control, observe = (torch.complex(*pair) for pair in (system.eigenvalues, system.control, system.observe))
    for omega in (0.0, 1.3, 20.0):
        s = 1j * omega
        residue = lambda a, b, c: (c / (s - a)) @ b  # noqa: E731, B023
        g = (residue(eigenvalues, control, observe) + residue(eigenvalues.conj(), control.conj(), observe.conj())) / 2
        torch.testing.assert_close(system.response(torch.tensor([omega]))[0], torch.linalg.norm(g))


@pytest.mark.parametrize("options", [{"bandlimit": -1.0}, {"bandlimit": math.nan}, {"rolloff": 2.0}])
def test_bad_bands(options):
    with pytest.raises(InputError, match="expected"):
        S5(8, **options)


@pytest.mark.parametrize("arguments", [(-1.0,), (1.0, 0.5), (1.0, 2.0, 1)])
def test_bad_h2(arguments):
    with pytest.raises(InputError, match="omega_min"):
        h2_norm(small_system(), *arguments)
