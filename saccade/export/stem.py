"""FRAME -> FIRST CONVOLUTION, from the cells that aren't zero: events are sparse, so this takes a fraction of a dense one's time."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32
from torch import Tensor

from saccade.export.writer import array, inverse
from saccade.machine import compiled
from saccade.representation.histogram import Histogram

STRIDE = 4
WORD = 8  # cells that are looked at together


class Stem:
    """The convolution by WEIGHT (out, channels, size, size), stride 4, padded by size // 2; an output row per pixel, in this ORDER.

    Equal to the dense one but for the order of sums, and dense where most cells are full.
    """

    def __init__(self, weight: Tensor, order: np.ndarray, height: int, width: int) -> None:
        self._weight, self._order = weight.detach().float(), order
        self._taps = np.ascontiguousarray(array(weight).transpose(1, 2, 3, 0), np.float32)  # a cell adds whole rows of these
        self._row_of = inverse(order).reshape(height // STRIDE, width // STRIDE)
        # Measured: a cell takes 30 ns here, and every cell of the frame 0.6 to 3 ns in a dense convolution to 16 or 64 channels.
        self._most = int(weight.shape[1] * height * width * (0.02 + 0.00125 * len(weight)))

    def __call__(self, frame: Histogram) -> Float32[np.ndarray, "rows out"]:
        """Of a frame whose memory is contiguous and whose width is a multiple of eight."""
        if _count(frame.reshape(-1)) > self._most:
            return self.dense(frame)
        rows = np.zeros((len(self._order), self._taps.shape[-1]), np.float32)
        _add_cells(frame, frame.reshape(-1).view(np.uint64), self._taps, self._row_of, rows)
        return rows

    def dense(self, frame: Histogram) -> Float32[np.ndarray, "rows out"]:
        """The same by torch."""
        with torch.inference_mode():
            counts = torch.from_numpy(frame.astype(np.float32))[None]
            image = F.conv2d(counts, self._weight, stride=STRIDE, padding=self._weight.shape[-1] // 2)[0]
            return image.flatten(1).T.numpy()[self._order]


@compiled
def _count(cells: np.ndarray) -> int:
    found = 0
    for cell in cells:
        found += cell != 0
    return found


@compiled
def _add_cells(frame: np.ndarray, words: np.ndarray, taps: np.ndarray, row_of: np.ndarray, rows: np.ndarray) -> None:
    channels, height, width = frame.shape
    down, across = row_of.shape
    reach, dim, per_line = taps.shape[1] // 2, taps.shape[3], width // WORD
    columns, counts = np.empty(width + 1, np.int64), np.empty(width + 1, np.float32)
    for channel in range(channels):
        for y in range(height):
            first, found = (channel * height + y) * per_line, 0
            for word in range(per_line):
                if words[first + word] != 0:
                    for x in range(word * WORD, (word + 1) * WORD):  # without a branch, which no processor could foresee
                        columns[found], counts[found] = x, frame[channel, y, x]
                        found += frame[channel, y, x] != 0
            if found == 0:
                continue
            for i in range(max(0, (y - reach + STRIDE - 1) // STRIDE), min(down - 1, (y + reach) // STRIDE) + 1):
                line = taps[channel, y - STRIDE * i + reach]
                for place in range(found):
                    x, count = columns[place], counts[place]
                    for j in range(max(0, (x - reach + STRIDE - 1) // STRIDE), min(across - 1, (x + reach) // STRIDE) + 1):
                        row, tap = rows[row_of[i, j]], line[x - STRIDE * j + reach]
                        for k in range(dim):
                            row[k] += count * tap[k]
