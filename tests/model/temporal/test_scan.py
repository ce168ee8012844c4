"""The scans: three ways, one result, true gradients."""

import pytest
import torch

from saccade.model.temporal.pairs import multiply
from saccade.model.temporal.scan import associative_scan, choose, linear_scan, parts, recurrence

METHODS = ["loop", "parallel", "compiled"]


def problem(steps, rows, groups, decay_steps, dtype=torch.float64, states=3):
    generator = torch.Generator().manual_seed(steps * 100 + rows)
    size, phase = torch.rand(2, decay_steps, groups, states, generator=generator, dtype=dtype)
    decay = torch.cat([size * torch.cos(6 * phase), size * torch.sin(6 * phase)], -1)
    return decay, *(torch.randn(*shape, 2 * states, generator=generator, dtype=dtype) for shape in ((steps, rows), (rows,)))


def by_hand(decay, values, start):
    """The definition, in complex numbers."""
    as_complex = [torch.complex(*part.chunk(2, -1)) for part in (decay, values, start)]
    decay, values, state = as_complex
    decay = decay.expand(len(values), -1, -1).repeat_interleave(values.shape[1] // decay.shape[1], 1)
    states = []
    for a, v in zip(decay, values, strict=True):
        state = a * state + v
        states.append(torch.cat([state.real, state.imag], -1))
    return torch.stack(states)


SHAPES = [(1, 4, 1, 1), (2, 4, 1, 1), (5, 6, 2, 5), (7, 40, 1, 1), (8, 6, 6, 8), (21, 36, 2, 21), (64, 2, 1, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_the_definition(method, shape, dtype):
    inputs = problem(*shape, dtype=dtype)
    copies = [part.clone() for part in inputs]
    torch.testing.assert_close(linear_scan(*inputs, method=method), by_hand(*inputs))
    for before, after in zip(copies, inputs, strict=True):
        assert torch.equal(before, after), "arguments are never modified"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_reverse_is_the_scan_of_the_flipped(method, shape):
    decay, values, start = problem(*shape)
    expected = by_hand(decay.flip(0), values.flip(0), start).flip(0)
    torch.testing.assert_close(linear_scan(decay, values, start, reverse=True, method=method), expected)


@pytest.mark.parametrize("shape", SHAPES[:5])
@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_true(method, shape):
    inputs = [part.requires_grad_() for part in problem(*shape)]
    assert torch.autograd.gradcheck(lambda *parts: linear_scan(*parts, method=method), inputs, fast_mode=True)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 13, 16, 31, 32, 33])
@pytest.mark.parametrize("reverse", [False, True])
def test_any_associative_operator(length, reverse):
    """Products of matrices don't commute, so the order is proved too."""
    matrices = torch.randn(length, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(length)) / 2
    (found,) = associative_scan(lambda earlier, later: (earlier[0] @ later[0],), (matrices,), reverse)
    total, expected = torch.eye(3, dtype=torch.float64), []
    for matrix in matrices.flip(0) if reverse else matrices:
        total = total @ matrix
        expected.append(total)
    torch.testing.assert_close(found, torch.stack(expected[::-1] if reverse else expected))


def test_the_parallel_scan_is_work_efficient():
    calls = []

    def count(earlier, later):
        calls.append(len(later[0]))
        return recurrence(earlier, later)

    decay, values, _ = problem(1024, 1, 1, 1024)
    associative_scan(count, (decay, values))
    assert sum(calls) <= 2 * 1024
    assert len(calls) <= 2 * 10


def test_a_generic_scan_is_differentiable():
    decay, values, _ = (part.requires_grad_() for part in problem(6, 2, 1, 6))
    assert torch.autograd.gradcheck(lambda a, v: associative_scan(recurrence, (a.expand(6, 2, 6), v))[1], (decay, values))


def test_long_sums_keep_float32_digits():
    """The decay's gradient sums over 200,000 rows; naive float32 would lose three digits."""
    decay, values, start = problem(3, 200_000, 1, 1, torch.float32, states=1)
    values, start = values + 5, start + 5
    gradients = []
    for dtype in (torch.float32, torch.float64):
        a = decay.detach().to(dtype, copy=True).requires_grad_()
        linear_scan(a, values.to(dtype), start.to(dtype)).sum().backward()
        gradients.append(a.grad.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=2e-6, atol=0)


@pytest.mark.parametrize("groups", [1, 7, 70_000])
def test_threads_share_the_rows(groups):
    decay, values, start = problem(8, 70_000, groups, 8 if groups > 7 else 1)
    results = []
    threads = torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        inputs = [part.clone().requires_grad_() for part in (decay, values, start)]
        states = linear_scan(*inputs)
        assert parts(states) == count
        states.square().sum().backward()
        results.append([states, *(part.grad for part in inputs)])
    torch.set_num_threads(threads)
    torch.testing.assert_close(results[1], results[0])


def test_only_states_are_kept_for_the_backward():
    decay, values, start = (part.requires_grad_() for part in problem(16, 50, 1, 1))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor):
        linear_scan(decay, values, start)
    assert sum(kept) == values.numel() + decay.numel() + start.numel()


def test_the_chooser():
    assert choose(torch.empty(21, 10_240, 4)) == "compiled"
    assert choose(torch.empty(21, 10_240, 4, dtype=torch.float16)) == "loop"
    assert choose(torch.empty(21, 10_240, 4, device="meta")) == "loop"
    assert choose(torch.empty(1000, 64, 4, device="meta")) == "parallel"


def test_packed_products_are_complex_products():
    left, right = torch.randn(2, 5, 6, dtype=torch.float64)
    expected = torch.complex(*left.chunk(2, -1)) * torch.complex(*right.chunk(2, -1))
    torch.testing.assert_close(torch.complex(*multiply(left, right).chunk(2, -1)), expected)
