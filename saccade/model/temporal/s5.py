"""S5: one system of P complex states shared by all channels of a pixel (Smith et al. 2023; paper appendices A, B, E)."""

import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.model.temporal import initialise
from saccade.model.temporal.antialias import Transfer, band_weights, check_band
from saccade.model.temporal.diagonal import diagonal_system
from saccade.model.temporal.interface import LayerState, Prepared, check_features, check_option, check_state, check_steps
from saccade.model.temporal.pairs import DISCRETISATIONS, Pair, from_last_axis, multiply, pack, product
from saccade.model.temporal.scan import grouped, linear_scan

Sampled = tuple[Tensor, Tensor, Tensor | None, Tensor]  # weight_in, decay, gain (None: in weight_in), weight_out


class S5(nn.Module):
    """State: ((B, H, W, 2P) [real | imaginary],). With spectrum="half", P = dim / 2 states stand for the same real system."""

    def __init__(
        self,
        dim: int,
        *,
        spectrum: str = "whole",
        initialisation: str = "legs",
        blocks: int = 1,
        discretisation: str = "zoh",
        timescales: str = "published",
        step_limits: tuple[float, float] = (0.001, 0.1),
        bandlimit: float | int | None = None,
        rolloff: float | int = 0.0,
        bidirectional: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_band(bandlimit, rolloff)
        check_option("s5: spectrum", spectrum, ("whole", "half"))
        check_option("s5: discretisation", discretisation, DISCRETISATIONS)
        check_option("s5: timescales", timescales, initialise.TIMESCALES)
        self.dim, self.discretisation, self.bidirectional = dim, discretisation, bidirectional
        self.bandlimit, self.rolloff = bandlimit, rolloff
        self._prepared: Prepared[Sampled] = Prepared()
        random = initialise.numpy_generator(generator)
        modes = initialise.blocks_of_modes(initialisation, dim, blocks)
        log_step = initialise.published_log_step(random, len(modes.eigenvalues), step_limits)
        eigenvalues, gain = modes.eigenvalues, np.ones(len(modes.eigenvalues))
        if timescales == "clip":
            log_step = np.zeros_like(log_step)
            eigenvalues = initialise.clip_spectrum(random, eigenvalues)
            gain = initialise.unit_gain(eigenvalues)
        control = random.normal(0, dim**-0.5, (dim, dim))
        observe = random.normal(0, dim**-0.5, (2 if bidirectional else 1, dim, dim))
        vectors, copies = modes.vectors, 2.0
        if spectrum == "whole":  # one timescale for both of a pair: one real mode
            vectors, copies = modes.whole().vectors, 1.0
            eigenvalues = np.concatenate([eigenvalues, eigenvalues.conj()])
            log_step, gain = np.tile(log_step, 2), np.tile(gain, 2)
        self.log_decay = nn.Parameter(torch.tensor(np.log(-eigenvalues.real), dtype=torch.get_default_dtype()))
        self.frequency = nn.Parameter(torch.tensor(eigenvalues.imag, dtype=torch.get_default_dtype()))
        self.B = nn.Parameter(initialise.real_pairs(gain[:, None] * (vectors.conj().T @ control)))
        self.C = nn.Parameter(initialise.real_pairs(np.concatenate(list(copies * observe @ vectors), 1)))
        self.D = nn.Parameter(torch.tensor(random.normal(size=dim), dtype=torch.get_default_dtype()))
        self.log_step = nn.Parameter(torch.tensor(log_step, dtype=torch.get_default_dtype()))

    def initial_state(self, x: Tensor) -> LayerState:
        check_features("s5", x, self.dim)
        return (torch.zeros(*x.shape[1:4], 2 * len(self.log_step), dtype=self.log_step.dtype, device=x.device),)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor) -> tuple[Tensor, LayerState]:
        check_features("s5", x, self.dim)
        shape = (*x.shape[1:4], 2 * len(self.log_step))
        check_state("s5", state, [shape], self.log_step)
        equal_steps = check_steps("s5", dt, x)
        prepared = self._prepared.find(self, dt) if equal_steps else None
        weight_in, decay, gain, weight_out = prepared or self.sampled(dt[:1, :1] if equal_steps else dt, equal_steps)
        u = x.to(self.D.dtype).flatten(1, 3)
        start = state[0].reshape(u.shape[1], -1)
        if self.bidirectional:
            y, last = self._both_directions(u, weight_in, decay, gain, weight_out, start)
        else:
            y, last = diagonal_system(u, weight_in, decay, gain, weight_out, self.D, start)
        return y.view(x.shape), (last.view(shape),)

    def prepare(self, dt: float) -> None:
        self._prepared.add(self, dt, lambda step: self.sampled(step, True))

    def sampled(self, dt: Tensor, equal_steps: bool) -> Sampled:
        """The system sampled with the steps; what makes the state stays in full precision."""
        with torch.autocast(dt.device.type, enabled=False):
            steps = dt.to(self.log_step.dtype)[..., None] * self.log_step.exp()
            decay, gain = DISCRETISATIONS[self.discretisation](self.eigenvalues(), steps)
            control = from_last_axis(self.B)
            if equal_steps:  # one gain for everyone: into B, once
                control = product(control, (gain[0].reshape(-1, 1), gain[1].reshape(-1, 1)))
            return torch.cat(control), pack(decay), None if equal_steps else pack(gain), pack(self._observe_conjugate())

    def _both_directions(self, u, weight_in, decay, gain, weight_out, start) -> tuple[Tensor, Tensor]:
        """As in the paper's listing: a second scan runs from the end of the clip, from a zero state, with its own half of C."""
        values = F.linear(u, weight_in)
        if gain is not None:
            values = multiply(*reversed(grouped(gain, values))).reshape(values.shape)
        forward = linear_scan(decay, values, start)
        backward = linear_scan(decay, values, torch.zeros_like(start), reverse=True)
        real, imag = (part.chunk(2, -1) for part in weight_out.chunk(2, -1))
        y = F.linear(forward, pack((real[0], imag[0]))) + F.linear(backward, pack((real[1], imag[1])))
        return y + self.D * u, forward[-1].clone()

    def eigenvalues(self) -> Pair:
        """Real parts are negative whatever the parameters are: no state can grow."""
        return -self.log_decay.exp(), self.frequency

    def band(self) -> Tensor | None:
        """The weight of every state in the output; see `band_weights`."""
        return band_weights(self.log_step.exp() * self.frequency.abs() / (2 * torch.pi), self.bandlimit, self.rolloff)

    def _observe_conjugate(self) -> Pair:
        """C under the band limit, as (Re, -Im): Re(C x) = Re C Re x - Im C Im x."""
        real, imag = from_last_axis(self.C)
        band = self.band()
        if band is None:
            return real, -imag
        band = torch.cat([band, band]) if self.bidirectional else band
        return real * band, -imag * band

    def transfer(self) -> Transfer:
        """The system per training window, for the H2 norm and plots; of a bidirectional layer, the forward half."""
        step, (real, imag) = self.log_step.exp(), self.eigenvalues()
        observe = self._observe_conjugate()
        control = from_last_axis(self.B)
        count = len(step)
        return Transfer(
            (real * step, imag * step),
            (control[0] * step[:, None], control[1] * step[:, None]),
            (observe[0][:, :count], -observe[1][:, :count]),
        )


def decay_parameters(published: Tensor) -> dict[str, Tensor]:
    """`log_decay` and `frequency` from a published Lambda (P, 2). Real parts that aren't negative are clipped, with a warning."""
    real, frequency = published.unbind(-1)
    slowest = 1e-4
    if bool((real > -slowest).any()):
        warnings.warn(
            f"{int((real > -slowest).sum())} states of a published S5 layer don't decay; clipped to Re = -{slowest}", stacklevel=2
        )
    return {"log_decay": (-real).clamp(min=slowest).log(), "frequency": frequency.clone()}
