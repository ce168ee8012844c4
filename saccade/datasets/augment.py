"""CLIP -> CLIP: flip, zoom in, zoom out with the published ranges, the same for all frames of a clip; boxes follow the pixels.

Not published, off unless asked for: exchanged polarities and thinned events, for trainings that see few sensors and scenes.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from saccade.datasets.recording import FrameArray
from saccade.machine import compiled
from saccade.types import Boxes, InputError, Labels, Scores

MOST_THINNED = 0.6
LEAST_SHARE = 0.1  # a box of which less than this share stays in the picture isn't learned: it can't be recognised


@dataclass(frozen=True, kw_only=True)
class AugmentSettings:
    """Probabilities and ranges; as published, random clips zoom mostly in, recordings that are played through only out."""

    flip: float = 0.5  # probability of mirroring left and right
    zoom: float = 0.8  # probability that a random clip is zoomed
    zoom_in: float = 0.8  # probability that the zoom of a random clip is in, not out
    zoom_ordered: float = 0.5  # probability that a recording played through is zoomed out; in, later labels would lie outside the picture
    largest_in: float = 1.5  # largest factor of zooming in
    largest_out: float = 1.2  # largest factor of zooming out
    swap: float = 0.0  # probability of exchanging the polarities: about what the opposite motion gives
    thin: float = 0.0  # probability that a random share of the events, up to MOST_THINNED, is left out: a less sensitive sensor

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            low, high = (1.0, 8.0) if item.name.startswith("largest") else (0.0, 1.0)
            if not low <= value <= high:
                raise InputError(f"augment.{item.name}={value!r} must be from {low:g} to {high:g}")


NO_AUGMENTATION = AugmentSettings(flip=0.0, zoom=0.0, zoom_ordered=0.0)


@dataclass(frozen=True)
class Augmentation:
    """Flip left and right, then enlarge by ZOOM what lies right of and below (x, y); below 1 the picture shrinks, x and y are negative."""

    flip: bool = False
    zoom: float = 1.0
    x: float = 0.0  # column of the flipped picture that moves to the left edge
    y: float = 0.0
    swap: bool = False  # exchange the polarities
    keep: float = 1.0  # share of the events that is kept ...
    seed: int = 0  # ... by random numbers of this seed

    @property
    def moves(self) -> bool:
        """Whether pixels and boxes change their places."""
        return self.flip or self.zoom != 1.0


def draw(
    random: np.random.Generator, settings: AugmentSettings, lane: Literal["random", "ordered"], width: int, height: int, boxes: Boxes
) -> Augmentation:
    """BOXES are those of the last labelled frame: zooming in keeps the centre of one in the picture, and with it a quarter of its area."""
    drawn = _draw_geometry(random, settings, lane, width, height, boxes)
    if settings.swap:
        drawn = replace(drawn, swap=bool(random.random() < settings.swap))
    if settings.thin and random.random() < settings.thin:
        drawn = replace(drawn, keep=1 - MOST_THINNED * float(random.random()), seed=int(random.integers(1 << 31)))
    return drawn


def _draw_geometry(
    random: np.random.Generator, settings: AugmentSettings, lane: Literal["random", "ordered"], width: int, height: int, boxes: Boxes
) -> Augmentation:
    flip = bool(random.random() < settings.flip)
    if random.random() >= (settings.zoom if lane == "random" else settings.zoom_ordered):
        return Augmentation(flip)
    if lane == "random" and random.random() < settings.zoom_in:
        zoom = float(random.uniform(1.0, settings.largest_in))
        seen = flip_boxes(boxes, width) if flip else boxes
        centre: tuple[float, float] | None = None
        if len(seen):
            left, top, right, bottom = seen[random.integers(len(seen))].tolist()
            centre = (min(max((left + right) / 2, 0.0), width), min(max((top + bottom) / 2, 0.0), height))
        x, y = (
            _window_start(random, side, side / zoom, None if centre is None else centre[axis]) for axis, side in enumerate((width, height))
        )
        return Augmentation(flip, zoom, x, y)
    zoom = 1 / float(random.uniform(1.0, settings.largest_out))
    x, y = (float(random.uniform(side - side / zoom, 0.0)) for side in (width, height))
    return Augmentation(flip, zoom, x, y)


def _window_start(random: np.random.Generator, side: int, window: float, inside: float | None) -> float:
    """A window of that length within the side, around the point if there is one."""
    low, high = (0.0, side - window) if inside is None else (max(0.0, inside - window), min(side - window, inside))
    return float(random.uniform(min(low, high), high))


def augment_frames(frames: FrameArray, augmentation: Augmentation, first: int = 0) -> FrameArray:
    """FIRST: the number of the first frame in its recording, so that every clip of it is thinned by other random numbers."""
    if augmentation.moves:
        frames = _move(frames, augmentation)
    if augmentation.swap:
        half = frames.shape[1] // 2  # all bins of one polarity, then those of the other
        frames = np.concatenate((frames[:, half:], frames[:, :half]), axis=1)
    if augmentation.keep < 1.0:
        frames = frames.copy()
        events = np.flatnonzero(frames)
        random = np.random.default_rng([augmentation.seed, first])
        frames.reshape(-1)[events] = random.binomial(frames.reshape(-1)[events], augmentation.keep)
    return frames


def _move(frames: FrameArray, augmentation: Augmentation) -> FrameArray:
    """Nearest pixel: counts stay counts. What lies outside the sensor is zero."""
    if augmentation.zoom == 1.0:
        return np.ascontiguousarray(frames[..., ::-1])
    height, width = frames.shape[-2:]
    (top, rows), (left, columns) = _sources(height, augmentation.zoom, augmentation.y), _sources(width, augmentation.zoom, augmentation.x)
    if augmentation.flip:
        columns = width - 1 - columns
    result = np.zeros(frames.shape, np.uint8)
    window = result[..., top : top + len(rows), left : left + len(columns)]
    _gather(np.ascontiguousarray(frames), rows.astype(np.uint32), columns.astype(np.uint32), window)
    return result


def _sources(side: int, zoom: float, start: float) -> tuple[int, np.ndarray]:
    """The first row or column of the result that has a source in the picture, and the sources from there on."""
    sources = np.floor((np.arange(side) + 0.5) / zoom + start).astype(np.int64)
    inside = (sources >= 0) & (sources < side)
    return int(np.argmax(inside)), sources[inside]


@compiled
def _gather(frames: np.ndarray, rows: np.ndarray, columns: np.ndarray, result: np.ndarray) -> None:
    """RESULT[..., i, j] = FRAMES[..., rows[i], columns[j]]; unsigned indices, because numba checks signed ones for being negative."""
    steps, channels = frames.shape[:2]
    for step in range(steps):
        for channel in range(channels):
            for i in range(len(rows)):
                if i and rows[i] == rows[i - 1]:
                    result[step, channel, i] = result[step, channel, i - 1]
                else:
                    for j in range(len(columns)):
                        result[step, channel, i, j] = frames[step, channel, rows[i], columns[j]]


def flip_boxes(boxes: Boxes, width: int) -> Boxes:
    """Mirror left and right."""
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)


def augment_labels(labels: Labels, augmentation: Augmentation, width: int, height: int) -> tuple[Labels, int]:
    """The labels in the new picture, cropped to it, and how many were dropped because too little of them is left in it."""
    if not augmentation.moves:
        return labels, 0
    boxes = flip_boxes(labels.boxes, width) if augmentation.flip else labels.boxes
    if augmentation.zoom == 1.0:
        return replace(labels, boxes=boxes), 0
    origin = np.array([augmentation.x, augmentation.y] * 2, np.float32)
    whole = ((boxes - origin) * np.float32(augmentation.zoom)).astype(np.float32)
    boxes = np.clip(whole, 0, np.array([width, height] * 2, np.float32))
    share = area(boxes) / np.maximum(area(whole), np.finfo(np.float32).tiny)
    kept = share > LEAST_SHARE
    visible = None if labels.visible is None else labels.visible[kept] * share[kept]
    speed = None if labels.speed_px_s is None else labels.speed_px_s[kept] * np.float32(augmentation.zoom)
    return replace(labels[kept], boxes=boxes[kept], visible=visible, speed_px_s=speed), int((~kept).sum())


def area(boxes: Boxes) -> Scores:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
