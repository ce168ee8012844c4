"""Laws of memory, for every layer, initialisation, discretisation and precision."""

import itertools

import pytest
import torch

from saccade.model.temporal import TEMPORAL_LAYERS, build_temporal

DIAGONAL = [
    (name, {"initialisation": initialisation, "discretisation": discretisation})
    for name, initialisation, discretisation in itertools.product(["s5", "s4d"], ["legs", "inv", "lin"], ["zoh", "bilinear", "euler"])
]
OTHERS = [
    ("s5", {"spectrum": "half"}),
    ("s5", {"blocks": 2, "bandlimit": 0.5}),
    ("s5", {"timescales": "clip"}),
    ("s5", {"bandlimit": 1.0, "rolloff": 0.5}),
    ("s4d", {"timescales": "clip", "bandlimit": 0.5}),
    ("s4d", {"form": "recurrence"}),
    ("s4", {"discretisation": "bilinear"}),
    ("s4", {"discretisation": "zoh"}),
    ("gs5", {}),
    ("lstm", {}),
    ("lstm", {"depthwise": True}),
    ("convlstm", {}),
]
CASES = DIAGONAL + OTHERS
HELD = [case for case in CASES if case[0] == "gs5" or (case[0] in ("s5", "s4d") and case[1].get("discretisation", "zoh") == "zoh")]
HELD += [("s4", {"discretisation": "zoh"})]
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-4}, torch.float64: {"rtol": 1e-9, "atol": 1e-9}}
DIM = 8


def name_of(value):
    return "-".join([value[0], *map(str, value[1].values())]) if isinstance(value, tuple) else str(value).replace("torch.", "")


def cases(chosen=CASES):
    return pytest.mark.parametrize(("case", "dtype"), list(itertools.product(chosen, DTYPES)), ids=name_of)


def build(case, dtype):
    torch.manual_seed(3)
    name, options = case
    options = {"order": 8, **options} if name in ("s4", "s4d") else options
    return build_temporal(name, DIM, **options).to(dtype)


def clip(dtype, steps=7, batch=2):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(steps, batch, 2, 3, DIM, generator=generator, dtype=dtype)
    return x, 0.05 + 2 * torch.rand(steps, batch, generator=generator, dtype=dtype)


def random_state(layer, x):
    generator = torch.Generator().manual_seed(7)
    return tuple(torch.randn(part.shape, generator=generator, dtype=part.dtype) for part in layer.initial_state(x))


def test_every_layer_is_under_these_laws():
    assert {name for name, _ in CASES} == set(TEMPORAL_LAYERS)


@pytest.mark.parametrize("equal_steps", [True, False])
@cases()
def test_any_split_equals_one_pass(case, dtype, equal_steps):
    layer = build(case, dtype)
    x, dt = clip(dtype)
    dt = torch.full_like(dt, 0.7) if equal_steps else dt
    start = random_state(layer, x)
    whole, last = layer(x, start, dt)
    for lengths in ([1] * 7, [3, 4], [1, 5, 1]):
        state, parts = start, []
        for part, steps in zip(x.split(lengths), dt.split(lengths), strict=True):
            y, state = layer(part, state, steps)
            parts.append(y)
        torch.testing.assert_close(torch.cat(parts), whole, **TOLERANCE[dtype])
        for a, b in zip(state, last, strict=True):
            torch.testing.assert_close(a, b, **TOLERANCE[dtype])


@cases()
def test_a_changed_state_changes_the_output(case, dtype):
    layer = build(case, dtype)
    x, dt = clip(dtype, steps=2)
    start = layer.initial_state(x)
    for which in range(len(start)):
        changed = tuple(part + 1.0 if i == which else part for i, part in enumerate(start))
        assert (layer(x, changed, dt)[0][-1] - layer(x, start, dt)[0][-1]).abs().max() > 1e-4


@cases()
def test_silence_forgets(case, dtype):
    """Under zero input two different pasts come together; for the linear layers that is: the state decays."""
    layer = build(case, dtype)
    x = torch.zeros(400, 1, 1, 1, DIM, dtype=dtype)
    dt = torch.full((400, 1), 2.0, dtype=dtype)
    first, second = layer.initial_state(x), random_state(layer, x)
    before = sum((a - b).norm() for a, b in zip(first, second, strict=True))
    distance = [before]
    for _ in range(3):
        first, second = layer(x, first, dt)[1], layer(x, second, dt)[1]
        distance.append(sum((a - b).norm() for a, b in zip(first, second, strict=True)))
    assert all(later < 0.98 * earlier or later < 1e-4 for earlier, later in itertools.pairwise(distance)), distance


@cases(HELD)
def test_two_half_steps_are_one_step_under_a_held_input(case, dtype):
    layer = build(case, dtype)
    x, dt = clip(dtype)
    start = random_state(layer, x)
    whole, last = layer(x, start, dt)
    halves, last_of_halves = layer(x.repeat_interleave(2, 0), start, dt.repeat_interleave(2, 0) / 2)
    torch.testing.assert_close(halves[1::2], whole, **TOLERANCE[dtype])
    torch.testing.assert_close(last_of_halves, last, **TOLERANCE[dtype])


