"""DETECTIONS -> FILES: several at once, kinds by suffix; each gets its name when it is complete, and is readable if the run is cut off."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32

from saccade.files import publish
from saccade.machine import check_extra
from saccade.representation.histogram import Histogram
from saccade.s3 import S3Path, outgoing
from saccade.types import Detections, InputError

EXTRAS = {".mp4": ("av", "video"), ".mcap": ("mcap", "foxglove"), ".rrd": ("rerun", "rerun")}  # package and extra of those that need one
SUFFIXES = (".mp4", ".jsonl", ".csv", ".json", ".npy", ".mcap", ".rrd")
Look = Callable[[], Histogram]  # makes the frame that the detections were found in; called only if it is drawn


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What an output says about the run as a whole."""

    recording: str  # name of the file, or of the live source
    width: int  # of the sensor
    height: int
    classes: tuple[str, ...]
    rate_hz: float
    start_us: int  # the part of the recording that is detected
    end_us: int | None  # None: of a live source
    slow: float = 1.0  # slow motion of videos


class OutputWriter(ABC):
    """One file. It grows as NAME.part.SUFFIX, which the readers of its suffix open at any time, and gets its name when it is complete.

    After an interrupt or with a full disk, `stop` leaves NAME.part.SUFFIX, so that a part is never taken for a complete file.
    """

    wants_frames: ClassVar[bool] = False

    def __init__(self, path: Path, run: RunInfo) -> None:
        self.path, self.run = path, run
        self.part = outgoing(path) if isinstance(path, S3Path) else path.with_name(f"{path.stem}.part{path.suffix}")

    @abstractmethod
    def write(self, detections: Detections, look: Look | None = None) -> None:
        """Add the next frame's detections; LOOK gives the frame to those who draw it."""

    @abstractmethod
    def end(self) -> None:
        """Write what closes the file, and release it. After a failed write, as much as there is space for."""

    def finish(self) -> None:
        """Everything was written: the file gets its name."""
        self.end()
        publish(self.part, self.path)

    def stop(self) -> None:
        """The run was cut off: the part stays, readable."""
        with suppress(OSError):  # the disk is full; what fitted is there
            self.end()


class Records:
    """A file that grows by whole records: one that doesn't fit on the disk is taken back, so the file never ends in half of one."""

    def __init__(self, path: Path) -> None:
        self.file = open_to_write(path)
        self.size = 0

    def append(self, record: bytes) -> None:
        """Unbuffered: it survives the end of this process."""
        try:
            self.overwrite(self.size, record)
        except OSError:
            self.cut(self.size)
            raise
        self.size += len(record)

    def overwrite(self, start: int, record: bytes) -> None:
        """Put RECORD at START; overwriting existing bytes takes no new space."""
        self.file.seek(start)
        rest = memoryview(record)
        while rest:
            rest = rest[self.file.write(rest) :]

    def cut(self, size: int) -> None:
        self.file.truncate(size)

    def close(self) -> None:
        self.file.close()


class Outputs:
    """Several outputs as one: leaving the block completes them; an error or Ctrl-C inside leaves each as a readable part."""

    def __init__(self, outputs: Sequence[OutputWriter]) -> None:
        self.outputs = list(outputs)

    @property
    def wants_frames(self) -> bool:
        return any(output.wants_frames for output in self.outputs)

    def write(self, detections: Detections, look: Look | None = None) -> None:
        for output in self.outputs:
            try:
                output.write(detections, look)
            except BrokenPipeError:  # the reader of standard output has closed it
                raise
            except OSError as error:
                raise InputError(f"{output.path}: can't go on writing at {detections.time_us / 1e6:.3f} s ({error.strerror})") from error

    def discard(self) -> None:
        """Remove the parts: the run couldn't begin."""
        for output in self.outputs:
            output.stop()
            output.part.unlink(missing_ok=True)

    @property
    def parts(self) -> list[Path]:
        """Files that a run that was cut off has left."""
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


def check_outputs(paths: Sequence[Path], recording: Path, overwrite: bool) -> None:
    """Before anything is computed: known suffixes, their packages installed, no file twice, none that exists unless it may be replaced."""
    for path in paths:
        if str(path) == "-":
            continue
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected {', '.join(SUFFIXES)}, or - for a pipe")
        if path.suffix.lower() in EXTRAS:
            check_extra(path, *EXTRAS[path.suffix.lower()])
        if paths.count(path) > 1 or path.resolve() == recording.resolve():
            raise InputError(f"{path}: named twice, or the recording itself; every file of --out needs a name of its own")
        if path.exists() and (not overwrite or path.is_dir()):
            raise InputError(f"{path}: exists already; give another name, or --overwrite to replace it")


def open_outputs(paths: Sequence[Path], run: RunInfo) -> Outputs:
    """Writers by suffix, - for standard output; if one can't be opened, none is."""
    from saccade.outputs.tables import CocoWriter, CsvWriter, JsonLinesWriter, PropheseeWriter, StandardOutputWriter
    from saccade.outputs.video import VideoWriter
    from saccade.outputs.viewer_logs import McapWriter, RrdWriter

    kinds: dict[str, type[OutputWriter]] = {
        ".mp4": VideoWriter, ".jsonl": JsonLinesWriter, ".csv": CsvWriter, ".json": CocoWriter, ".npy": PropheseeWriter,
        ".mcap": McapWriter, ".rrd": RrdWriter,
    }  # fmt: skip
    outputs = Outputs([])
    try:
        for path in paths:
            outputs.outputs.append(StandardOutputWriter(path, run) if str(path) == "-" else kinds[path.suffix.lower()](path, run))
    except BaseException:
        outputs.discard()
        raise
    return outputs


def open_to_write(path: Path) -> io.FileIO:
    """Unbuffered, emptied if it exists."""
    try:
        return open(path, "w+b", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: can't write there ({error.strerror}); choose another folder") from error


def decimals(values: Float32[np.ndarray, "..."]) -> Any:
    """Nested lists of the shortest decimals that read back as the same float32: 0.1, where Python would write 0.10000000149011612."""
    flat = np.array([float(str(value)) for value in values.ravel()], np.float64)
    nested: Any = flat.reshape(values.shape).tolist()
    return nested
