"""A LARGE SENSOR IN TILES of a size that the network knows: a stream for each, their boxes on the sensor as of one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from saccade.detection.decode import Decoding
from saccade.detection.matching import nms
from saccade.detection.track import Tracker
from saccade.export.runtime import Runtime
from saccade.representation.frames import Frame, Framer
from saccade.representation.histogram import Histogram
from saccade.stream.fit import Fit, Size, canvas_for, fixed_size, known_size
from saccade.stream.intake import Timing
from saccade.stream.shown import Shown
from saccade.stream.stream import Stream
from saccade.types import Detections, Events, InputError

OVERLAP = 0.25  # of a tile's side: an object of up to this size is whole in one of them


class Tile(NamedTuple):
    """A piece of the sensor, and the part of it that is its own: an object belongs to the tile whose own part has its centre."""

    left: int
    top: int
    right: int
    bottom: int
    own: tuple[float, float, float, float]


def open_stream(
    runtime: Runtime, rate_hz: float, width: int, height: int, fit: Fit = "auto", known: Size | None = None, **options: Any
) -> "Stream | Tiled":
    """A stream for a sensor of this size; OPTIONS are the Stream's."""
    if fit != "tile":
        return Stream(runtime, rate_hz, width=width, height=height, fit=fit, size=known, **options)
    return Tiled(runtime, rate_hz, width, height, known, **options)


class Tiled:
    """A Stream per tile, in step. Memory and time are those of as many streams."""

    adaptive = None

    def __init__(
        self, runtime: Runtime, rate_hz: float, width: int, height: int, known: Size | None = None, *,
        score: float | None = None, tracker: bool | Tracker = True, pictures: bool = False,
        decoding: Decoding = Decoding(), **options: Any,  # noqa: B008
    ) -> None:  # fmt: skip
        apart = [name for name, usual in (("adaptive", None), ("faults", "raise")) if options.get(name, usual) != usual]
        if apart:
            raise InputError(f"tiles: {', '.join(apart)} would let each tile answer at times of its own; leave it out, or take another fit")
        config = runtime.config
        fixed = fixed_size(runtime)
        scale = canvas_for(config, width, height, "pad").scale
        size = tuple(round(side / scale) for side in known or fixed or known_size(config))
        self.width, self.height = width, height
        self._boxes = Shown(config, decoding, score, tracker)
        timing = vars(options.get("timing", Timing()))
        self._framer = Framer(rate_hz, "sliding", config.window_us, config.bins, config.clip, reuse=True, **timing) if pictures else None
        self._shown: Frame | None = None
        self.tiles = tiles_of(width, height, (size[0], size[1]))
        self.streams = []
        for tile in self.tiles:
            sides = tile.right - tile.left, tile.bottom - tile.top
            canvas = canvas_for(config, *sides, "pad", None, fixed)
            shown: dict[str, Any] = {"canvas": canvas, "decoding": self._boxes.decoding, "tracker": False}
            self.streams.append(Stream(runtime, rate_hz, width=sides[0], height=sides[1], **shown, **options))
            self.streams[-1].familiar.said = self.streams[0].familiar.said

    def run(self, source: Iterable[Events]) -> Iterator[Detections]:
        for events in source:
            if len(events):
                if (events.width, events.height) != (self.width, self.height):
                    raise InputError(f"tiles: events of a {events.width} x {events.height} sensor, made for {self.width} x {self.height}")
                newest_us = int(events.t.max())
                pairs = zip(self.tiles, self.streams, strict=True)
                pictures = iter(()) if self._framer is None else self._framer.push(events)
                # A tile without events is told the time, so that all have answered up to the same window.
                answers = [[*stream.push(_cut(events, tile)), *stream.advance_to(newest_us)] for tile, stream in pairs]
                yield from self._joined(answers, pictures)
        pictures = iter(()) if self._framer is None else self._framer.finish()
        yield from self._joined([stream.finish() for stream in self.streams], pictures)

    def picture(self) -> Histogram:
        """As of Stream: the last 50 ms of the whole sensor, after the newest answer."""
        if self._shown is None:
            raise InputError("tiles: no picture: make them with pictures=True, and ask after the first answer")
        return self._shown.data

    def _joined(self, answers: list[list[Detections]], pictures: Iterator[Frame]) -> Iterator[Detections]:
        by_time: defaultdict[int, list[Detections]] = defaultdict(list)
        for tile, found in zip(self.tiles, answers, strict=True):
            for detections in found:
                by_time[detections.time_us].append(_on_sensor(detections, tile))
        for time_us in sorted(by_time):
            parts = by_time[time_us]
            boxes, scores, classes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("boxes", "scores", "classes"))
            self._shown = next((frame for frame in pictures if frame.end_us >= time_us), self._shown)
            whole = Detections(boxes, scores, classes, time_us)
            decoding = self._boxes.decoding
            yield self._boxes.of(whole[nms(boxes, scores, classes, decoding.nms_iou, across_iou=decoding.across_iou)])


def tiles_of(width: int, height: int, size: Size) -> list[Tile]:
    """Tiles of SIZE, or smaller where the sensor is, that cover the sensor evenly and overlap by a quarter at least."""
    across, down = _spans(width, size[0]), _spans(height, size[1])
    return [Tile(left, top, right, bottom, (low_x, low_y, high_x, high_y))
            for top, bottom, low_y, high_y in down for left, right, low_x, high_x in across]  # fmt: skip


def _spans(side: int, length: int) -> list[tuple[int, int, float, float]]:
    """(first, end, first of its own, end of its own) of each tile along one side; neighbours part in the middle of their overlap."""
    length = min(length, side)
    count = 1 if length == side else 1 + int(np.ceil((side - length) / (length * (1 - OVERLAP))))
    starts = np.linspace(0, side - length, count).round().astype(int).tolist()
    borders = [-np.inf, *((a + length + b) / 2 for a, b in pairwise(starts)), np.inf]
    return [(start, start + length, borders[i], borders[i + 1]) for i, start in enumerate(starts)]


def _cut(events: Events, tile: Tile) -> Events:
    inside = (events.x >= tile.left) & (events.x < tile.right) & (events.y >= tile.top) & (events.y < tile.bottom)
    x, y = events.x[inside] - np.uint16(tile.left), events.y[inside] - np.uint16(tile.top)
    return Events(events.t[inside], x, y, events.p[inside], tile.right - tile.left, tile.bottom - tile.top)


def _on_sensor(detections: Detections, tile: Tile) -> Detections:
    boxes = detections.boxes + np.array([tile.left, tile.top] * 2, np.float32)
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    left, top, right, bottom = tile.own
    return replace(detections, boxes=boxes)[(x >= left) & (x < right) & (y >= top) & (y < bottom)]