@cases()
def test_a_stream_without_gradients_is_the_same(case, dtype):
    layer = build(case, dtype)
    x, dt = clip(dtype)
    whole, last = layer(x, random_state(layer, x), dt)
    state = random_state(layer, x)
    with torch.no_grad():
        for t, expected in enumerate(whole):
            before = [part.clone() for part in state]
            y, following = layer(x[t : t + 1], state, dt[t : t + 1])
            assert all(torch.equal(a, b) for a, b in zip(before, state, strict=True)), "arguments are never modified"
            torch.testing.assert_close(y[0], expected, **TOLERANCE[dtype])
            state = following
    torch.testing.assert_close(state, last, **TOLERANCE[dtype])


@cases()
def test_samples_with_other_steps_dont_mix(case, dtype):
    layer = build(case, dtype)
    x, dt = clip(dtype, batch=3)
    start = random_state(layer, x)
    together, _ = layer(x, start, dt)
    for b in range(3):
        alone, _ = layer(x[:, b : b + 1], tuple(part[b : b + 1] for part in start), dt[:, b : b + 1])
        torch.testing.assert_close(alone[:, 0], together[:, b], **TOLERANCE[dtype])


@cases([case for case in CASES if case[0] not in ("lstm", "convlstm")])
def test_time_matters(case, dtype):
    layer = build(case, dtype)
    x, dt = clip(dtype)
    assert (layer(x, layer.initial_state(x), dt)[0] - layer(x, layer.initial_state(x), 2 * dt)[0]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["lstm", "convlstm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_lstms_ignore_time(name, dtype):
    layer = build((name, {}), dtype)
    x, dt = clip(dtype)
    torch.testing.assert_close(layer(x, layer.initial_state(x), dt)[0], layer(x, layer.initial_state(x), 2 * dt)[0], rtol=0, atol=0)


@pytest.mark.parametrize("equal_steps", [True, False])
@cases()
def test_every_parameter_gets_a_gradient(case, dtype, equal_steps):
    layer = build(case, dtype)
    x, dt = clip(dtype)
    dt = torch.ones_like(dt) if equal_steps else dt
    y, state = layer(x, random_state(layer, x), dt)
    (y.square().sum() + sum(part.square().sum() for part in state)).backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("equal_steps", [True, False])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_gradients_are_true(case, equal_steps):
    """Of the input, the state, the steps and every parameter, against finite differences."""
    torch.manual_seed(1)
    name, options = case
    options = {"order": 4, **options} if name in ("s4", "s4d") else options
    layer = build_temporal(name, 4, **options).double()
    x = torch.randn(3, 2, 1, 2, 4, dtype=torch.float64, requires_grad=True)
    dt = torch.ones(3, 2, dtype=torch.float64) if equal_steps else torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn_like(part).requires_grad_() for part in layer.initial_state(x))
    names, parameters = zip(*layer.named_parameters(), strict=True)
    count = len(state)

    def call(x, dt, *rest):
        y, last = torch.func.functional_call(layer, dict(zip(names, rest[count:], strict=True)), (x, rest[:count], dt))
        return y, *last

    with torch.no_grad():  # no mode may sit on the edge of the mask or of Euler's unit disc
        inputs = (x, dt, *state, *(parameter.detach().clone().requires_grad_() for parameter in parameters))
    assert torch.autograd.gradcheck(call, inputs, atol=1e-5, rtol=1e-3, fast_mode=True)


@cases()
def test_nothing_is_nan_at_extreme_steps(case, dtype):
    layer = build(case, dtype)
    x, _ = clip(dtype, steps=6)
    extremes = torch.tensor([1e-4, 100, 1e-3, 1, 100, 1e-4], dtype=dtype)
    for dt in (extremes[:, None].repeat(1, 2), *(torch.full((6, 2), float(value), dtype=dtype) for value in extremes[:2])):
        layer.zero_grad()
        y, state = layer(x, layer.initial_state(x), dt)
        y.sum().backward()
        assert torch.isfinite(y).all()
        assert all(torch.isfinite(part).all() for part in state)
        assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters() if parameter.grad is not None)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=name_of)
@torch.no_grad()
def test_nothing_is_nan_after_10_000_steps(case):
    layer = build(case, torch.float32)
    x = torch.randn(1000, 1, 1, 1, DIM, generator=torch.Generator().manual_seed(2)) + 1.0
    dt = torch.ones(1000, 1)
    state = layer.initial_state(x)
    for _ in range(10):
        y, state = layer(x, state, dt)
    assert y.abs().max() < 1e4
    assert all(part.abs().max() < 1e4 for part in state)


@cases(OTHERS + DIAGONAL[::4])  # the graph doesn't depend on the initialisation; every discretisation is among them
def test_exports_without_complex_numbers(case, dtype):
    layer = build(case, dtype).eval()
    for steps in (1, 3):
        x, dt = clip(dtype, steps)
        state = random_state(layer, x)
        program = torch.export.export(layer, (x, state, dt))
        for node in program.graph.nodes:
            value = node.meta.get("val")
            assert not (isinstance(value, torch.Tensor) and value.is_complex()), node
        exported, exported_state = program.module()(x, state, dt)
        y, last = layer(x, state, dt)
        torch.testing.assert_close(exported, y, **TOLERANCE[dtype])
        torch.testing.assert_close(exported_state, last, **TOLERANCE[dtype])
