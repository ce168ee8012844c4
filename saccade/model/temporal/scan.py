"""Linear recurrences over time: x[t] = decay[t] x[t-1] + values[t] on packed complex rows.

Three equal ways: a loop of torch operations, the paper's work-efficient parallel scan (appendix C, Blelloch 1990), and a compiled
loop on CPU. `choose` takes the fastest. The backward of each is the same recurrence run in reverse, so training keeps the states only.

The compiled loop works in place. Rows are pixels, walked in small blocks, all steps of one block before the next, so that a block's state
stays in the cache and memory is read and written once. A kernel does the rows [first_row, last_row) only, so that threads can share the
work. `shared` kernels have one decay per group of rows (a sample), `selective` ones one per row.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from saccade.machine import compiled
from saccade.model.temporal.pairs import multiply, multiply_conjugate

ScanMethod = Literal["loop", "parallel", "compiled"]
Elements = tuple[Tensor, ...]
Decay = Float[Tensor, "#T groups twoP"]  # groups divide the rows: 1 = shared by all, batch = one per sample, rows = one per pixel
Values = Float[Tensor, "T rows twoP"]
Start = Float[Tensor, "rows twoP"]

ELEMENTS_PER_THREAD = 1_000_000  # about a millisecond of work; when starting a thread pays is a guess, not measured
BLOCK = 16  # rows of the compiled loop; 16 KB per step at 128 states


def choose(values: Tensor) -> ScanMethod:
    """On CPU the compiled loop is the fastest. Elsewhere the parallel scan pays when the pixels alone don't fill the device."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return "compiled"
    steps, rows, _ = values.shape
    return "parallel" if steps > 32 and rows < 16_384 else "loop"


