"""S4: one full HiPPO-LegS system per channel, as a normal matrix plus one of rank one (Gu et al. 2022), not its diagonal approximation.

In the eigenbasis of the normal part, A = diag(eigenvalues) - p p^*. With one of each conjugate pair in real parts [Re x; Im x], that
is the real matrix R - 2 q q^T, R made of 2 x 2 rotations and q = [Re p; Im p]. Both parts only dissipate, so every discretisation
used here is stable.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saccade.model.temporal import initialise, siso, streamed
from saccade.model.temporal.interface import LayerState, Prepared, check_features, check_option, check_state, check_steps
from saccade.model.temporal.pairs import conjugate, from_last_axis, pack, product, reciprocal, rotations, unpack


class SampledSystem(NamedTuple):
    """x[t] = A x[t-1] + control u[t], A a matrix, or by parts: decay x - left (right . x). Axes (1 or T, 1 or B, C, N)."""

    control: Tensor
    matrix: Tensor | None = None  # (1 or T, 1 or B, C, N, N)
    parts: tuple[Tensor, Tensor, Tensor] | None = None  # decay [real | imaginary], left, right

    def at(self, which: Tensor) -> "SampledSystem":
        """The steps WHICH (T, B) of those that were sampled as (steps, 1)."""
        if self.parts is None:
            return SampledSystem(self.control[which, 0], None if self.matrix is None else self.matrix[which, 0])
        decay, left, right = self.parts
        return SampledSystem(self.control[which, 0], parts=(decay[which, 0], left[which, 0], right[which, 0]))

    def advance(self, t: int, states: Tensor) -> Tensor:
        """A[t] states, of states (B, C, N, pixels)."""
        which = min(t, len(self.control) - 1)
        if self.matrix is not None:
            return self.matrix[which] @ states
        assert self.parts is not None
        decay, left, right = (part[which] for part in self.parts)
        (real, imag), half = unpack(decay[..., None, :]), states.shape[-2] // 2
        moved = product((real.mT, imag.mT), (states[..., :half, :], states[..., half:, :]))
        return torch.cat(moved, -2) - left[..., None] * (right[..., None, :] @ states)


class S4(nn.Module):
    """`order` real states per channel. State: ((B, C, order, H, W) [real | imaginary],)."""

    def __init__(
        self,
        dim: int,
        *,
        order: int = 32,
        discretisation: str = "bilinear",
        timescales: str = "published",
        step_limits: tuple[float, float] = (0.001, 0.1),
        form: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_option("s4 (explicit Euler of the full LegS matrix diverges): discretisation", discretisation, ("bilinear", "zoh"))
        check_option("s4: timescales", timescales, initialise.TIMESCALES)
        check_option("s4: form", form, siso.FORMS)
        self.dim, self.order, self.discretisation, self.form = dim, order, discretisation, form
        self._prepared: Prepared[SampledSystem] = Prepared()
        random = initialise.numpy_generator(generator)
        modes = initialise.modes("legs", order)
        basis = modes.vectors.conj().T
        observe = random.normal(size=(dim, order // 2, 2)) * 2**0.5  # twice a complex normal, as in S4D
        direct = random.normal(size=dim)
        log_step, gain = initialise.published_log_step(random, dim, step_limits), np.ones(dim)
        if timescales == "clip":
            log_step = -initialise.clip_log_time(random, dim)  # LegS's slowest mode decays with a time constant of 1 / step
            gain = initialise.legs_unit_gain(np.exp(log_step), order)
        self.log_decay = _per_channel(torch.tensor(-modes.eigenvalues.real).log(), dim)
        self.frequency = _per_channel(torch.tensor(modes.eigenvalues.imag), dim)
        self.low_rank = _per_channel(initialise.real_pairs(basis @ initialise.legs_low_rank(order)), dim)
        self.B = nn.Parameter(initialise.real_pairs(gain[:, None] * (basis @ initialise.legs_input(order))))
        self.C = nn.Parameter(torch.tensor(observe, dtype=torch.get_default_dtype()))
        self.D = nn.Parameter(torch.tensor(direct, dtype=torch.get_default_dtype()))
        self.log_step = nn.Parameter(torch.tensor(log_step, dtype=torch.get_default_dtype()))

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("s4", x, self.dim)
        return (torch.zeros(x.shape[1], self.dim, self.order, *x.shape[2:4], dtype=self.D.dtype, device=x.device),)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("s4", x, self.dim)
        check_state("s4", state, [(x.shape[1], self.dim, self.order, *x.shape[2:4])], self.D)
        equal_steps = check_steps("s4", dt, x)
        with torch.autocast(x.device.type, enabled=False):
            prepared = self._prepared.find(self, dt) if equal_steps else None
            sampled = prepared or self._sampled_once(dt, equal_steps)
            u, start = siso.to_signal(x.to(self.D.dtype)), state[0].flatten(3)
            observe = pack((self.C[..., 0], -self.C[..., 1]))
            if sampled.parts is not None and streamed.applies(u):
                decay, left, right = (part[0] for part in sampled.parts)
                y, last = streamed.step(decay, sampled.control[0], observe, self.D, u, start, (left, right))
            elif streamed.applies(u):
                last = sampled.advance(0, start)
                last.addcmul_(sampled.control[0][..., None], u)  # in place: a stream is bound by memory bandwidth
                y = torch.addcmul(observe[:, None] @ last, self.D[:, None, None], u)
            else:
                y, last = siso.run(sampled.advance, sampled.control, observe, u, start, self.form)
                y = y + self.D[:, None, None] * u
        return siso.from_signal(y, *x.shape[2:4]), (last.view(state[0].shape),)

    def prepare(self, dt: float) -> None:
        self._prepared.add(self, dt, self.sampled)

    def _sampled_once(self, dt: Tensor, equal_steps: bool) -> SampledSystem:
        """`sampled` of every step, each value computed once: a camera's period that is no whole number of microseconds has two.

        Of steps that differ and are on a GPU, each for itself: to find equal ones, it would have to be waited for.
        """
        if equal_steps or dt.requires_grad or torch.compiler.is_compiling() or dt.device.type != "cpu":
            return self.sampled(dt[:1, :1] if equal_steps else dt)
        distinct, which = torch.unique(dt, return_inverse=True)
        return self.sampled(distinct[:, None]).at(which)

    def sampled(self, dt: Tensor) -> SampledSystem:
        """The system sampled with the steps (T, B)."""
        with torch.autocast(dt.device.type, enabled=False):
            steps = dt.to(self.D.dtype)[..., None] * self.log_step.exp()
            return self._bilinear(steps) if self.discretisation == "bilinear" else self._zero_order_hold(steps)

    def stepped(self, dt: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step as x' = matrix x + control u, y = observe . x' + direct u per channel: (C, N, N), (C, N), (C, N), (C)."""
        sampled = self.sampled(torch.full((1, 1), dt, device=self.D.device))
        matrix = sampled.advance(0, torch.eye(self.order, dtype=self.D.dtype, device=self.D.device).expand(1, self.dim, -1, -1))[0]
        return matrix, sampled.control[0, 0], pack((self.C[..., 0], -self.C[..., 1])), self.D

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A (C, N, N) and B (C, N) of the continuous system, in real parts."""
        low_rank = pack(from_last_axis(self.low_rank))
        return rotations((-self.log_decay.exp(), self.frequency)) - 2 * _outer(low_rank, low_rank), pack(from_last_axis(self.B))

    def _zero_order_hold(self, steps: Tensor) -> SampledSystem:
        """exp([[A, B], [0, 0]] step) = [[transition, control], [0, 1]]; squaring long steps of LegS needs float64."""
        matrix, control = self.matrices()
        both = torch.cat([matrix, control[..., None]], -1).double() * steps[..., None, None].double()
        whole = torch.linalg.matrix_exp(torch.nn.functional.pad(both, (0, 0, 0, 1))).to(steps.dtype)
        return SampledSystem(whole[..., :-1, -1], whole[..., :-1, :-1])

    def _bilinear(self, steps: Tensor) -> SampledSystem:
        """2 M - 1 and step M B with M = (1 - step A / 2)^-1, by Sherman and Morrison a diagonal matrix and one of rank one as A itself."""
        scale = steps[..., None]
        inverse = reciprocal((1 + scale / 2 * self.log_decay.exp(), -scale / 2 * self.frequency))
        low_rank, control = from_last_axis(self.low_rank), from_last_axis(self.B)
        right, left = pack(product(low_rank, conjugate(inverse))), pack(product(low_rank, inverse))
        left = left * (scale / (1 + scale * (pack(low_rank) * left).sum(-1, keepdim=True)))
        moved = pack(product(inverse, control)) - left * (right * pack(control)).sum(-1, keepdim=True)
        return SampledSystem(scale * moved, parts=(pack((2 * inverse[0] - 1, 2 * inverse[1])), 2 * left, right))


def _per_channel(values: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(values.to(torch.get_default_dtype()).expand(dim, *values.shape).clone())


def _outer(left: Tensor, right: Tensor) -> Tensor:
    return left[..., :, None] * right[..., None, :]
