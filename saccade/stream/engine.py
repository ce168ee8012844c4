"""PIECES -> FRAMES -> what the network says of them, with memory: all of a stream that is made for a sensor of one size."""

from fractions import Fraction

import numpy as np

from saccade.export.runtime import Runtime
from saccade.model.stepping import History
from saccade.representation.canvas import SCALE_STEPS, Canvas, whole_sensor
from saccade.representation.frames import Frame, FrameBuffer
from saccade.representation.histogram import Histogram, held
from saccade.representation.windows import WindowBuffer
from saccade.types import Counts, Window


class Engine:
    """`add` pieces one after the other; `take` the frame that ends with the newest; `advance` the memory by it."""

    def __init__(
        self, runtime: Runtime, canvas: Canvas, windows: WindowBuffer, step_us: Fraction, history: History, counts: Counts, pictures: bool
    ) -> None:
        config = runtime.config
        self.runtime, self.canvas, self.history, self.counts = runtime, canvas, history, counts
        self.frames = FrameBuffer(windows, step_us, canvas, bins=config.bins, clip=config.clip, mode=config.histogram, reuse=True)
        self.pictures: FrameBuffer | None = None  # for people, if the network's frames don't serve
        if pictures and not (windows.kind == "sliding" and canvas.steps == SCALE_STEPS and config.histogram == "exact"):
            sensor = whole_sensor(canvas.sensor_width, canvas.sensor_height)
            sliding = WindowBuffer("sliding", config.window_us)
            self.pictures = FrameBuffer(sliding, step_us, sensor, bins=config.bins, clip=config.clip, reuse=True)
        self._newest: Frame | None = None
        self._prepared_dt = 0.0

    def change_step(self, step_us: Fraction) -> None:
        self.frames.change_step(step_us)
        if self.pictures is not None:
            self.pictures.change_step(step_us)

    def add(self, piece: Window) -> None:
        self.frames.add(piece)
        if self.pictures is not None:
            self.pictures.add(piece)

    def take(self) -> Frame:
        self._newest = self.frames.take()
        return self._newest

    def picture(self) -> Histogram | None:
        """The last window of the sensor, after the newest frame that was taken."""
        if self._newest is None:
            return None
        if self.pictures is not None:
            return self.pictures.take().data
        return self._newest.data[:, : self.canvas.sensor_height, : self.canvas.sensor_width]

    def advance(self, frame: Frame) -> np.ndarray:
        """What the network says of the frame, after the true time since the state that it continues from."""
        config, data = self.runtime.config, frame.data
        if self.counts == "held":
            data = held(data, frame.end_us - frame.start_us, config.window_us, config.clip)
        state, dt = self.history.choose(frame.end_us)
        if state is None:
            state = self.runtime.initial_state(self.canvas.height, self.canvas.width)
        if dt != self._prepared_dt:
            self.runtime.prepare(dt)
            self._prepared_dt = dt
        rows, state = self.runtime.step(data, state, dt)
        self.history = self.history.add(frame.end_us, state)
        return rows

    @property
    def memory_bytes(self) -> int:
        """Of the states that are kept: one if stepped directly, rate x window if interleaved."""
        return sum(array.nbytes for state in self.history.states for array in self.runtime.state_to_arrays(state).values())
