"""What single layers promise: sizes, published tensors, initialisations, precision, errors, pictures."""

import math
import warnings

import numpy as np
import pytest
import torch

from saccade.model.temporal import TEMPORAL_LAYERS, build_temporal, gs5
from saccade.model.temporal.antialias import plot_memory
from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5, decay_parameters
from saccade.types import InputError

BASE, SMALL = (64, 128, 256, 512), (48, 96, 192, 384)
# The detectors without their memory: published totals less seven C^2 and eight C per stage.
AROUND = {BASE: 18_192_149 - 2_444_800, SMALL: 9_677_205 - 1_376_640}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def clip(dim=8, steps=3, batch=2):
    return torch.randn(steps, batch, 2, 3, dim), torch.ones(steps, batch)


def parameters(name, dims):
    return sum(parameter.numel() for dim in dims for parameter in build_temporal(name, dim).parameters())


@pytest.mark.parametrize(("name", "dims", "millions"), [("s5", BASE, 18.2), ("s5", SMALL, 9.7), ("s4d", BASE, 16.5), ("s4d", SMALL, 8.8)])
def test_parameters_of_the_whole_detector(name, dims, millions):
    assert round((AROUND[dims] + parameters(name, dims)) / 1e6, 1) == millions


def test_parameters_of_s5_and_lstm_are_the_published_ones():
    assert parameters("s5", BASE) == sum(7 * dim**2 + 8 * dim for dim in BASE) == 2_444_800
    assert AROUND[BASE] + parameters("lstm", BASE) == 18_536_469
    assert AROUND[SMALL] + parameters("lstm", SMALL) == 9_870_165


@pytest.mark.parametrize("initialisation", ["legs", "inv", "lin"])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("timescales", ["published", "clip"])
def test_half_the_spectrum_is_the_same_real_system(initialisation, blocks, timescales):
    options = {"initialisation": initialisation, "blocks": blocks, "timescales": timescales}
    whole, half = (S5(8, spectrum=s, generator=torch.Generator().manual_seed(1), **options).double() for s in ("whole", "half"))
    assert len(half.log_step) * 2 == len(whole.log_step) == 8
    x, dt = clip()
    torch.testing.assert_close(half(x.double(), half.initial_state(x), dt)[0], whole(x.double(), whole.initial_state(x), dt)[0])


def test_blocks_repeat_a_smaller_spectrum():
    frequency = S5(16, blocks=4, spectrum="half").frequency.view(4, 2)
    torch.testing.assert_close(frequency, frequency[:1].expand(4, 2))
    torch.testing.assert_close(frequency[0].detach(), S5(4, spectrum="half").frequency.detach())


def test_published_timescales():
    log_step = S5(512, spectrum="half").log_step.detach()
    assert math.log(0.001) <= log_step.min()
    assert log_step.max() < math.log(0.1)
    assert abs(log_step.mean() - (math.log(0.001) + math.log(0.1)) / 2) < 0.3


@pytest.mark.parametrize("build", [S5, S4D])
def test_clip_timescales(build):
    layer = build(64, timescales="clip")
    real, imag = (part.detach() for part in layer.transfer().eigenvalues)
    assert (-1 / real).min() >= 0.999
    assert (-1 / real).max() <= 30.001
    assert float(imag.abs().max()) == pytest.approx(math.pi / 10, rel=1e-5)


def test_clip_timescales_of_s4_are_those_of_its_slowest_modes():
    """LegS has the eigenvalues -1, -2, ...: the slowest mode of a channel decays with 1 / step."""
    step = S4(64, timescales="clip").log_step.detach().exp()
    slowest = S4(4, order=8, timescales="clip").double()
    assert (1 / step).min() >= 0.999
    assert (1 / step).max() <= 30.001
    matrix = slowest.matrices()[0].detach()
    assert torch.linalg.eigvals(matrix).real.amax(-1) == pytest.approx(-1, rel=1e-3)


