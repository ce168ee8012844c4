"""Against aliasing at rates above the trained one: the output mask (paper 3.3.1), the H2 norm of a band as a loss (3.3.2), and a plot."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from saccade.model.temporal.pairs import Pair, quotient
from saccade.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_band(bandlimit: float | int | None, rolloff: float | int) -> None:
    if bandlimit is not None and not 0 <= bandlimit < math.inf:
        raise InputError(f"bandlimit={bandlimit}: expected a fraction of Nyquist above 0, or None or 0 to let everything pass")
    if not 0 <= rolloff <= 1:
        raise InputError(f"rolloff={rolloff}: expected a fraction of the band between 0 (sharp) and 1")


def band_weights(turns: Tensor, bandlimit: float | int | None, rolloff: float | int) -> Tensor | None:
    """What multiplies C for states that make `turns` per training step: 1 up to bandlimit / 2, 0 above; None = no limit.

    At the training step the paper's dt / r cancels: a state that was masked in training stays masked at every rate. With
    `rolloff` the last part of the band falls as a half cosine, through which frequencies learn where the limit is.
    """
    if not bandlimit:
        return None
    relative = turns / (bandlimit / 2)
    if not rolloff:
        return (relative <= 1).to(turns.dtype)
    return (1 + torch.cos(math.pi * ((relative - 1) / rolloff + 1).clamp(0, 1))) / 2


@dataclass(frozen=True, eq=False)
class Transfer:
    """y = Re(observe x), x' = eigenvalues x + control u, time in training windows; leading axes = separate systems."""

    eigenvalues: Pair  # (..., n)
    control: Pair  # (..., n, inputs)
    observe: Pair  # (..., outputs, n)

    def response(self, omega: Tensor) -> Tensor:
        """|G(i omega)|_F of every separate system, (..., len(omega)); omega in radians per training window."""
        poles, gram = _poles_and_gram(self)
        return _squared_response(poles, gram, omega).clamp(min=0).sqrt()


def _poles_and_gram(system: Transfer) -> tuple[Pair, Pair]:
    """y = Re(C x) has the poles and their conjugates with half of C each. The gram is <residue m, residue k>; float64, for sums cancel."""
    real, imag = (part.double() for part in system.eigenvalues)
    control, observe = ([part.double() for part in pair] for pair in (system.control, system.observe))
    poles = torch.cat([real, real], -1), torch.cat([imag, -imag], -1)
    b_real, b_imag = torch.cat([control[0], control[0]], -2), torch.cat([control[1], -control[1]], -2)
    c_real, c_imag = torch.cat([observe[0], observe[0]], -1) / 2, torch.cat([observe[1], -observe[1]], -1) / 2
    b_gram = b_real @ b_real.mT + b_imag @ b_imag.mT, b_imag @ b_real.mT - b_real @ b_imag.mT
    c_gram = c_real.mT @ c_real + c_imag.mT @ c_imag, c_imag.mT @ c_real - c_real.mT @ c_imag
    return poles, (b_gram[0] * c_gram[0] - b_gram[1] * c_gram[1], b_gram[0] * c_gram[1] + b_gram[1] * c_gram[0])


def _squared_response(poles: Pair, gram: Pair, omega: Tensor) -> Tensor:
    """|G|_F^2 = sum over m, k of gram[m, k] f[m] conj(f[k]) with f = 1 / (i omega - pole)."""
    real, imag = -poles[0][..., None, :], omega.double()[:, None] - poles[1][..., None, :]
    f = quotient((torch.ones_like(imag), torch.zeros_like(imag)), (real.expand_as(imag), imag))
    weighted = f[0] @ gram[0] - f[1] @ gram[1], f[0] @ gram[1] + f[1] @ gram[0]
    return (weighted[0] * f[0] + weighted[1] * f[1]).sum(-1)


