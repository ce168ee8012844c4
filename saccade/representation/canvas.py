"""SENSOR -> CANVAS: padding and scaling as lookup tables, so that the histogram counts straight onto the canvas; boxes map back."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int32

from saccade.config import round_up
from saccade.types import InputError

CanvasColumns = Int32[np.ndarray, "sensor_width"]  # for every column of the sensor that of the canvas; -1 = dropped
CanvasRows = Int32[np.ndarray, "sensor_height"]
BoxCorners = Float64[np.ndarray, "n 4"]  # left, top, right, bottom in pixels

SCALE_STEPS = 1 << 16  # scales are whole multiples of 1 / this: a float32 box then survives the way there and back without rounding
LARGEST_SIDE = 1 << 14


@dataclass(frozen=True, eq=False, slots=True)
class Canvas:
    """Where the sensor's pixels go. The origin stays the origin: what the canvas has more is zero at the bottom and at the right."""

    columns: CanvasColumns
    rows: CanvasRows
    width: int
    height: int
    scale: float = 1.0  # canvas pixels per sensor pixel
    steps: int = field(init=False)  # scale in SCALE_STEPS if the tables say no more than that: the kernel then needs none; else 0

    def __post_init__(self) -> None:
        for name, side in (("columns", self.width), ("rows", self.height)):
            table = np.array(getattr(self, name), np.int32)
            if table.ndim != 1 or not len(table) or table.min() < -1 or table.max() >= side:  # the kernel trusts this
                raise InputError(f"Canvas: {name} must map every sensor {name[:-1]} to -1 or below the canvas size {side}")
            table.flags.writeable = False
            object.__setattr__(self, name, table)
        steps = int(self.scale * SCALE_STEPS)
        linear = all(np.array_equal(table, _scaled(len(table), steps)) for table in (self.columns, self.rows))
        object.__setattr__(self, "steps", steps if linear else 0)

    @property
    def sensor_width(self) -> int:
        return len(self.columns)

    @property
    def sensor_height(self) -> int:
        return len(self.rows)

    def to_canvas(self, boxes: BoxCorners) -> BoxCorners:
        return boxes * self.scale

    def to_sensor(self, boxes: BoxCorners) -> BoxCorners:
        """Inverse of to_canvas, to the bit for every box that float32 can hold."""
        return boxes / self.scale

    @classmethod
    def pad(cls, width: int, height: int, multiple: int | tuple[int, int] = 32) -> "Canvas":
        """As large as the sensor, sides padded to a multiple, given as one number or as (height, width)."""
        return cls.scaled(width, height, 1.0, multiple)

    @classmethod
    def scale_to(cls, width: int, height: int, to: tuple[int, int], multiple: int | tuple[int, int] = 32) -> "Canvas":
        """Fit into TO = (width, height) by event coordinates, keeping the shape; never enlarged: that would leave holes between pixels."""
        _check_sides("Canvas.scale_to: to", *to)
        _check_sides("Canvas.scale_to: sensor", width, height)
        steps = min(SCALE_STEPS, to[0] * SCALE_STEPS // width, to[1] * SCALE_STEPS // height)
        if not steps:
            raise InputError(f"Canvas.scale_to: {width} x {height} can't be squeezed into {to[0]} x {to[1]}")
        return cls.scaled(width, height, steps / SCALE_STEPS, multiple, to)

    @classmethod
    def half(
        cls, width: int, height: int, how: Literal["events", "published"] = "events", multiple: int | tuple[int, int] = 64
    ) -> "Canvas":
        """Half resolution as for 1 Mpx: all events on halved coordinates, or, as published, only those of odd pixels."""
        if how not in ("events", "published"):
            raise InputError(f"Canvas.half: unknown how={how!r}; expected events or published")
        canvas = cls.scaled(width, height, 0.5, multiple)
        if how == "events":
            return canvas
        columns, rows = (np.where(np.arange(len(table)) % 2, table, -1) for table in (canvas.columns, canvas.rows))
        return cls(columns.astype(np.int32), rows.astype(np.int32), canvas.width, canvas.height, 0.5)

    @classmethod
    def scaled(
        cls, width: int, height: int, scale: float, multiple: int | tuple[int, int] = 1, least: tuple[int, int] = (1, 1)
    ) -> "Canvas":
        """Coordinates times SCALE, rounded down; the canvas at least as large as LEAST = (width, height), then padded to MULTIPLE."""
        down, across = (multiple, multiple) if isinstance(multiple, int) else multiple
        _check_sides("Canvas: sensor", width, height)
        _check_sides("Canvas: multiple", across, down)
        if not 0 < scale <= 1 or scale * SCALE_STEPS % 1:
            raise InputError(f"Canvas: scale={scale!r} must be in (0, 1] and a multiple of 1 / {SCALE_STEPS}")
        columns, rows = (_scaled(side, int(scale * SCALE_STEPS)) for side in (width, height))
        canvas_width = round_up(max(int(columns[-1]) + 1, least[0]), across)
        return cls(columns, rows, canvas_width, round_up(max(int(rows[-1]) + 1, least[1]), down), scale)


@lru_cache(maxsize=16)
def whole_sensor(width: int, height: int) -> Canvas:
    """The canvas that is the sensor."""
    return Canvas.pad(width, height, 1)


def _scaled(side: int, steps: int) -> np.ndarray:
    return (np.arange(side) * steps // SCALE_STEPS).astype(np.int32)


def _check_sides(what: str, width: int, height: int) -> None:
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE) or int(width) != width or int(height) != height:
        raise InputError(f"{what}: {width!r} x {height!r} must be whole numbers of pixels from 1 to {LARGEST_SIDE}")
