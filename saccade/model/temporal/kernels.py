"""The linear recurrence compiled for CPU, in place: x[t] = decay[t] x[t-1] + x[t] on packed complex rows, and its gradient.

Rows are pixels. They are walked in small blocks, all steps of one block before the next, so that a block's state stays in the cache
and memory is read and written once. Every kernel does the rows [first_row, last_row) only: threads share the work as parts. `shared`
kernels have one decay per group of rows (a sample), `selective` ones one per row.
"""

import numpy as np

from saccade.machine import compiled

BLOCK = 16  # rows; 16 KB per step at 128 states


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


@compiled
def step_channels(decay, control, observe, u, state, next_state, y):
    """One step of a diagonal system per channel, without gradients, in one pass over the state: next_state and y are written.

    decay, control (1 or B, C, N), observe (C, N) with the sign of Re(C x), u and y (B, C, pixels), states (B, C, N, pixels).
    """
    batch, channels, order, pixels = state.shape
    half = order // 2
    for b in range(batch):
        g = min(b, decay.shape[0] - 1)
        for c in range(channels):
            given, shown = u[b, c], y[b, c]
            shown[:] = 0
            for n in range(half):
                ar, ai, br, bi = decay[g, c, n], decay[g, c, half + n], control[g, c, n], control[g, c, half + n]
                cr, ci = observe[c, n], observe[c, half + n]
                real, imag, next_real, next_imag = state[b, c, n], state[b, c, half + n], next_state[b, c, n], next_state[b, c, half + n]
                for p in range(pixels):
                    re = ar * real[p] - ai * imag[p] + br * given[p]
                    im = ar * imag[p] + ai * real[p] + bi * given[p]
                    next_real[p] = re
                    next_imag[p] = im
                    shown[p] += cr * re + ci * im
