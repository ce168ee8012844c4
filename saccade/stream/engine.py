"""WINDOW -> DETECTIONS with memory: frame, network, boxes, ids. One step of a stream."""

import numpy as np

from saccade.detection.decode import decode_rows
from saccade.detection.track import Tracker
from saccade.export.runtime import Runtime
from saccade.model.stepping import History
from saccade.representation.canvas import Canvas
from saccade.representation.histogram import add_events, scaled
from saccade.types import Counts, Detections, Stepping, Window

CLIP = 10  # counts of the network's input end here


class Engine:
    def __init__(
        self,
        runtime: Runtime,
        canvas: Canvas,
        stepping: Stepping,
        counts: Counts,
        reset_every: int,
        tracker: Tracker | None,
        **decoding: float,
    ) -> None:
        self.runtime, self.canvas, self.counts, self.tracker, self.decoding = runtime, canvas, counts, tracker, decoding
        self.history = History(runtime.config.window_us, stepping, reset_every)
        self._frame = np.zeros((2 * runtime.config.bins, canvas.height, canvas.width), np.uint8)
        self._prepared_dt = 0.0
        if tracker is not None:
            tracker.reset()

    def step(self, window: Window) -> Detections:
        self.fill(window)
        rows = self.advance(window.end_us)
        return self.found(rows, window.end_us)

    def fill(self, window: Window) -> None:
        self._frame.fill(0)
        tally = np.zeros((2, self.runtime.config.bins), np.int64)
        add_events(self._frame, tally, window, window.start_us, window.end_us, CLIP, self.canvas, self.runtime.config.histogram)
        if self.counts == "scaled":
            self._frame[:] = scaled(self._frame, window.end_us - window.start_us, self.runtime.config.window_us, CLIP)

    def advance(self, end_us: int) -> np.ndarray:
        """What the network says of the frame, after the true time since the state that it continues from."""
        state, dt = self.history.choose(end_us)
        if state is None:
            state = self.runtime.initial_state(self.canvas.height, self.canvas.width)
        if dt != self._prepared_dt:
            self.runtime.prepare(dt)
            self._prepared_dt = dt
        rows, state = self.runtime.step(self._frame, state, dt)
        self.history = self.history.add(end_us, state)
        return rows

    def found(self, rows: np.ndarray, end_us: int) -> Detections:
        (detections,) = decode_rows(rows[None], [end_us], self.canvas, **self.decoding)  # type: ignore[arg-type]
        return detections if self.tracker is None else self.tracker.update(detections)

    @property
    def memory_bytes(self) -> int:
        """Of all states that are kept: one if stepped directly, rate x window if interleaved."""
        return sum(array.nbytes for state in self.history.states for array in self.runtime.state_to_arrays(state).values())
