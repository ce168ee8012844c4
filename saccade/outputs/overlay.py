"""DETECTIONS + TIME -> drawn over a picture of events: boxes with labels, where tracks came from, a time axis."""

import colorsys
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from saccade.outputs.outputs import Run
from saccade.outputs.picture import PAPER, Pixels, enlarge
from saccade.types import Detections

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

Colour = tuple[int, int, int]
Place = tuple[float, float, float, float]

GOLDEN = 0.618033988749895  # turns of the colour wheel between two tracks: any few that follow each other are far apart
GAMMA = 2.2  # light = value ^ this, nearly
UNTRACKED: Colour = (110, 112, 116)
INK: Colour = (52, 54, 60)
FAINT: Colour = (168, 170, 174)
STRIP: Colour = (241, 241, 237)
WHITE: Colour = (255, 255, 255)
STRIP_HEIGHT = 52
MARGIN = 16
TRAIL_US = 500_000
UNIX_US = 10**14  # later times are clocks of computers: shown since the start, as nobody reads ten digits
TICK_STEPS = tuple(step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5))  # seconds


def track_colour(track: int) -> Colour:
    """Of a track for all its life. Dark enough for white text, yellow too; neighbours differ in hue and in lightness."""
    if track < 0:
        return UNTRACKED
    light = np.array(colorsys.hsv_to_rgb((0.93 + track * GOLDEN) % 1, 0.9, 0.9)) ** GAMMA
    luminance = float(light @ [0.2126, 0.7152, 0.0722])
    red, green, blue = (255 * (light * min(1, (0.12, 0.07, 0.18)[track % 3] / luminance)) ** (1 / GAMMA)).round().astype(int).tolist()
    return red, green, blue


def label(detections: Detections, row: int, classes: Sequence[str]) -> str:
    """Class, score, and the track if there is one."""
    track = -1 if detections.tracks is None else int(detections.tracks[row])
    return f"{classes[detections.classes[row]]} {detections.scores[row]:.2f}" + (f"  #{track}" if track >= 0 else "")


