"""Every layer against textbook computations on full complex matrices in float64."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch

from saccade.model.temporal.initialise import legs_input, legs_low_rank, legs_matrix, modes
from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5

METHODS = {"zoh": "zoh", "bilinear": "bilinear", "euler": "euler"}
T, PIXELS = 9, 3


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def as_complex(parameter):
    values = parameter.detach().numpy()
    return values[..., 0] + 1j * values[..., 1]


def real_system(eigenvalues, control, observe):
    """y = Re(C x) with complex x as a real system of twice the size."""
    matrix = np.block([[np.diag(eigenvalues.real), -np.diag(eigenvalues.imag)], [np.diag(eigenvalues.imag), np.diag(eigenvalues.real)]])
    return matrix, np.concatenate([control.real, control.imag]), np.concatenate([observe.real, -observe.imag], 1)


def sampled(matrix, control, step, method):
    """x[t] = A x[t-1] + B u[t]; zero-order hold by the matrix exponential, bilinear by its definition, others by scipy.signal."""
    size, inputs = control.shape
    if method == "zoh":
        whole = scipy.linalg.expm(step * np.block([[matrix, control], [np.zeros((inputs, size + inputs))]]))
        return whole[:size, :size], whole[:size, size:]
    if method == "bilinear":
        inverse = np.linalg.inv(np.eye(size) - step / 2 * matrix)
        return inverse @ (np.eye(size) + step / 2 * matrix), step * inverse @ control
    a, b, *_ = scipy.signal.cont2discrete((matrix, control, np.eye(size), np.zeros((size, inputs))), step, "euler")
    return a, b


def simulate(system, u, dt, method, start):
    matrix, control, observe = system
    state, outputs = start, []
    for value, step in zip(u, dt, strict=True):
        a, b = sampled(matrix, control, step, method)
        state = a @ state + b @ value
        outputs.append(observe @ state)
    return np.array(outputs), state


@pytest.mark.parametrize("equal_steps", [True, False])
@pytest.mark.parametrize("initialisation", ["legs", "inv", "lin"])
@pytest.mark.parametrize("method", METHODS)
def test_s5(method, initialisation, equal_steps):
    # Euler only where it is stable; elsewhere ours is tamed on purpose.
    layer = S5(6, discretisation=method, initialisation=initialisation, step_limits=(0.001, 0.002) if method == "euler" else (0.01, 0.5))
    x = torch.randn(T, 1, 1, PIXELS, 6)
    dt = np.full(T, 0.8) if equal_steps else np.random.default_rng(0).uniform(0.1, 2, T)
    start = torch.randn(1, 1, PIXELS, 12)
    y, (last,) = layer(x, (start,), torch.tensor(dt)[:, None])
    step = np.exp(layer.log_step.detach().numpy())
    eigenvalues = (-layer.log_decay.exp() + 1j * layer.frequency).detach().numpy() * step
    system = real_system(eigenvalues, as_complex(layer.B) * step[:, None], as_complex(layer.C))
    for pixel in range(PIXELS):
        u = x[:, 0, 0, pixel].numpy()
        expected, state = simulate(system, u, dt, method, start[0, 0, pixel].numpy())
        np.testing.assert_allclose(y[:, 0, 0, pixel].detach().numpy(), expected + u * layer.D.detach().numpy(), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(last[0, 0, pixel].detach().numpy(), state, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", ["kernel", "recurrence"])
@pytest.mark.parametrize("initialisation", ["legs", "inv", "lin"])
@pytest.mark.parametrize("method", METHODS)
def test_s4d(method, initialisation, form):
    limits = (0.001, 0.002) if method == "euler" else (0.01, 0.5)
    layer = S4D(2, order=6, discretisation=method, initialisation=initialisation, step_limits=limits, form=form)
    x, dt = torch.randn(T, 1, 1, PIXELS, 2), np.random.default_rng(0).uniform(0.1, 2, T)
    start = torch.randn(1, 2, 6, 1, PIXELS)
    y, (last,) = layer(x, (start,), torch.tensor(dt)[:, None])
    for channel in range(2):
        step = layer.log_step[channel].exp().item()
        eigenvalues = (-layer.log_decay.exp() + 1j * layer.frequency).detach().numpy()[channel] * step
        system = real_system(eigenvalues, as_complex(layer.B)[channel, :, None] * step, as_complex(layer.C)[channel][None])
        u = x[:, 0, 0, :, channel].numpy()[:, None]
        expected, state = simulate(system, u, dt, method, start[0, channel, :, 0].numpy())
        direct = layer.D[channel].item() * u
        np.testing.assert_allclose(y[:, 0, 0, :, channel].detach().numpy(), (expected + direct)[:, 0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(last[0, channel, :, 0].detach().numpy(), state, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", ["kernel", "recurrence"])
@pytest.mark.parametrize("method", ["zoh", "bilinear"])
def test_s4_is_the_full_legs_matrix(method, form):
    """Not in the layer's own basis: the HiPPO-LegS matrix as printed in the paper, with C taken back to that basis."""
    order = 8
    layer = S4(2, order=order, discretisation=method, form=form, step_limits=(0.01, 0.5))
    x, dt = torch.randn(T, 1, 1, PIXELS, 2), np.random.default_rng(0).uniform(0.1, 2, T)
    y, _ = layer(x, layer.initial_state(x), torch.tensor(dt)[:, None])
    vectors = modes("legs", order).vectors
    for channel in range(2):
        step = layer.log_step[channel].exp().item()
        # y = Re(C z) with z = V* x for real x
        observe = (as_complex(layer.C)[channel][None] @ vectors.conj().T).real
        system = legs_matrix(order) * step, legs_input(order)[:, None] * step, observe
        u = x[:, 0, 0, :, channel].numpy()[:, None]
        expected, _ = simulate(system, u, dt, method, np.zeros((order, PIXELS)))
        direct = layer.D[channel].item() * u
        np.testing.assert_allclose(y[:, 0, 0, :, channel].detach().numpy(), (expected + direct)[:, 0], rtol=1e-8, atol=1e-8)


