"""The values that flow: events, windows of events, and the one error that bad input raises."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt16

Times = Int64[np.ndarray, "n"]  # microseconds
Coordinates = UInt16[np.ndarray, "n"]  # pixels of the sensor, origin at the top left
Polarities = Bool[np.ndarray, "n"]  # True = brighter


DTYPES = np.dtype(np.int64), np.dtype(np.uint16), np.dtype(np.uint16), np.dtype(np.bool_)


class InputError(ValueError):
    """Wrong input. The message says where, what, what was expected, and how to mend it."""


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Columns of equal length, in the order in which the recording stores them."""

    t: Times
    x: Coordinates
    y: Coordinates
    p: Polarities
    width: int
    height: int

    def __post_init__(self) -> None:
        columns = (self.t, self.x, self.y, self.p)
        if not (self.t.shape == self.x.shape == self.y.shape == self.p.shape and self.t.ndim == 1):
            raise InputError(f"Events: t, x, y, p must be columns of one length, got shapes {', '.join(str(c.shape) for c in columns)}")
        if (self.t.dtype, self.x.dtype, self.y.dtype, self.p.dtype) != DTYPES:
            raise InputError(
                f"Events: t, x, y, p must be int64 (us), uint16, uint16, bool, got {', '.join(str(c.dtype) for c in columns)}; "
                "convert them with .astype"
            )

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, which: "slice | np.ndarray") -> "Events":
        """The events of a slice, a mask or an index array; slices share memory."""
        return Events(self.t[which], self.x[which], self.y[which], self.p[which], self.width, self.height)

    def __iter__(self) -> "Iterator[Events]":
        """Itself, as a source of one chunk: what takes a recording takes a piece of one, too."""
        return iter((self,))

    @classmethod
    def empty(cls, width: int, height: int) -> "Events":
        none = np.zeros(0, np.uint16)
        return cls(np.zeros(0, np.int64), none, none, np.zeros(0, np.bool_), width, height)

    @classmethod
    def join(cls, parts: "list[Events]") -> "Events":
        """One after the other; all must come from a sensor of the same size."""
        if not parts:
            raise InputError("Events.join: nothing to join; use Events.empty(width, height)")
        if len(parts) == 1:
            return parts[0]
        sizes = {(part.width, part.height) for part in parts}
        if len(sizes) > 1:
            raise InputError(f"Events.join: parts of different sensors {sorted(sizes)}")
        t, x, y, p = (np.concatenate([getattr(part, name) for part in parts]) for name in "txyp")
        return cls(t, x, y, p, parts[0].width, parts[0].height)


@dataclass(frozen=True, slots=True, eq=False)
class Window(Events):
    """The events of the half-open interval [start_us, end_us)."""

    start_us: int
    end_us: int
    late: int = 0  # events that came too late for any window, since the previous window
