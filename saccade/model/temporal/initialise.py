"""Initial values of the memory: spectra of the HiPPO family and timescales (paper appendix B; S4D: Gu et al. 2022). In numpy."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex128, Float64

from saccade.types import InputError

TIMESCALES = "published", "clip"
Spectrum = Complex128[np.ndarray, "n"]

SHORTEST, LONGEST = 1.0, 30.0  # time constants for clips, training steps
CLIP_PHASE = np.pi / 10  # radians per training step of the fastest mode


@dataclass(frozen=True, eq=False)
class Modes:
    """A real matrix of even order taken apart into conjugate pairs: one eigenvalue and unit eigenvector (column) of each pair."""

    eigenvalues: Spectrum
    vectors: Complex128[np.ndarray, "order n"]

    def whole(self) -> "Modes":
        """Both of every pair, the conjugates after the others: the full spectrum of the published weights."""
        return Modes(np.concatenate([self.eigenvalues, self.eigenvalues.conj()]), np.concatenate([self.vectors, self.vectors.conj()], 1))


def legs_matrix(order: int) -> Float64[np.ndarray, "n n"]:
    """HiPPO-LegS, the full and non-normal matrix of S4."""
    root = np.sqrt(2 * np.arange(order) + 1.0)
    return -(np.tril(np.outer(root, root), -1) + np.diag(np.arange(order) + 1.0))


def legs_input(order: int) -> Float64[np.ndarray, "n"]:
    return np.sqrt(2 * np.arange(order) + 1.0)


def legs_low_rank(order: int) -> Float64[np.ndarray, "n"]:
    """The vector p with LegS = normal - p p^T."""
    return np.sqrt(np.arange(order) + 0.5)


def legs_modes(order: int) -> Modes:
    """HiPPO-N = LegS + p p^T = -1/2 + skew-symmetric (the paper prints it symmetric: a slip), hence normal with unitary eigenvectors."""
    low_rank = legs_low_rank(order)
    normal = legs_matrix(order) + np.outer(low_rank, low_rank)
    skew = normal + 0.5 * np.eye(order)
    frequency, vectors = np.linalg.eigh(-1j * skew)  # ascending, symmetric around zero
    upper = slice(order // 2, None)
    return Modes(-0.5 + 1j * frequency[upper], vectors[:, upper])


def rotations(upper: Spectrum) -> Modes:
    """The real matrix of 2 x 2 rotations on the diagonal that has these eigenvalues and their conjugates."""
    return Modes(upper, np.kron(np.eye(len(upper)), np.array([[1.0], [-1j]]) * np.sqrt(0.5)))


def modes(initialisation: str, order: int) -> Modes:
    """`order` is the size of the real matrix: 2 x the number of conjugate pairs."""
    if order < 2 or order % 2:
        raise InputError(f"a memory of order {order}: the order must be even and positive, to hold conjugate pairs")
    if initialisation == "legs":
        return legs_modes(order)
    n = np.arange(order // 2)
    if initialisation == "inv":
        return rotations(-0.5 + 1j * order / np.pi * (order / (2 * n + 1) - 1))
    if initialisation == "lin":
        return rotations(-0.5 + 1j * np.pi * n)
    raise InputError(f"initialisation {initialisation!r}: expected one of legs, inv, lin")


def blocks_of_modes(initialisation: str, order: int, blocks: int) -> Modes:
    """`blocks` (the paper's J) equal matrices on the diagonal instead of one large one."""
    if blocks < 1 or order % (2 * blocks):
        raise InputError(f"an order of {order} can't be cut into {blocks} blocks of even size")
    one = modes(initialisation, order // blocks)
    return Modes(np.tile(one.eigenvalues, blocks), np.kron(np.eye(blocks), one.vectors))


def published_log_step(random: np.random.Generator, count: int, limits: tuple[float, float]) -> Float64[np.ndarray, "n"]:
    """Log-uniform in [limits): a state's share of a training window."""
    if not 0 < limits[0] < limits[1]:
        raise InputError(f"step_limits={limits}: expected 0 < lowest < highest")
    return random.uniform(np.log(limits[0]), np.log(limits[1]), count)


def clip_log_time(random: np.random.Generator, shape: int | tuple[int, ...]) -> Float64[np.ndarray, "*n"]:
    """Logarithms of time constants of 1 to 30 training steps, which short clips can train."""
    return random.uniform(np.log(SHORTEST), np.log(LONGEST), shape)


def clip_spectrum(random: np.random.Generator, eigenvalues: Complex128[np.ndarray, "*n"]) -> Complex128[np.ndarray, "*n"]:
    """Per training step: time constants log-uniform in 1 to 30 steps, frequencies shrunk so that the fastest turns pi/10.

    Longer ones remember still objects longer, but also objects that have left: with 1 to 300 steps S5 lost 5 mAP.
    """
    time_constant = np.exp(clip_log_time(random, eigenvalues.shape))
    return -1 / time_constant + 1j * eigenvalues.imag * (CLIP_PHASE / np.abs(eigenvalues.imag).max())


def unit_gain(eigenvalues: Complex128[np.ndarray, "*n"]) -> Float64[np.ndarray, "*n"]:
    """Factors for B that give white noise a state of unit power at dt = 1: sqrt(1 - |decay|^2) over the zero-order-hold gain."""
    return np.sqrt(-np.expm1(2 * eigenvalues.real)) / np.abs(np.expm1(eigenvalues) / eigenvalues)


def legs_unit_gain(steps: Float64[np.ndarray, "n"], order: int) -> Float64[np.ndarray, "n"]:
    """Factors for LegS's input, one for each of STEPS, with which white noise gives the state a power of one over all modes at dt = 1.

    The power of the sampled system is the sum of A^k B B' A'^k, doubled in length until nothing is added.
    """
    half = steps[:, None, None] / 2 * legs_matrix(order)
    ahead = np.linalg.inv(np.eye(order) - half)
    decay, given = ahead @ (np.eye(order) + half), ahead @ (steps[:, None] * legs_input(order))[..., None]
    power = given @ given.swapaxes(1, 2)
    for _ in range(64):
        added = decay @ power @ decay.swapaxes(1, 2)
        power, decay = power + added, decay @ decay
        if np.abs(added).max() <= 1e-12 * np.abs(power).max():
            break
    return np.trace(power, axis1=1, axis2=2) ** -0.5


def numpy_generator(generator: torch.Generator | None) -> np.random.Generator:
    """Seeded by torch's generator (None: the global one), so that one seed governs a model."""
    return np.random.default_rng(int(torch.randint(2**31, (), generator=generator, device="cpu")))


def real_pairs(values: Complex128[np.ndarray, "*n"]) -> torch.Tensor:
    """(..., 2): real and imaginary in the last axis, as the published weights store them."""
    return torch.tensor(np.stack([values.real, values.imag], -1), dtype=torch.get_default_dtype())
