"""FRAME -> FIRST CONVOLUTION, from the cells that aren't zero: events are sparse, so this takes a fraction of a dense one's time."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32
from torch import Tensor

from saccade.export.writer import array
from saccade.model.sparse import add_counts, count
from saccade.representation.histogram import Histogram

STRIDE = 4


class Stem:
    """The convolution by WEIGHT (out, channels, size, size), stride 4, padded by size // 2; an output row per pixel, in this ORDER.

    Equal to the dense one but for the order of sums, and dense where most cells are full.
    """

    def __init__(self, weight: Tensor, order: np.ndarray, height: int, width: int) -> None:
        self._weight, self._order = weight.detach().float(), order
        self._taps = np.ascontiguousarray(array(weight).transpose(1, 2, 3, 0), np.float32)  # a cell adds whole rows of these
        self._sides = height // STRIDE, width // STRIDE
        # Measured: a cell takes 30 ns here, and every cell of the frame 0.6 to 3 ns in a dense convolution to 16 or 64 channels.
        self._most = int(weight.shape[1] * height * width * (0.02 + 0.00125 * len(weight)))

    def __call__(self, frame: Histogram) -> Float32[np.ndarray, "rows out"]:
        """Of a frame whose memory is contiguous and whose width is a multiple of eight."""
        if count(frame.reshape(-1)) > self._most:
            return self.dense(frame)
        image = np.zeros((1, *self._sides, self._taps.shape[-1]), np.float32)
        add_counts(frame[None], frame[None].view(np.uint64), self._taps, STRIDE, image)
        return image.reshape(len(self._order), -1)[self._order]

    def dense(self, frame: Histogram) -> Float32[np.ndarray, "rows out"]:
        """The same by torch."""
        with torch.inference_mode():
            counts = torch.from_numpy(frame.astype(np.float32))[None]
            image = F.conv2d(counts, self._weight, stride=STRIDE, padding=self._weight.shape[-1] // 2)[0]
            return image.flatten(1).T.numpy()[self._order]
