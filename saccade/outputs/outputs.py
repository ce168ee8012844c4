"""DETECTIONS -> FILES: several at once, each whole at the end, and readable up to where a run was cut off."""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32, Float64, UInt8

from saccade.types import Boxes, Detections, InputError

Histogram = UInt8[np.ndarray, "channels H W"]
Look = Callable[[], Histogram]  # the events that the detections were found in; made when asked for, because a video leaves frames out


@dataclass(frozen=True, kw_only=True)
class Run:
    """What an output says about the run as a whole."""

    recording: str  # name of the file
    width: int  # of the sensor
    height: int
    classes: tuple[str, ...]
    rate_hz: float
    start_us: int  # what is detected of the recording
    end_us: int
    slow: float = 1.0  # slow motion of videos


class Output(ABC):
    """One file. It grows as NAME.part.SUFFIX, which the readers of its suffix open at any time, and gets its name when it is whole.

    Whoever is interrupted or runs out of space calls `stop`: the file stays NAME.part.SUFFIX, so that a part is never taken for a whole.
    """

    wants_frames: ClassVar[bool] = False

    def __init__(self, path: Path, run: Run) -> None:
        self.path, self.run = path, run
        self.part = path.with_name(f"{path.stem}.part{path.suffix}")

    @abstractmethod
    def write(self, detections: Detections, look: Look | None = None) -> None:
        """The next frame's detections; LOOK for those who draw them."""

    @abstractmethod
    def end(self) -> None:
        """Write what closes the file, and release it. After a failed write, as much as there is space for."""

    def finish(self) -> None:
        """All was written: the file gets its name."""
        self.end()
        os.replace(self.part, self.path)

    def stop(self) -> None:
        """Cut off: the part stays, readable."""
        with suppress(OSError):  # the disk is full; what fitted is there
            self.end()


class Records:
    """A file that grows by whole records: one that doesn't fit is taken back, so that the file never ends in half of one."""

    def __init__(self, path: Path) -> None:
        self.file = open_to_write(path)
        self.size = 0

    def append(self, record: bytes) -> None:
        """Unbuffered: what was written is with the system, and survives the end of this process."""
        try:
            self.overwrite(self.size, record)
        except OSError:
            self.cut(self.size)
            raise
        self.size += len(record)

    def overwrite(self, start: int, record: bytes) -> None:
        """Put RECORD at START; bytes that are there already take no new space."""
        self.file.seek(start)
        rest = memoryview(record)
        while rest:
            rest = rest[self.file.write(rest) :]

    def cut(self, size: int) -> None:
        self.file.truncate(size)

    def close(self) -> None:
        self.file.close()


class Outputs:
    """Several outputs as one: leaving the block finishes them; an error or Ctrl-C inside leaves each as a readable part."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.outputs = list(outputs)

    @property
    def wants_frames(self) -> bool:
        return any(output.wants_frames for output in self.outputs)

    def write(self, detections: Detections, look: Look | None = None) -> None:
        for output in self.outputs:
            try:
                output.write(detections, look)
            except BrokenPipeError:  # whoever read has enough
                raise
            except OSError as error:
                raise InputError(f"{output.path}: can't go on writing at {detections.time_us / 1e6:.3f} s ({error.strerror})") from error

    def discard(self) -> None:
        """Nothing was written, and nothing will be."""
        for output in self.outputs:
            output.stop()
            output.part.unlink(missing_ok=True)

    @property
    def parts(self) -> list[Path]:
        """What a run that was cut off has left."""
        return [output.part for output in self.outputs if output.part.exists()]

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failed = None
        for output in self.outputs:
            try:
                if error is not None:
                    output.stop()
                else:
                    output.finish()
            except OSError as problem:
                failed = failed or InputError(f"{output.path}: can't be finished ({problem.strerror}); {output.part} has what fitted")
        if failed is not None:
            raise failed


def open_to_write(path: Path) -> io.FileIO:
    """Unbuffered, emptied if it exists."""
    try:
        return open(path, "w+b", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: can't write there ({error.strerror}); choose another folder") from error


def decimals(values: Float32[np.ndarray, "..."]) -> Any:
    """Nested lists of the shortest numbers that are these as float32: 0.1, where Python would write 0.10000000149011612."""
    flat = np.array([float(str(value)) for value in values.ravel()], np.float64)
    nested: Any = flat.reshape(values.shape).tolist()
    return nested


def sized(boxes: Boxes) -> Float64[np.ndarray, "n 4"]:
    """Corners -> left, top, width, height, with the fewest digits that give the corners back as float32."""
    corners = np.array(decimals(boxes), np.float64).reshape(-1, 4)
    low, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
    rounded = size.round(9)
    same = (low + rounded).astype(np.float32) == boxes[:, 2:]
    return np.concatenate((low, np.where(same, rounded, size)), axis=1)