def h2_closed(system: Transfer, omega_min: float) -> Tensor:
    """The squared H2 norm of the band [omega_min, inf), exactly: 1/((iw - p)(iw - q)*) integrates to logarithms and angles."""
    (real, imag), gram = _poles_and_gram(system)
    angle = torch.atan2(-real, omega_min - imag)
    log_size = (real.square() + (omega_min - imag).square()).log() / 2
    numerator = angle[..., :, None] + angle[..., None, :], log_size[..., :, None] - log_size[..., None, :]
    denominator = -real[..., :, None] - real[..., None, :], imag[..., None, :] - imag[..., :, None]
    integral = quotient(numerator, denominator)
    return (gram[0] * integral[0] - gram[1] * integral[1]).sum() / math.pi


def h2_quadrature(system: Transfer, omega_min: float, omega_max: float, points: int) -> Tensor:
    """The paper's estimate: the trapezoidal rule on `points` frequencies of [omega_min, omega_max]."""
    poles, gram = _poles_and_gram(system)
    omega = torch.linspace(omega_min, omega_max, points, dtype=torch.float64, device=poles[0].device)
    return torch.trapezoid(_squared_response(poles, gram, omega), omega).sum() / math.pi


def h2_norm(system: Transfer, omega_min: float = math.pi, omega_max: float | None = None, points: int = 1024) -> Tensor:
    """A loss term: the H2 norm above omega_min (pi = Nyquist frequency of training); by quadrature if omega_max is given."""
    if omega_min < 0 or (omega_max is not None and (omega_max <= omega_min or points < 2)):
        raise InputError(f"h2_norm: expected 0 <= omega_min < omega_max and points > 1, got {omega_min}, {omega_max}, {points}")
    squared = h2_closed(system, omega_min) if omega_max is None else h2_quadrature(system, omega_min, omega_max, points)
    # A fully masked system has norm 0, where the root has no gradient; in float64, 1e-24 is below any real norm.
    return squared.clamp(min=1e-24).sqrt().to(system.eigenvalues[0].dtype)


@torch.no_grad()
def plot_memory(layer: torch.nn.Module, points: int = 400) -> "Figure":
    """Time constants over frequencies of all states, masked ones hollow, and the frequency response of the whole layer.

    `layer` is an S5 or S4D, or the block around one. Units are training steps; 0.5 turns per step is Nyquist of the training rate.
    """
    from matplotlib.figure import Figure

    memory: Any = getattr(layer, "memory", layer)
    if not hasattr(memory, "transfer"):
        raise InputError(f"plot_memory: {type(layer).__name__} has no spectrum; expected S5, S4D or a block around one")
    system = memory.transfer()
    time_constant = (-1 / system.eigenvalues[0]).flatten().cpu().numpy()
    turns = (system.eigenvalues[1].abs() / (2 * math.pi)).flatten().cpu().numpy()
    band = memory.band()
    passes = np.ones_like(turns) if band is None else band.flatten().cpu().numpy()
    frequency = np.geomspace(1e-4, max(1.0, float(turns.max())), points)
    response = system.response(torch.tensor(2 * math.pi * frequency)).square().reshape(-1, points).sum(0).sqrt().cpu().numpy()

    figure = Figure(figsize=(10, 4), layout="constrained")
    states, answer = figure.subplots(1, 2)
    states.scatter(
        turns, time_constant, s=18, facecolors=np.where(passes[:, None] > 0, [[0.12, 0.47, 0.71, 1]], [[1.0, 1, 1, 0]]), edgecolors="C0"
    )
    states.set(yscale="log", xlabel="turns per training step", ylabel="time constant, training steps", title="states")
    states.set_xscale("symlog", linthresh=1e-3)  # states that don't turn have their place too
    states.set_xlim(left=0)
    answer.plot(frequency, response)
    answer.set(xscale="log", yscale="log", xlabel="turns per training step", ylabel="|G|", title="frequency response")
    for axes in (states, answer):
        axes.axvline(0.5, color="0.6", linestyle=":", label="Nyquist of training")
        if memory.bandlimit:
            axes.axvline(memory.bandlimit / 2, color="C3", linestyle="--", label=f"band limit {memory.bandlimit:g}")
        axes.legend(loc="lower left")
    return figure
