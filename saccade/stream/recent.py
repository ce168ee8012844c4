"""PIECES OF A STREAM -> WINDOW of any length that ends with the newest: what a stream holds of the past."""

from collections import deque

import numpy as np

from saccade.representation.windows import WindowKind
from saccade.types import Events, Window


class Recent:
    """The events since the last step and, for sliding windows, those of the last window, in the pieces in which they came.

    A window that is not taken is merged into the next: nothing is lost while steps are at most a window apart. Beyond that a sliding
    window stays as long as the network knows it, and what falls between two is counted in `unseen`.
    """

    def __init__(self, kind: WindowKind, window_us: int) -> None:
        self.kind, self.window_us = kind, window_us
        self.pieces: deque[Window] = deque()
        self.stepped_us: int | None = None  # end of the newest window that was taken
        self.since = 0  # events since then
        self.unseen = 0

    def add(self, piece: Window) -> None:
        """PIECE begins where the one before ended."""
        self.pieces.append(piece)
        self.since += len(piece)
        if self.kind == "sliding":
            self._forget(piece.end_us - self.window_us)

    def elapsed_us(self, end_us: int) -> int | None:
        return None if self.stepped_us is None else end_us - self.stepped_us

    def take(self) -> Window:
        """The window that ends with the newest piece; the next one begins anew."""
        newest = self.pieces[-1]
        first_us = self.pieces[0].start_us if self.stepped_us is None else self.stepped_us
        start_us = newest.end_us - self.window_us if self.kind == "sliding" else first_us
        parts = [_after(piece, start_us) for piece in self.pieces]
        self.unseen += sum(self._unstepped(piece) and len(piece) - len(part) for piece, part in zip(self.pieces, parts, strict=True))
        parts = [part for part in parts if len(part)]
        events = Events.join(parts) if parts else Events.empty(newest.width, newest.height)
        self.stepped_us, self.since = newest.end_us, 0
        self._forget(newest.end_us - self.window_us if self.kind == "sliding" else newest.end_us)
        return Window(events.t, events.x, events.y, events.p, events.width, events.height, start_us, newest.end_us)

    def _unstepped(self, piece: Window) -> int:
        """How many events of a piece no window was there for."""
        return len(piece) if self.stepped_us is None or piece.end_us > self.stepped_us else 0

    def _forget(self, start_us: int) -> None:
        """Pieces that no later window reaches."""
        while self.pieces and self.pieces[0].end_us <= start_us:
            self.unseen += self._unstepped(self.pieces.popleft())


def _after(piece: Window, start_us: int) -> Events:
    t = piece.t
    if piece.start_us >= start_us:
        return piece
    if not (t[1:] < t[:-1]).any():
        return piece[int(np.searchsorted(t, start_us)) :]
    return piece[t >= start_us]
