"""S4: one full HiPPO-LegS system per channel, as a normal matrix plus one of rank one (Gu et al. 2022), not its diagonal approximation.

In the eigenbasis of the normal part, A = diag(eigenvalues) - p p^*. With one of each conjugate pair in real parts [Re x; Im x], that
is the real matrix R - 2 q q^T, R made of 2 x 2 rotations and q = [Re p; Im p]. Both parts only dissipate, so every discretisation
used here is stable.
"""

import numpy as np
import torch
from torch import Tensor, nn

from saccade.model.temporal import initialise, siso
from saccade.model.temporal.interface import LayerState, Prepared, check_features, check_option, check_state, check_steps
from saccade.model.temporal.pairs import Pair, from_last_axis, pack, quotient


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
        self._prepared: Prepared[tuple[Tensor, Tensor]] = Prepared()
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
            transition, control = prepared or self._sampled_once(dt, equal_steps)

            def advance(t: int, states: Tensor) -> Tensor:
                return transition[min(t, len(transition) - 1)] @ states

            u = siso.to_signal(x.to(self.D.dtype))
            observe = pack((self.C[..., 0], -self.C[..., 1]))
            if len(x) == 1 and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
                last = advance(0, state[0].flatten(3))
                last.addcmul_(control[0][..., None], u)  # in place: a stream is bound by memory bandwidth
                y = observe[:, None] @ last
            else:
                y, last = siso.run(advance, control, observe, u, state[0].flatten(3), self.form)
            y = siso.from_signal(y + self.D[:, None, None] * u, *x.shape[2:4])
        return y, (last.view(state[0].shape),)

    def prepare(self, dt: float) -> None:
        self._prepared.add(self, dt, self._sampled)

    def _sampled_once(self, dt: Tensor, equal_steps: bool) -> tuple[Tensor, Tensor]:
        """`_sampled` of every step, each value computed once: a camera's period that is no whole number of microseconds has two."""
        if equal_steps or dt.requires_grad or torch.compiler.is_compiling():
            return self._sampled(dt[:1, :1] if equal_steps else dt)
        distinct, which = torch.unique(dt, return_inverse=True)
        transition, control = self._sampled(distinct[:, None])
        return transition[which, 0], control[which, 0]

    def _sampled(self, dt: Tensor) -> tuple[Tensor, Tensor]:
        """Transition and control of the system sampled with the steps."""
        with torch.autocast(dt.device.type, enabled=False):
            steps = dt.to(self.D.dtype)[..., None] * self.log_step.exp()
            return self._bilinear(steps) if self.discretisation == "bilinear" else self._zero_order_hold(steps)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A (C, N, N) and B (C, N) of the continuous system, in real parts."""
        low_rank = pack(from_last_axis(self.low_rank))
        return _rotations((-self.log_decay.exp(), self.frequency)) - 2 * _outer(low_rank, low_rank), pack(from_last_axis(self.B))

    def _zero_order_hold(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """exp([[A, B], [0, 0]] step) = [[transition, control], [0, 1]]; squaring long steps of LegS needs float64."""
        matrix, control = self.matrices()
        both = torch.cat([matrix, control[..., None]], -1).double() * steps[..., None, None].double()
        whole = torch.linalg.matrix_exp(torch.nn.functional.pad(both, (0, 0, 0, 1))).to(steps.dtype)
        return whole[..., :-1, :-1], whole[..., :-1, -1]

    def _bilinear(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """(1 - step A / 2)^-1 by Sherman and Morrison: only the diagonal part is ever inverted."""
        scale = steps[..., None]
        denominator = 1 + scale / 2 * self.log_decay.exp(), -scale / 2 * self.frequency
        inverse = _rotations(quotient((torch.ones_like(denominator[0]), torch.zeros_like(denominator[1])), denominator))
        low_rank = pack(from_last_axis(self.low_rank))
        left, right = (inverse @ low_rank[..., None]).squeeze(-1), (low_rank[..., None, :] @ inverse).squeeze(-2)
        share = scale / (1 + scale * (low_rank * left).sum(-1, keepdim=True))
        inverse = inverse - _outer(share * left, right)
        control = (inverse @ pack(from_last_axis(self.B))[..., None]).squeeze(-1)
        return 2 * inverse - torch.eye(self.order, dtype=inverse.dtype, device=inverse.device), scale * control


def _per_channel(values: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(values.to(torch.get_default_dtype()).expand(dim, *values.shape).clone())


def _outer(left: Tensor, right: Tensor) -> Tensor:
    return left[..., :, None] * right[..., None, :]


def _rotations(pair: Pair) -> Tensor:
    """Multiplication by complex numbers (..., n) as real matrices (..., 2n, 2n) on [real | imaginary]."""
    real, imag = (torch.diag_embed(part) for part in pair)
    return torch.cat([torch.cat([real, -imag], -1), torch.cat([imag, real], -1)], -2)