@pytest.mark.parametrize(("name", "times"), [("s5", 2), ("s4d", 2), ("s4", 1.5)])
def test_clip_timescales_bring_memory_to_the_output(name, times):
    """The share of the output that comes from the past, after ten frames of noise, grows over the published start; S4's is no small one."""
    x, dt = torch.randn(10, 4, 4, 4, 64), torch.ones(10, 4)
    share = {}
    for timescales in ("published", "clip"):
        memory = build_temporal(name, 64, timescales=timescales).memory
        y, _ = memory(x, memory.initial_state(x), dt)
        share[timescales] = float((y - memory.D * x)[-1].detach().std())
    assert 0.5 < share["clip"] < 2
    assert share["clip"] > times * share["published"]


def test_published_tensors_load():
    torch.manual_seed(2)
    spectrum = torch.stack([-torch.rand(8) - 0.1, 10 * torch.randn(8)], 1)
    layer = S5(8, discretisation="bilinear")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = decay_parameters(spectrum)
    published = {"B": torch.randn(8, 8, 2), "C": torch.randn(8, 8, 2), "D": torch.rand(8), "log_step": torch.rand(8) - 4}
    layer.load_state_dict({**fitted, **published})
    torch.testing.assert_close(torch.stack(layer.eigenvalues(), 1), spectrum)


def test_published_states_that_grow_are_clipped_with_a_warning():
    with pytest.warns(UserWarning, match="1 states"):
        fitted = decay_parameters(torch.tensor([[0.3, 1.0], [-0.5, 2.0]]))
    torch.testing.assert_close(-fitted["log_decay"].exp(), torch.tensor([-1e-4, -0.5]))


@pytest.mark.parametrize("equal_steps", [True, False])
def test_bidirectional_sees_the_future_and_forward_is_unchanged(equal_steps):
    layer = S5(8, bidirectional=True, timescales="clip", bandlimit=0.5)
    one_way = S5(8, timescales="clip", bandlimit=0.5)
    values = {name: value for name, value in layer.state_dict().items() if name != "C"}
    one_way.load_state_dict({**values, "C": layer.C.detach()[:, :8]})
    x, dt = clip(steps=5)
    dt = dt if equal_steps else 0.5 + torch.rand_like(dt)
    start = (torch.randn(2, 2, 3, 16),)
    y, last = layer(x, start, dt)
    forward, last_forward = one_way(x, start, dt)
    torch.testing.assert_close(last, last_forward)
    one_way.load_state_dict({**values, "C": layer.C.detach()[:, 8:]})
    backward, _ = one_way(x.flip(0), layer.initial_state(x), dt.flip(0))
    torch.testing.assert_close(y, forward + backward.flip(0) - layer.D * x, rtol=1e-4, atol=1e-4)
    y.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("name", TEMPORAL_LAYERS)
def test_autocast_doesnt_hurt_the_state(name):
    """bf16 alone would forget steps below 1/256 of the state."""
    layer = build_temporal(name, 8)
    x, dt = clip(steps=12)
    y, state = layer(x, layer.initial_state(x), dt)
    with torch.autocast("cpu", torch.bfloat16):
        low, low_state = layer(x, layer.initial_state(x), dt)
        low.float().sum().backward()
        again, _ = layer(x, low_state, dt)
    assert torch.isfinite(again).all()
    assert all(part.dtype == torch.float32 for part in low_state)
    torch.testing.assert_close(low.float(), y, rtol=0.1, atol=0.1)
    torch.testing.assert_close(low_state, state, rtol=0.05, atol=0.05)
    assert all(parameter.grad is not None and torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", TEMPORAL_LAYERS)
def test_one_seed_one_layer(name):
    layers = []
    for _ in range(2):
        torch.manual_seed(11)
        layers.append(build_temporal(name, 8).state_dict())
    assert all(torch.equal(value, layers[1][key]) for key, value in layers[0].items())


def test_nothing_hides_in_a_module():
    for name in TEMPORAL_LAYERS:
        assert not list(build_temporal(name, 8).buffers())


@pytest.mark.parametrize("name", TEMPORAL_LAYERS)
def test_the_state_of_a_clip_doesnt_keep_the_clip(name):
    layer = build_temporal(name, 8)
    x, dt = clip(steps=50)
    with torch.no_grad():
        _, state = layer(x, layer.initial_state(x), dt)
    for part in state:
        assert part.untyped_storage().nbytes() == part.numel() * part.element_size()


@pytest.mark.parametrize("name", TEMPORAL_LAYERS)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, s, dt: (x[0], s, dt), r"\(T, B, H, W, 8\)"),
        (lambda x, s, dt: (x[..., :5], s, dt), r"\(T, B, H, W, 8\)"),
        (lambda x, s, dt: (x[:0], s, dt), r"\(T, B, H, W, 8\)"),
        (lambda x, s, dt: (x.long(), s, dt), "floating point"),
        (lambda x, s, dt: (x, s, dt.long()), "float"),
        (lambda x, s, dt: (x, s, dt[:1]), r"\(T, B\) = \(3, 2\)"),
        (lambda x, s, dt: (x, s, dt[:, 0]), r"\(T, B\) = \(3, 2\)"),
        (lambda x, s, dt: (x, s, dt * 0), "positive"),
        (lambda x, s, dt: (x, s, -dt), "positive"),
        (lambda x, s, dt: (x, s, dt * math.nan), "positive"),
        (lambda x, s, dt: (x, s, dt / 0), "positive"),
        (lambda x, s, dt: (x, tuple(part[:1] for part in s), dt), "state must be"),
        (lambda x, s, dt: (x, (), dt), "state must be"),
        (lambda x, s, dt: (x, tuple(part.double() for part in s), dt), "state must be"),
        (lambda x, s, dt: (x, build_temporal("lstm" if len(s) == 1 else "s5", 8).initial_state(x), dt), "state must be"),
    ],
)
def test_bad_input(name, spoil, message):
    layer = build_temporal(name, 8)
    x, dt = clip()
    with pytest.raises(InputError, match=message):
        layer(*spoil(x, layer.initial_state(x), dt))


