"""The values between model and boxes: the pyramid of features, and what the head says of every cell."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

STRIDES = (8, 16, 32)
Pyramid = tuple[Tensor, Tensor, Tensor]  # strides 8, 16, 32; (T, B, C, H, W), or (frames, C, H, W) of those that were picked


class Predictions(NamedTuple):
    """Raw outputs of the head. Cells in the published order: stride 8, 16, 32, each row by row; frames as in the pyramid, T before B."""

    boxes: Float[Tensor, "frames cells 4"]  # centre x, y in strides from the cell's corner; log of width, height in strides
    objectness: Float[Tensor, "frames cells"]  # logits
    classes: Float[Tensor, "frames cells classes"]  # logits
    grids: tuple[tuple[int, int], ...]  # rows and columns of cells of every stride


def pick(pyramid: Pyramid, which: Tensor) -> Pyramid:
    """The frames where WHICH (T, B) is true, in the order T before B: neck and head are over a quarter of a step."""
    fine, middle, coarse = pyramid
    return fine[which], middle[which], coarse[which]
