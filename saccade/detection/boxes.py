"""PREDICTIONS <-> BOXES: stand-in until branch detection is merged."""

from typing import NamedTuple

from jaxtyping import Float, Int64
from torch import Tensor


class Target(NamedTuple):
    """True boxes of one frame."""

    boxes: Float[Tensor, "n 4"]  # left, top, right, bottom in pixels of the canvas
    classes: Int64[Tensor, "n"]