@pytest.mark.parametrize(
    ("name", "dim", "options"),
    [
        ("s6", 8, {}),
        ("s5", 0, {}),
        ("s5", 7, {}),
        ("gs5", 7, {}),
        ("lstm", 8, {"bandlimit": 0.5}),
        ("s4", 8, {"bandlimit": 0.5}),
        ("s4", 8, {"discretisation": "euler"}),
        ("s4", 8, {"form": "fft"}),
        ("s4d", 8, {"form": "fft"}),
        ("s4d", 8, {"order": 5}),
        ("s5", 8, {"blocks": 3}),
        ("s5", 8, {"spectrum": "quarter"}),
        ("s5", 8, {"initialisation": "hippo"}),
        ("s5", 8, {"discretisation": "rk4"}),
        ("s4d", 8, {"discretisation": "rk4"}),
        ("s4d", 8, {"timescales": "long"}),
        ("s5", 8, {"step_limits": (0.1, 0.01)}),
    ],
)
def test_bad_options(name, dim, options):
    with pytest.raises(InputError):
        build_temporal(name, dim, **options)


@pytest.mark.parametrize("name", ["s5", "s4d"])
@pytest.mark.parametrize("bandlimit", [None, 0.5])
def test_plot(name, bandlimit, tmp_path):
    layer = build_temporal(name, 32, bandlimit=bandlimit)
    figure = plot_memory(layer)
    figure.savefig(tmp_path / "memory.png")
    states, response = figure.axes
    assert len(states.collections[0].get_offsets()) == layer.memory.frequency.numel()
    hollow = int((np.asarray(states.collections[0].get_facecolors())[:, 3] == 0).sum())
    assert (hollow > 0) == (bandlimit is not None)
    assert [line.get_label() for line in response.lines[1:]] == ["Nyquist of training"] + ["band limit 0.5"] * bool(bandlimit)


def test_plot_needs_a_spectrum():
    with pytest.raises(InputError, match="spectrum"):
        plot_memory(build_temporal("lstm", 8))


@pytest.mark.parametrize("piece", [1, 100])
def test_gated_s5_in_pieces_is_the_same(piece, monkeypatch):
    layer = build_temporal("gs5", 8)
    x, dt = clip(steps=7)
    results = []
    for size in (10**9, piece):
        monkeypatch.setattr(gs5, "PIECE", size)
        inputs = [x.clone().requires_grad_(), *layer.parameters()]
        y, state = layer(inputs[0], layer.initial_state(x), dt)
        results.append([y, *state, *torch.autograd.grad(y.square().sum(), inputs)])
        with torch.no_grad():
            torch.testing.assert_close(layer(x, layer.initial_state(x), dt)[0], y)
    torch.testing.assert_close(results[1], results[0])