def associative_scan(operator: Callable[[Elements, Elements], Elements], elements: Elements, reverse: bool = False) -> Elements:
    """All prefixes e0, e0•e1, e0•e1•e2 ... along axis 0, for any associative `operator(earlier, later)`; `reverse` starts at the end.

    Work-efficient: neighbours are combined, the half as long sequence is scanned, which gives every second prefix, and one
    more combination gives the others. 2T combinations in 2 log T rounds.
    """
    if reverse:
        flipped = associative_scan(operator, tuple(element.flip(0) for element in elements))
        return tuple(element.flip(0) for element in flipped)
    length = elements[0].shape[0]
    if length < 2:
        return elements
    even = tuple(element[0 : length - 1 : 2] for element in elements)
    odd = tuple(element[1::2] for element in elements)
    ends_odd = associative_scan(operator, operator(even, odd))
    if length == 2:
        return tuple(torch.cat([element[:1], end]) for element, end in zip(elements, ends_odd, strict=True))
    ends_even = operator(tuple(end[: (length - 1) // 2] for end in ends_odd), tuple(element[2::2] for element in elements))
    return tuple(_interleave(element[:1], a, b) for element, a, b in zip(elements, ends_odd, ends_even, strict=True))


def _interleave(first: Tensor, odd: Tensor, even: Tensor) -> Tensor:
    out = odd.new_empty(1 + len(odd) + len(even), *odd.shape[1:])
    out[0], out[1::2], out[2::2] = first[0], odd, even
    return out


def recurrence(earlier: Elements, later: Elements) -> Elements:
    """The associative operator of x -> decay x + value: one stretch of time after another."""
    return multiply(later[0], earlier[0]), multiply(later[0], earlier[1]) + later[1]


def grouped(decay: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Both with axes (T, groups, rows of a group, 2P), so that they broadcast."""
    _, groups, width = decay.shape
    return decay.unsqueeze(2), rows.reshape(*rows.shape[:-2], groups, -1, width)


def parts(values: Tensor) -> int:
    """How many threads share the compiled loop: as many as torch may use, each with enough to do."""
    return max(1, min(torch.get_num_threads(), values.numel() // ELEMENTS_PER_THREAD, values.shape[1]))


def _run_compiled(kernel: Callable[..., None], count: int, rows: int, *tensors: Tensor) -> None:
    arrays = [tensor.numpy() for tensor in tensors]
    if count == 1:
        kernel(*arrays, 0, 0, rows)
        return
    edges = [rows * part // count for part in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:  # the kernels release the interpreter lock
        list(pool.map(lambda part: kernel(*arrays, part, edges[part], edges[part + 1]), range(count)))


def scan_in_place(decay: Decay, values: Values, start: Start, method: ScanMethod) -> None:
    """`values` become the states, in place: only for buffers that the caller owns."""
    if method == "compiled":
        kernel = scan_selective if decay.shape[:2] == values.shape[:2] else scan_shared
        _run_compiled(kernel, parts(values), len(start), decay, values, start)
        return
    wide, states = grouped(decay, values)
    states[0] += multiply(wide[0], grouped(decay, start)[1])
    if method == "parallel":
        states.copy_(associative_scan(recurrence, (wide.expand(len(values), *wide.shape[1:]), states))[1])
        return
    for t in range(1, len(values)):
        states[t] += multiply(wide[min(t, len(wide) - 1)], states[t - 1])


def reverse_in_place(decay: Decay, gradients: Values, states: Values, start: Start, method: ScanMethod) -> Decay:
    """`gradients` of the states become those of the values; returns that of the decay."""
    if method == "compiled":
        selective = decay.shape[:2] == states.shape[:2]
        if selective:
            decay_gradient = torch.zeros_like(decay)
            _run_compiled(reverse_selective, parts(states), len(start), decay, gradients, states, start, decay_gradient)
            return decay_gradient
        totals = torch.zeros(parts(states), *decay.shape, dtype=torch.float64)
        _run_compiled(reverse_shared, len(totals), len(start), decay, gradients, states, start, totals)
        return totals.sum(0).to(decay.dtype)
    wide, flow = grouped(decay, gradients)
    if method == "parallel":
        later = torch.cat([wide.expand(len(flow), *wide.shape[1:])[1:], torch.zeros_like(wide[:1])])
        later = torch.cat([later.chunk(2, -1)[0], -later.chunk(2, -1)[1]], -1)
        flow.copy_(associative_scan(recurrence, (later, flow), reverse=True)[1])
    else:
        for t in range(len(flow) - 1, 0, -1):
            flow[t - 1] += multiply_conjugate(flow[t], wide[min(t, len(wide) - 1)])
    previous = grouped(decay, torch.cat([start[None], states[:-1]]))[1]
    decay_gradient = multiply_conjugate(flow, previous).sum(2)
    return decay_gradient.sum(0, keepdim=True) if len(decay) == 1 else decay_gradient


def start_gradient(decay: Decay, gradients: Values) -> Start:
    """From the gradients of the values; apart, because the start of a clip is mostly detached."""
    wide, flow = grouped(decay[:1], gradients[:1])
    return multiply_conjugate(flow[0], wide[0]).reshape(gradients.shape[1:])


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, values: Tensor, start: Tensor, method: ScanMethod) -> Tensor:
        states = values.clone()
        scan_in_place(decay, states, start, method)
        ctx.save_for_backward(decay, states, start)
        ctx.method = method
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> Any:
        decay, states, start = ctx.saved_tensors
        gradients = gradients.clone(memory_format=torch.contiguous_format)
        decay_gradient = reverse_in_place(decay, gradients, states, start, ctx.method)
        return decay_gradient, gradients, start_gradient(decay, gradients) if ctx.needs_input_grad[2] else None, None


def linear_scan(decay: Decay, values: Values, start: Start, reverse: bool = False, method: ScanMethod | None = None) -> Values:
    """The states x[t] = decay[t] x[t-1] + values[t] from x[-1] = start; `reverse` runs from the last step to the first."""
    if reverse:
        return linear_scan(decay.flip(0), values.flip(0), start, method=method).flip(0)
    if torch.compiler.is_compiling():
        return traced_scan(decay, values, start)
    method = method or choose(values)
    return cast(Tensor, _Scan.apply(decay.contiguous(), values.contiguous(), start.contiguous(), method))


def traced_scan(decay: Decay, values: Values, start: Start) -> Values:
    """The loop without in-place operations or custom gradients, for torch.export and torch.compile."""
    wide, rows = grouped(decay, values)
    states = [grouped(decay, start)[1]]
    for t in range(len(values)):
        states.append(multiply(wide[min(t, len(wide) - 1)], states[-1]) + rows[t])
    return torch.stack(states[1:]).reshape(values.shape)


@compiled
def _advance(a, previous, now):
    half = a.shape[0] // 2
    for p in range(half):
        re, im = previous[p], previous[half + p]
        now[p] += a[p] * re - a[half + p] * im
        now[half + p] += a[p] * im + a[half + p] * re


@compiled
def _retreat(a, after, before):
    """The adjoint of `_advance`: before += conj(a) after."""
    half = a.shape[0] // 2
    for p in range(half):
        re, im = after[p], after[half + p]
        before[p] += a[p] * re + a[half + p] * im
        before[half + p] += a[p] * im - a[half + p] * re


@compiled
def _correlate(gradient, state, total):
    """total += gradient conj(state): the gradient of the decay that multiplied `state`."""
    half = gradient.shape[0] // 2
    for p in range(half):
        re, im = gradient[p], gradient[half + p]
        total[p] += re * state[p] + im * state[half + p]
        total[half + p] += im * state[p] - re * state[half + p]


@compiled
def scan_shared(decay, values, start, part, first_row, last_row):
    """decay (1 or T, groups, 2P), values (T, rows, 2P) become the states, start (rows, 2P)."""
    steps, rows, _ = values.shape
    group = rows // decay.shape[1]
    for first in range(first_row, last_row, BLOCK):
        for t in range(steps):
            for row in range(first, min(first + BLOCK, last_row)):
                previous = values[t - 1, row] if t else start[row]
                _advance(decay[min(t, decay.shape[0] - 1), row // group], previous, values[t, row])


@compiled
def reverse_shared(decay, gradients, states, start, decay_gradient, part, first_row, last_row):
    """Gradients of the states become those of the values. Sums over rows go by blocks into float64, one total per part."""
    steps, rows, width = gradients.shape
    group = rows // decay.shape[1]
    partial = np.zeros(width, gradients.dtype)
    for first in range(first_row, last_row, BLOCK):
        last = min(first + BLOCK, last_row)
        for t in range(steps - 1, -1, -1):
            which = min(t, decay.shape[0] - 1)
            for row in range(first, last):
                previous = states[t - 1, row] if t else start[row]
                if t:
                    _retreat(decay[which, row // group], gradients[t, row], gradients[t - 1, row])
                _correlate(gradients[t, row], previous, partial)
                if row + 1 == last or (row + 1) % group == 0:
                    decay_gradient[part, which, row // group] += partial
                    partial[:] = 0


@compiled
def scan_selective(decay, values, start, part, first_row, last_row):
    """The same with a decay for every row: decay (T, rows, 2P)."""
    steps = values.shape[0]
    for first in range(first_row, last_row, BLOCK):
        for t in range(steps):
            for row in range(first, min(first + BLOCK, last_row)):
                _advance(decay[t, row], values[t - 1, row] if t else start[row], values[t, row])


@compiled
def reverse_selective(decay, gradients, states, start, decay_gradient, part, first_row, last_row):
    steps = gradients.shape[0]
    for first in range(first_row, last_row, BLOCK):
        for t in range(steps - 1, -1, -1):
            for row in range(first, min(first + BLOCK, last_row)):
                if t:
                    _retreat(decay[t, row], gradients[t, row], gradients[t - 1, row])
                _correlate(gradients[t, row], states[t - 1, row] if t else start[row], decay_gradient[t, row])
