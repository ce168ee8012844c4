"""VIDEO -> EVENTS: frames, interpolated in time, before the simulated sensor."""

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from saccade.files import check_readable
from saccade.simulate.sensor import Sensor, SensorConfig
from saccade.types import Events, InputError

LONGEST_STEP_US = 5_000
GAMMA = 2.2  # of the video's encoding: intensity = value ** gamma
DARKEST = 0.02  # intensity of black: there is stray light, and 8 bits say nothing about darker
LONGEST_PAUSE_S = 10  # between two frames


class VideoSource:
    """The events of a video: a context manager with width and height, and an iterable of chunks, one per frame."""

    def __init__(
        self,
        path: Path | str,
        *,
        width: int | None = None,
        height: int | None = None,
        seconds: float | None = None,
        sensor: SensorConfig | None = None,
        seed: int = 0,
    ) -> None:
        try:
            import av
        except ImportError as error:
            raise InputError(f'{path}: reading a video needs PyAV; `pip install "saccade-events[video]"`') from error
        self.path, self.seconds, self.sensor, self.seed = Path(path), seconds, sensor or SensorConfig(), seed
        check_readable(self.path)
        try:
            self._container: Any = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (av.FFmpegError, IndexError) as error:
            raise InputError(f"{path}: no video that PyAV can read ({error}); expected a file such as .mp4") from error
        self._errors = av.FFmpegError
        self.width, self.height = width or self._stream.width, height or self._stream.height
        rate = float(self._stream.average_rate or 25)
        self.frames = self._stream.frames or None  # as the file says, for a progress bar
        if self.frames and seconds:
            self.frames = min(self.frames, ceil(seconds * rate))
        self.position = 0  # frames read so far

    def __enter__(self) -> "VideoSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()

    def __iter__(self) -> Iterator[Events]:
        """From the first frame (time 0) to the last. A video is read once."""
        sensor = Sensor(self.width, self.height, self.sensor, self.seed)
        pictures = self._pictures()
        first = next(pictures, None)
        if first is None:
            raise InputError(f"{self.path}: no frame in it that can be decoded")
        before_us, before = first
        yield sensor.see(np.exp(before), before_us)
        for after_us, after in pictures:
            number = ceil((after_us - before_us) / LONGEST_STEP_US)
            parts = []
            for i in range(1, number + 1):  # linear in log intensity: the sensor's own measure
                picture = before + np.float32(i / number) * (after - before)
                parts.append(sensor.see(np.exp(picture), before_us + (after_us - before_us) * i // number))
            yield Events.join(parts)
            before_us, before = after_us, after

    def _pictures(self) -> Iterator[tuple[int, Float32[np.ndarray, "height width"]]]:
        """Times that rise, us from the first frame, and logarithms of intensity."""
        origin, last_us = None, -1
        table = np.log(DARKEST + (1 - DARKEST) * (np.arange(256) / 255) ** GAMMA).astype(np.float32)
        self._container.seek(0)
        self.position = 0
        for frame in self._decoded():
            self.position += 1
            if frame.time is None:
                continue
            origin = frame.time if origin is None else origin
            time_us = round((frame.time - origin) * 1e6)
            if time_us <= last_us:  # damaged or repeated
                continue
            if last_us >= 0 and time_us - last_us > LONGEST_PAUSE_S * 1_000_000:
                raise InputError(f"{self.path}: {(time_us - last_us) // 1_000_000} s between frames at {last_us / 1e6:.1f} s; cut it there")
            if self.seconds is not None and time_us > self.seconds * 1e6:
                return
            last_us = time_us
            grey: UInt8[np.ndarray, "height width"] = frame.to_ndarray(width=self.width, height=self.height, format="gray")
            yield time_us, table[grey]

    def _decoded(self) -> Iterator[Any]:
        try:
            yield from self._container.decode(self._stream)
        except self._errors as error:
            raise InputError(f"{self.path}: damaged after frame {self.position} ({error}); `--seconds` reads a part") from error
