"""What S4 and S4D share: one small real system x[t] = A[t] x[t-1] + B[t] u[t], y[t] = C x[t] per channel, in two equal forms.

Tensors: u (B, C, T, pixels), states (B, C, N, pixels), N real numbers per channel. The recurrence advances the states of all pixels
step by step: right for a stream. The kernel form runs the recurrence once on an impulse at every step and on every unit state, and
applies the responses to all pixels as matrix products: right for clips, where pixels are many and steps are few. It carries state
exactly, and steps may differ.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

FORMS = "auto", "kernel", "recurrence"
Advance = Callable[[int, Tensor], Tensor]  # (t, states) -> A[t] states
Signal = Float[Tensor, "B C T pixels"]
States = Float[Tensor, "B C N pixels"]
Control = Float[Tensor, "#T groups C N"]  # groups: 1 or B
Observe = Float[Tensor, "C N"]

KERNEL_STEPS = 64  # the kernel's matrices grow with the square of the steps; longer clips go piece by piece


def recurrence(advance: Advance, control: Control, observe: Observe, u: Signal, start: States) -> tuple[Signal, States]:
    outputs, state = [], start
    for t in range(u.shape[2]):
        state = torch.addcmul(advance(t, state), control[t][..., None], u[:, :, None, t])
        outputs.append((observe[:, None] @ state).squeeze(2))
    return torch.stack(outputs, 2), state


def kernel(advance: Advance, control: Control, observe: Observe) -> tuple[Tensor, Tensor]:
    """Outputs (groups, C, T, T + N) and last states (groups, C, N, T + N) for T impulses and N unit states."""
    steps, groups, channels, order = control.shape
    ones = torch.eye(steps + order, dtype=control.dtype, device=control.device)
    probes = ones[steps:].expand(groups, channels, order, steps + order)
    outputs = []
    for t in range(steps):
        probes = advance(t, probes) + control[t][..., None] * ones[t]
        outputs.append((observe[:, None] @ probes).squeeze(2))
    return torch.stack(outputs, 2), probes


def convolve(advance: Advance, control: Control, observe: Observe, u: Signal, start: States) -> tuple[Signal, States]:
    output, last = kernel(advance, control, observe)
    steps = u.shape[2]
    return output[..., :steps] @ u + output[..., steps:] @ start, last[..., :steps] @ u + last[..., steps:] @ start


def run(advance: Advance, control: Control, observe: Observe, u: Signal, start: States, form: str) -> tuple[Signal, States]:
    """The form that suits the length, in pieces of KERNEL_STEPS."""
    steps = u.shape[2]
    control = control.expand(steps, *control.shape[1:])
    if form == "recurrence" or (form == "auto" and steps == 1):
        return recurrence(advance, control, observe, u, start)
    outputs, state = [], start
    for first in range(0, steps, KERNEL_STEPS):
        piece = slice(first, min(first + KERNEL_STEPS, steps))

        def later(t: int, states: Tensor, first: int = first) -> Tensor:
            return advance(first + t, states)

        output, state = convolve(later, control[piece], observe, u[:, :, piece], state)
        outputs.append(output)
    return torch.cat(outputs, 2), state


def to_signal(x: Float[Tensor, "T B H W C"]) -> Signal:
    return x.permute(1, 4, 0, 2, 3).flatten(3)


def from_signal(signal: Signal, height: int, width: int) -> Float[Tensor, "T B H W C"]:
    return signal.unflatten(3, (height, width)).permute(2, 0, 3, 4, 1)
