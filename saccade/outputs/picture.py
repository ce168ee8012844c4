"""FRAME + BOXES -> PICTURE: events in two colours, and over them boxes with labels, drawn in one way for videos, sheets and reports."""

import colorsys
import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import UInt8

from saccade.representation.histogram import Histogram
from saccade.types import Boxes, Detections, Ids

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

Picture = UInt8[np.ndarray, "H W 3"]
LargePicture = UInt8[np.ndarray, "large_H large_W 3"]
Colour = tuple[int, int, int]
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom

PAPER = np.array([250, 250, 248], np.float32)
BRIGHTER = np.array([20, 90, 200], np.float32)  # blue: events of rising intensity
DARKER = np.array([215, 60, 30], np.float32)  # red: falling
OLDEST = 0.35  # weight of the oldest bin, so that motion shows its direction

# One per class; distinguishable also with colour blindness.
CLASS_COLOURS: tuple[Colour, ...] = (
    (0xD8, 0x1B, 0x60), (0x1E, 0x88, 0xE5), (0xD9, 0x8C, 0x00), (0x00, 0x79, 0x6B),
    (0x7B, 0x1F, 0xA2), (0x5D, 0x40, 0x37), (0x43, 0xA0, 0x47), (0x37, 0x47, 0x4F),
)  # fmt: skip
GOLDEN = 0.618033988749895  # turns of the colour wheel from one track to the next: tracks with close numbers get distant hues
GAMMA = 2.2  # light = value ^ this, nearly
UNTRACKED: Colour = (110, 112, 116)
WHITE: Colour = (255, 255, 255)


class BoxMark(NamedTuple):
    """A box as it is drawn."""

    box: Sequence[float]  # left, top, right, bottom in pixels of the picture
    text: str  # "" for no label
    colour: Colour
    thickness: int = 2


def colours(frame: Histogram) -> Picture:
    """Polarities as two inks on paper, newer bins darker."""
    active = np.bitwise_or.reduce(frame, axis=0) > 0  # most pixels have no events: a large sensor takes a tenth of the time
    darker, brighter = np.split(frame[:, active].astype(np.float32), 2)
    age = np.linspace(OLDEST, 1, len(darker), dtype=np.float32)[:, None]
    ink = [np.minimum((counts * age).max(axis=0) * 0.6, 1)[:, None] for counts in (darker, brighter)]
    inked = PAPER + ink[0] * (DARKER - PAPER)
    inked = inked + ink[1] * (BRIGHTER - inked)
    picture = np.empty((*frame.shape[1:], 3), np.uint8)
    picture[:] = PAPER
    picture[active] = inked.round()
    return picture


def enlarge(picture: Picture, shortest: int = 480) -> LargePicture:
    """By a whole factor, so that the shorter side gets about SHORTEST pixels: blurred events would look like noise."""
    factor = max(1, round(shortest / min(picture.shape[:2])))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def png(frame: Histogram) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(colours(frame)).save(data, "png", compress_level=3)
    return data.getvalue()


def boxed_picture(picture: Picture, marks: Sequence[BoxMark], shortest: int = 480) -> LargePicture:
    """PICTURE enlarged, with MARKS cut at its border; most important marks first."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(enlarge(picture, shortest))
    height, width = picture.shape[:2]
    inside = [
        mark._replace(box=(max(mark.box[0], 0), max(mark.box[1], 0), min(mark.box[2], width), min(mark.box[3], height)))
        for mark in marks
        if mark.box[0] < width and mark.box[1] < height and mark.box[2] > 0 and mark.box[3] > 0
    ]
    draw_boxes(ImageDraw.Draw(image), inside, image.height / height, image.size)
    return np.array(image)


def class_marks(boxes: Boxes, classes: Ids, names: Sequence[str]) -> list[BoxMark]:
    """Boxes of labels or detections, with the name and the colour of their class."""
    pairs = zip(boxes.tolist(), classes.tolist(), strict=True)
    return [BoxMark(box, names[index], CLASS_COLOURS[index % len(CLASS_COLOURS)]) for box, index in pairs]


def draw_boxes(draw: "ImageDraw", marks: Sequence[BoxMark], scale: float, screen: tuple[int, int]) -> None:
    """SCALE: pixels of the drawing per pixel of a box; SCREEN: width and height that labels stay in. The first marks come out on top."""
    boxes = (np.array([mark.box for mark in marks], np.float32).reshape(-1, 4) * scale).round().astype(int).tolist()
    for mark, (left, top, right, bottom) in zip(reversed(marks), reversed(boxes), strict=True):
        if right - left < 2 or bottom - top < 2:
            continue
        # A white edge on both sides of the line sets it off from the events.
        draw.rectangle((left - 1, top - 1, right, bottom), outline=WHITE, width=mark.thickness + 2)
        draw.rectangle((left, top, right - 1, bottom - 1), outline=mark.colour, width=mark.thickness)
    taken: list[Rectangle] = []
    letters = font(13)
    for mark, box in zip(marks, boxes, strict=True):
        if not mark.text:
            continue
        place = _label_place(box, (letters.getlength(mark.text) + 10, 19), screen, taken)
        taken.append(place)
        draw.rounded_rectangle(place, radius=3, fill=mark.colour)
        draw.text((place[0] + 5, (place[1] + place[3]) / 2), mark.text, font=letters, fill=WHITE, anchor="lm")


def track_colour(track: int) -> Colour:
    """The same for all frames of a track. Dark enough for white text, yellow too; neighbours differ in hue and in lightness."""
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


@lru_cache(maxsize=8)
def font(size: int, bold: bool = False) -> "FreeTypeFont":
    """DejaVu comes with matplotlib: the same letters on every machine."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", f"DejaVuSans{'-Bold' if bold else ''}.ttf")), size)


def _label_place(box: Sequence[int], size: tuple[float, float], screen: tuple[int, int], taken: list[Rectangle]) -> Rectangle:
    """Above the box, below it, or inside; the first of these that touches no other label, if there is one."""
    wide, high = size
    left, top, right, bottom = box
    options = [(left, top - high - 1), (left, bottom + 1), (left + 2, top + 3), (right - wide, top - high - 1), (right - wide, bottom + 1)]
    inside = [(x, y) for x, y in options if 0 <= y <= screen[1] - high]
    places = [(x, y, x + wide, y + high) for x, y in ((min(max(x, 0), screen[0] - wide), y) for x, y in inside or [(left, max(top, 0))])]
    free = [place for place in places if not any(_touch(place, other) for other in taken)]
    return (free or places)[0]


def _touch(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
