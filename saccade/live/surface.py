"""EVENTS -> PICTURE FOR THE PAGE: the newest event of every pixel, and how recent it is; one byte a pixel."""

import io
import math
from functools import cache

import numpy as np
from jaxtyping import UInt8

from saccade.machine import compiled
from saccade.outputs.picture import BRIGHTER, DARKER, PAPER
from saccade.types import Events

Shades = UInt8[np.ndarray, "rows columns"]  # 0: no event lately; else 1 (old) to 127 (new), plus 128 if it got brighter

MOST_SHOWN = 480_000  # pixels of a picture: larger sensors are shown at a half, a third, ...
NEVER = -(1 << 62)


class Surface:
    """Takes events in one thread, is looked at in another: a picture that is half an instant newer than the other half harms nobody."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.factor = math.ceil(math.sqrt(max(width * height / MOST_SHOWN, 1)))
        self._stamps = np.full((height, width), NEVER, np.int64)  # 2 x time, plus 1 if it got brighter

    def add(self, events: Events) -> None:
        _stamp(self._stamps, events.t, events.x, events.y, events.p)

    def clear(self) -> None:
        self._stamps[:] = NEVER

    def shades(self, now_us: int, span_us: int, factor: int | None = None) -> Shades:
        """Of the events of the last SPAN_US; the newer the stronger. FACTOR: pixels of the sensor a side of one of the picture."""
        factor = self.factor if factor is None else factor
        rows, columns = (-(-side // factor) for side in (self.height, self.width))
        picture = np.zeros((rows, columns), np.uint8)
        _shade(self._stamps, now_us, span_us, factor, picture)
        return picture


def png_of(shades: Shades) -> bytes:
    """As the page draws it, for other viewers: 256 colours, which is quick and small."""
    from PIL import Image

    image, data = Image.frombytes("P", shades.shape[::-1], shades.tobytes()), io.BytesIO()
    image.putpalette(_palette())
    image.save(data, "png", compress_level=1)
    return data.getvalue()


@cache
def _palette() -> bytes:
    """Of every byte a pixel may have: paper, or ink that is stronger the newer the event is."""
    shade = np.arange(256)
    strength = np.where(shade & 127, 0.3 + 0.7 * (shade & 127) / 127, 0)[:, None]
    ink = np.where((shade >= 128)[:, None], BRIGHTER, DARKER)
    return (PAPER + strength * (ink - PAPER)).round().astype(np.uint8).tobytes()


@compiled
def _stamp(stamps, t, x, y, p):
    height, width = stamps.shape
    for i in range(len(t)):
        if x[i] < width and y[i] < height:
            stamps[y[i], x[i]] = 2 * t[i] + p[i]


@compiled
def _shade(stamps, now_us, span_us, factor, picture):
    """Where several pixels of the sensor share one of the picture, the newest event counts."""
    height, width = stamps.shape
    for y in range(height):
        for x in range(width):
            age_us = now_us - (stamps[y, x] >> 1)
            if age_us < span_us:
                shade = 1 + min(126, 126 * (span_us - age_us) // span_us)
                if shade > picture[y // factor, x // factor] & 127:
                    picture[y // factor, x // factor] = shade + 128 * (stamps[y, x] & 1)
