"""S4D: one diagonal system per channel (Gu et al. 2022), in kernel form for clips and as a recurrence for streams."""

import numpy as np
import torch
from torch import Tensor, nn

from saccade.model.temporal import initialise, siso, streamed
from saccade.model.temporal.antialias import Transfer, band_weights, check_band
from saccade.model.temporal.interface import LayerState, Prepared, check_features, check_option, check_state, check_steps
from saccade.model.temporal.pairs import DISCRETISATIONS, Pair, from_last_axis, pack, product, rotations


class S4D(nn.Module):
    """`order` real states per channel, as conjugate pairs. State: ((B, C, order, H, W) [real | imaginary],)."""

    def __init__(
        self,
        dim: int,
        *,
        order: int = 32,
        initialisation: str = "legs",
        discretisation: str = "zoh",
        timescales: str = "published",
        step_limits: tuple[float, float] = (0.001, 0.1),
        bandlimit: float | int | None = None,
        rolloff: float | int = 0.0,
        form: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_band(bandlimit, rolloff)
        check_option("s4d: discretisation", discretisation, DISCRETISATIONS)
        check_option("s4d: timescales", timescales, initialise.TIMESCALES)
        check_option("s4d: form", form, siso.FORMS)
        self.dim, self.order, self.discretisation, self.form = dim, order, discretisation, form
        self.bandlimit, self.rolloff = bandlimit, rolloff
        self._prepared: Prepared[tuple[Tensor, Tensor, Tensor, Tensor]] = Prepared()
        random = initialise.numpy_generator(generator)
        modes = initialise.modes(initialisation, order)
        log_step = initialise.published_log_step(random, dim, step_limits)
        eigenvalues = np.tile(modes.eigenvalues, (dim, 1))
        # The diagonal half of LegS approaches the full system with half its input (S4D, theorem 3); the others start from ones.
        one = modes.vectors.conj().T @ initialise.legs_input(order) / 2 if initialisation == "legs" else np.ones(order // 2) + 0j
        control = np.tile(one, (dim, 1))
        if timescales == "clip":
            log_step = np.zeros(dim)
            eigenvalues = initialise.clip_spectrum(random, eigenvalues)
            control = initialise.unit_gain(eigenvalues) * control / np.abs(control) * (2 / order) ** 0.5
        observe = random.normal(size=(dim, order // 2, 2)) * 2**0.5  # twice a complex normal: y = Re(C x) over one of each pair
        self.log_decay = nn.Parameter(torch.tensor(np.log(-eigenvalues.real), dtype=torch.get_default_dtype()))
        self.frequency = nn.Parameter(torch.tensor(eigenvalues.imag, dtype=torch.get_default_dtype()))
        self.B = nn.Parameter(initialise.real_pairs(control))
        self.C = nn.Parameter(torch.tensor(observe, dtype=torch.get_default_dtype()))
        self.D = nn.Parameter(torch.tensor(random.normal(size=dim), dtype=torch.get_default_dtype()))
        self.log_step = nn.Parameter(torch.tensor(log_step, dtype=torch.get_default_dtype()))

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("s4d", x, self.dim)
        return (torch.zeros(x.shape[1], self.dim, self.order, *x.shape[2:4], dtype=self.D.dtype, device=x.device),)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("s4d", x, self.dim)
        check_state("s4d", state, [(x.shape[1], self.dim, self.order, *x.shape[2:4])], self.D)
        equal_steps = check_steps("s4d", dt, x)
        with torch.autocast(x.device.type, enabled=False):
            prepared = self._prepared.find(self, dt) if equal_steps else None
            real, imag, control, observe = prepared or self._sampled(dt[:1, :1] if equal_steps else dt)

            def advance(t: int, states: Tensor) -> Tensor:
                which = min(t, len(real) - 1)
                moved = product(
                    (real[which][..., None], imag[which][..., None]), (states[:, :, : self.order // 2], states[:, :, self.order // 2 :])
                )
                return torch.cat(moved, 2)

            u = siso.to_signal(x.to(self.D.dtype))
            if streamed.applies(u):
                y, last = streamed.step(pack((real, imag))[0], control[0], observe, self.D, u, state[0].flatten(3))
            else:
                y, last = siso.run(advance, control, observe, u, state[0].flatten(3), self.form)
                y = y + self.D[:, None, None] * u
        return siso.from_signal(y, *x.shape[2:4]), (last.view(state[0].shape),)

    def prepare(self, dt: float) -> None:
        self._prepared.add(self, dt, self._sampled)

    def _sampled(self, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Decay (real, imaginary), control and observation of the system sampled with the steps."""
        with torch.autocast(dt.device.type, enabled=False):
            steps = dt.to(self.D.dtype)[..., None, None] * self.log_step.exp()[:, None]
            (real, imag), gain = DISCRETISATIONS[self.discretisation](self.eigenvalues(), steps)
            return real, imag, pack(product(gain, from_last_axis(self.B))), pack(self._observe_conjugate())

    def stepped(self, dt: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step as x' = matrix x + control u, y = observe . x' + direct u per channel: (C, N, N), (C, N), (C, N), (C)."""
        real, imag, control, observe = self._sampled(torch.full((1, 1), dt, device=self.D.device))
        return rotations((real[0, 0], imag[0, 0])), control[0, 0], observe, self.D

    def eigenvalues(self) -> Pair:
        """Real parts are negative whatever the parameters are: no state can grow."""
        return -self.log_decay.exp(), self.frequency

    def band(self) -> Tensor | None:
        return band_weights(self.log_step.exp()[:, None] * self.frequency.abs() / (2 * torch.pi), self.bandlimit, self.rolloff)

    def _observe_conjugate(self) -> Pair:
        real, imag = from_last_axis(self.C)
        band = self.band()
        return (real, -imag) if band is None else (real * band, -imag * band)

    def transfer(self) -> Transfer:
        """`dim` separate systems of one input and output, per training window."""
        step, (real, imag) = self.log_step.exp()[:, None], self.eigenvalues()
        control, observe = from_last_axis(self.B), self._observe_conjugate()
        return Transfer(
            (real * step, imag * step),
            ((control[0] * step)[..., None], (control[1] * step)[..., None]),
            (observe[0][:, None], -observe[1][:, None]),
        )