class Overlay:
    """Draws the frames of one run, in their order: it remembers where tracks have been."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.trails: defaultdict[int, deque[tuple[int, float, float]]] = defaultdict(deque)

    def draw(self, picture: Pixels, detections: Detections) -> UInt8[np.ndarray, "screen_H screen_W 3"]:
        """PICTURE in the sensor's size -> one that is enlarged by a whole number, with all that is known drawn over and below it."""
        from PIL import Image, ImageDraw

        large = enlarge(picture)
        scale = large.shape[0] / picture.shape[0]
        height, width = large.shape[:2]
        canvas = np.empty((height + STRIP_HEIGHT + (height + STRIP_HEIGHT) % 2, width + width % 2, 3), np.uint8)  # video needs even sides
        canvas[:] = PAPER
        canvas[:height, :width] = large
        canvas[height:] = STRIP
        image = Image.fromarray(canvas)
        draw = ImageDraw.Draw(image)
        self.remember(detections)
        self._trails(draw, detections, scale)
        self._boxes(draw, detections, scale, width, height)
        self._axis(draw, detections.time_us, width, height)
        return np.array(image)

    def remember(self, detections: Detections) -> None:
        """For trails: also of frames that aren't drawn."""
        ids = () if detections.tracks is None else detections.tracks.tolist()
        for box, track in zip(detections.boxes.tolist(), ids, strict=False):
            if track >= 0:
                self.trails[track].append((detections.time_us, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        for track in list(self.trails):
            trail = self.trails[track]
            while trail and trail[0][0] < detections.time_us - TRAIL_US:
                trail.popleft()
            if not trail:
                del self.trails[track]

    def _trails(self, draw: "ImageDraw", detections: Detections, scale: float) -> None:
        shown = set() if detections.tracks is None else set(detections.tracks.tolist())
        for track, trail in self.trails.items():
            if track in shown and len(trail) > 1:
                draw.line([(x * scale, y * scale) for _, x, y in trail], fill=track_colour(track), width=2, joint="curve")

    def _boxes(self, draw: "ImageDraw", detections: Detections, scale: float, width: int, height: int) -> None:
        """Best scores are drawn last, and place their labels first."""
        tracks = np.full(len(detections), -1) if detections.tracks is None else detections.tracks
        order = np.lexsort((-detections.scores, tracks < 0))
        places = [tuple(place) for place in (detections.boxes * scale).round().astype(int).tolist()]
        for row in order[::-1].tolist():
            left, top, right, bottom = places[row]
            if right - left < 2 or bottom - top < 2:
                continue
            thick = 2 if tracks[row] >= 0 else 1
            draw.rectangle((left - 1, top - 1, right, bottom), outline=WHITE, width=thick + 2)  # a halo: events don't touch the line
            draw.rectangle((left, top, right - 1, bottom - 1), outline=track_colour(int(tracks[row])), width=thick)
        taken: list[Place] = []
        font = _font(13)
        for row in order.tolist():
            text = label(detections, row, self.run.classes)
            size = (font.getlength(text) + 10, 19)
            place = _free_place(places[row], size, (width, height), taken)
            taken.append(place)
            draw.rounded_rectangle(place, radius=3, fill=track_colour(int(tracks[row])))
            draw.text((place[0] + 5, (place[1] + place[3]) / 2), text, font=font, fill=WHITE, anchor="lm")

    def _axis(self, draw: "ImageDraw", time_us: int, width: int, top: int) -> None:
        run = self.run
        left, right, line = MARGIN, width - MARGIN, top + 30
        zero_us = run.start_us if run.start_us > UNIX_US else 0
        start_us, end_us = run.start_us - zero_us, run.end_us - zero_us
        duration_us = max(end_us - start_us, 1)

        def x_of(time: float) -> float:
            return left + (right - left) * min(max((time - start_us) / duration_us, 0), 1)

        draw.line((0, top, width, top), fill=FAINT)
        small = _font(10)
        draw.line((left, line, right, line), fill=FAINT, width=3)
        step_s = next((step for step in TICK_STEPS if duration_us / 1e6 / step <= (right - left) / 70), TICK_STEPS[-1])
        digits = max(0, int(np.ceil(-np.log10(step_s) - 1e-9)))
        for number in range(int(np.ceil(start_us / 1e6 / step_s)), int(end_us / 1e6 / step_s) + 1):
            x = x_of(number * step_s * 1e6)
            draw.line((x, line - 3, x, line + 4), fill=FAINT)
            text = f"{number * step_s:.{digits}f}"
            half = small.getlength(text) / 2
            draw.text((min(max(x, left + half), right - half), line + 13), text, font=small, fill=UNTRACKED, anchor="mm")
        now = x_of(time_us - zero_us)
        draw.line((left, line, now, line), fill=INK, width=3)
        draw.ellipse((now - 5, line - 5, now + 5, line + 5), fill=INK, outline=STRIP, width=1)
        draw.text(
            (left, top + 13), f"{'+' if zero_us else ''}{(time_us - zero_us) / 1e6:.3f} s", font=_font(13, bold=True), fill=INK, anchor="lm"
        )
        speed = f"{run.rate_hz:g} Hz" + (f"  ·  {run.slow:g}× slower" if run.slow != 1 else "")
        draw.text((right, top + 13), speed, font=_font(12), fill=INK, anchor="rm")


def _free_place(box: Sequence[int], size: tuple[float, float], screen: tuple[int, int], taken: list[Place]) -> Place:
    """For a label: above the box, below it, or inside; where no other label is, if there is such a place."""
    wide, high = size
    left, top, right, bottom = box
    options = [(left, top - high - 1), (left, bottom + 1), (left + 2, top + 3), (right - wide, top - high - 1), (right - wide, bottom + 1)]
    inside = [(x, y) for x, y in options if 0 <= y <= screen[1] - high]
    places = [(x, y, x + wide, y + high) for x, y in ((min(max(x, 0), screen[0] - wide), y) for x, y in inside or [(left, max(top, 0))])]
    free = [place for place in places if not any(_touch(place, other) for other in taken)]
    return (free or places)[0]


def _touch(a: Place, b: Place) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@lru_cache(maxsize=8)
def _font(size: int, bold: bool = False) -> "FreeTypeFont":
    """DejaVu comes with matplotlib: the same letters on every machine."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", f"DejaVuSans{'-Bold' if bold else ''}.ttf")), size)
