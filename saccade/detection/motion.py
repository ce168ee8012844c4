"""BOXES AT TIMES -> WHERE THEY ARE AT ANOTHER: constant velocity with Kalman's estimate, every rate of change per second."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from saccade.types import Boxes

Columns = Float64[np.ndarray, "n 4"]  # centre x, y, width, height in pixels

# In sides of the box, x and y, then width and height: guesses, of which the tests show that boxes at up to ten sides per second are
# followed at 20 Hz and at 200 Hz.
MEASURED = 0.05  # standard deviation of a detection
STARTS = np.array([4.0, 4.0, 0.5, 0.5])  # of the unknown velocity at the start, per second
WANDERS = np.array([2.0, 2.0, 0.25, 0.25])  # of the velocity's change in one second
WINDOW_S = 0.05  # frames nearer than this share events, so their errors: n of them within a window say as much as one


class Motion(NamedTuple):
    """What is known of n boxes at the time each was last seen. Axes don't mix, so four small filters of two values do for one of eight."""

    position: Columns
    velocity: Columns  # per second
    position_variance: Columns
    covariance: Columns  # of position and velocity
    velocity_variance: Columns


def start(boxes: Boxes) -> Motion:
    """Seen for the first time: somewhere, at an unknown velocity."""
    position = to_centres(boxes)
    side, zero = sides(position), np.zeros_like(position)
    return Motion(position, zero, zero + (MEASURED * side) ** 2, zero, (STARTS * side) ** 2)


def predict(motion: Motion, elapsed_s: Float64[np.ndarray, "n"]) -> Motion:
    """Where the boxes are so much later. The velocity wanders as white noise integrated over time: two halves of a step are one step."""
    dt = elapsed_s[:, None]
    noise = (WANDERS * sides(motion.position)) ** 2
    spread, mixed, own = motion.position_variance, motion.covariance, motion.velocity_variance
    position = motion.position + dt * motion.velocity
    smallest, largest = 0.5 * motion.position[:, 2:], 2 * motion.position[:, 2:]
    position[:, 2:] = np.clip(position[:, 2:], smallest, largest)  # a shrinking box, lost for long, would otherwise turn inside out
    return Motion(
        position,
        motion.velocity,
        spread + 2 * dt * mixed + dt**2 * own + noise * dt**3 / 3,
        mixed + dt * own + noise * dt**2 / 2,
        own + noise * dt,
    )


def correct(motion: Motion, boxes: Boxes, elapsed_s: Float64[np.ndarray, "n"]) -> Motion:
    """What is known after the boxes were seen, that much after the time before; MOTION is the prediction for now."""
    seen = to_centres(boxes)
    doubt = (MEASURED * sides(seen)) ** 2 * np.maximum(WINDOW_S / np.maximum(elapsed_s, 1e-6), 1)[:, None]
    gain = motion.position_variance / (motion.position_variance + doubt)
    drag = motion.covariance / (motion.position_variance + doubt)
    surprise = seen - motion.position
    return Motion(
        motion.position + gain * surprise,
        motion.velocity + drag * surprise,
        (1 - gain) * motion.position_variance,
        (1 - gain) * motion.covariance,
        motion.velocity_variance - drag * motion.covariance,
    )


def sides(position: Columns) -> Float64[np.ndarray, "n 1"]:
    """Noise is counted in these: large boxes move and err by more pixels."""
    return position[:, 2:].mean(1, keepdims=True)


def to_centres(boxes: Boxes) -> Columns:
    low, high = boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64)
    return np.concatenate([(low + high) / 2, high - low], 1)


def from_centres(position: Columns) -> Columns:
    half = position[:, 2:] / 2
    return np.concatenate([position[:, :2] - half, position[:, :2] + half], 1)