def test_s4_kernel_is_the_published_generating_function():
    """S4's own way: Cauchy kernels at the roots of unity, Woodbury for the low rank, an inverse FFT, in complex numbers."""
    length, order = 16, 8
    layer = S4(1, order=order, step_limits=(0.05, 0.06))
    step = layer.log_step.exp().item()
    impulse = torch.zeros(length, 1, 1, 1, 1)
    impulse[0] = 1
    found = layer(impulse, layer.initial_state(impulse), torch.ones(length, 1))[0].flatten().detach().numpy()
    found[0] -= layer.D.item()

    eigenvalues = (-layer.log_decay.exp() + 1j * layer.frequency).detach().numpy()[0]
    eigenvalues = np.concatenate([eigenvalues, eigenvalues.conj()])
    low_rank, control, observe = (
        np.concatenate([part, part.conj()]) for part in (as_complex(p)[0] for p in (layer.low_rank, layer.B, layer.C))
    )
    matrix = np.diag(eigenvalues) - np.outer(low_rank, low_rank.conj())
    transition, _ = sampled(matrix, control[:, None], step, "bilinear")
    truncated = observe / 2 @ (np.eye(order) - np.linalg.matrix_power(transition, length))
    roots = np.exp(-2j * np.pi * np.arange(length) / length)
    with np.errstate(divide="ignore", invalid="ignore"):
        frequency = 2 / step * (1 - roots) / (1 + roots)

    def cauchy(left, right):
        return (left * right / (frequency[:, None] - eigenvalues)).sum(1)

    generating = cauchy(truncated, control) - cauchy(truncated, low_rank) * cauchy(low_rank.conj(), control) / (
        1 + cauchy(low_rank.conj(), low_rank)
    )
    generating = 2 / (1 + roots) * generating
    nyquist = length // 2  # z = -1: the pole of the map, where the value is the limit
    generating[nyquist] = (
        truncated @ np.linalg.inv(np.eye(order) + transition) @ sampled(matrix, control[:, None], step, "bilinear")[1][:, 0]
    )
    np.testing.assert_allclose(found, np.fft.ifft(generating).real, rtol=1e-8, atol=1e-8)


def test_lti_clips_agree_with_scipy_signal():
    layer = S4D(1, order=4, step_limits=(0.1, 0.2))
    x = torch.randn(40, 1, 1, 1, 1)
    y, _ = layer(x, layer.initial_state(x), torch.full((40, 1), 1.5))
    step = layer.log_step.exp().item()
    eigenvalues = (-layer.log_decay.exp() + 1j * layer.frequency).detach().numpy()[0] * step
    system = real_system(eigenvalues, as_complex(layer.B)[0][:, None] * step, as_complex(layer.C))
    a, b, *_ = scipy.signal.cont2discrete((*system, np.zeros((1, 1))), 1.5, "zoh")
    # scipy holds u[t] until t+1 and answers one step later: y[t] = C x[t+1].
    numerator, denominator = scipy.signal.ss2tf(a, b, system[2] @ a, system[2] @ b)
    expected = scipy.signal.lfilter(numerator[0], denominator, x.flatten().numpy()) + layer.D.item() * x.flatten().numpy()
    np.testing.assert_allclose(y.flatten().detach().numpy(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("order", [2, 8, 64])
def test_hippo_comes_apart_as_the_paper_says(order):
    whole = modes("legs", order).whole()
    normal = (whole.vectors * whole.eigenvalues) @ whole.vectors.conj().T
    low_rank = legs_low_rank(order)
    np.testing.assert_allclose(normal - np.outer(low_rank, low_rank), legs_matrix(order), atol=1e-9 * order**2)
    np.testing.assert_allclose(whole.eigenvalues.real, -0.5)


def test_published_spectrum():
    """Largest imaginary parts of the published initial weights."""
    assert [round(modes("legs", order).eigenvalues.imag.max()) for order in (48, 64, 128)] == [733, 1303, 5215]
