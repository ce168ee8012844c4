"""FRAMES -> H.264 VIDEOS that browsers play: plain, or with boxes, tracks and a time axis; the latter plays even if the run was killed."""

import io
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, BinaryIO

from saccade.files import replacing
from saccade.outputs.outputs import Look, OutputWriter, RunInfo, open_to_write
from saccade.outputs.overlay import Overlay
from saccade.outputs.picture import colours, enlarge
from saccade.representation.frames import Frame
from saccade.representation.histogram import Histogram
from saccade.types import Detections, InputError

FASTEST_FPS = 60  # players drop frames above this
CLOCK_HZ = 90_000  # unit of presentation times: each picture is shown at its own time, also when the rate changes
KEYFRAME_EVERY = 60
MOST_WAITING = 4  # frames to be drawn: what a killed process loses beside the last fragment
_Shot = tuple[Detections, int, Histogram | None]  # when it is shown, and the frame if it is
# Fragments of half a second while it is written, an ordinary index at the end.
MUXING = {"movflags": "hybrid_fragmented", "frag_duration": "500000", "flush_packets": "1"}
ENCODING = {"crf": "20", "preset": "veryfast", "tune": "zerolatency"}  # no frames held back: they would be lost if the process is killed


def write_video(path: Path, frames: Iterator[Frame], frames_per_second: float) -> int:
    """Write all frames, one picture each, and return how many there were."""
    av = _pyav(path)
    written = 0
    with replacing(path) as temporary, av.open(str(temporary), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(frames_per_second).limit_denominator(1000))
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "20", "preset": "fast"}
        for frame in frames:
            picture = enlarge(colours(frame.data))
            picture = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]  # yuv420p halves both sides
            if written == 0:
                stream.height, stream.width = picture.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            written += 1
        if written == 0:
            raise InputError(f"{path}: no frame to write; the recording or the chosen piece of it is empty")
        container.mux(stream.encode())
    return written


class VideoWriter(OutputWriter):
    """Plays at the recording's speed, or `run.slow` times slower; at more than 60 frames a second some are left out.

    Pictures are drawn and encoded in a thread of their own, a few at most behind: `write` takes a frame that is shown, and waits only if
    detecting is faster than drawing. What the thread fails with is raised by the next `write`, or by `end`.
    """

    wants_frames = True

    def __init__(self, path: Path, run: RunInfo) -> None:
        super().__init__(path, run)
        self.av = _pyav(path)
        self.overlay = Overlay(run)
        self.sink = _VideoFile(open_to_write(self.part))
        self.container = self.av.open(self.sink, "w", format="mp4", options=MUXING)
        self.stream = self.container.add_stream("libx264", rate=FASTEST_FPS, options=ENCODING)
        self.stream.pix_fmt = "yuv420p"
        self.stream.codec_context.time_base = Fraction(1, CLOCK_HZ)
        self.stream.codec_context.gop_size = KEYFRAME_EVERY
        self.first_us: int | None = None
        self.shown = -CLOCK_HZ  # time of the newest picture
        self.waiting: Queue[_Shot | None] = Queue(MOST_WAITING)
        self.error: Exception | None = None
        self.thread = Thread(target=self._draw_all, name=f"draws {path.name}", daemon=True)
        self.thread.start()

    def write(self, detections: Detections, look: Look | None = None) -> None:
        if look is None:
            raise InputError(f"{self.path}: a video needs the frame of each Detections")
        self._check()
        self.first_us = detections.time_us if self.first_us is None else self.first_us
        time = round((detections.time_us - self.first_us) * self.run.slow * CLOCK_HZ / 1e6)
        is_shown = (time - self.shown) * FASTEST_FPS >= CLOCK_HZ * 0.99  # tolerance for rounded times
        if is_shown:
            self.shown = time
        self.waiting.put((detections, time, look().copy() if is_shown else None))  # a stream's frame is valid until the next

    def end(self) -> None:
        if self.thread.is_alive():
            self.waiting.put(None)
            self.thread.join()
        if self.stream.codec_context.is_open:
            self.container.mux(self.stream.encode(None))
        self.container.close()
        self.sink.close()
        self._check()

    def _check(self) -> None:
        self.sink.check()
        if self.error is not None:
            raise self.error

    def _draw_all(self) -> None:
        """After a failure, what waits is taken and left: nobody may wait for this thread forever."""
        while (shot := self.waiting.get()) is not None:
            if self.error is not None or self.sink.error is not None:
                continue
            try:
                self._draw(*shot)
            except Exception as error:
                self.error = error

    def _draw(self, detections: Detections, time: int, frame: Histogram | None) -> None:
        if frame is None:  # not shown, but tracks have been there
            self.overlay.remember(detections)
            return
        picture = self.overlay.draw(colours(frame), detections)
        if not self.stream.codec_context.is_open:
            self.stream.height, self.stream.width = picture.shape[:2]
        image = self.av.VideoFrame.from_ndarray(picture, format="rgb24")
        image.pts, image.time_base = time, Fraction(1, CLOCK_HZ)
        self.container.mux(self.stream.encode(image))


class _VideoFile:
    """The file that the muxer writes to. After the disk was full nothing more is written, and it is cut after the last whole fragment."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Never raises, because the muxer's C code would lose the reason: `check` raises it."""
        written = 0
        while self.error is None and written < len(data):
            try:
                written += self.file.write(memoryview(data)[written:])
            except OSError as error:
                self.error = error
        return len(data)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def close(self) -> None:
        if self.error is not None:
            self.file.truncate(whole_fragments(self.file))
        self.file.close()


def whole_fragments(file: BinaryIO | io.FileIO) -> int:
    """Length of an mp4 file up to the end of its last whole fragment. It consists of boxes (length, name); moof and mdat are a fragment."""
    size = file.seek(0, 2)
    end, kept, names = 0, 0, set()
    while end + 8 <= size:
        file.seek(end)
        length, name = struct.unpack(">I4s", file.read(8))
        end += length
        if length < 8 or end > size:
            break
        names.add(name)
        if name == b"mdat" or b"moof" not in names:
            kept = end
    return kept


def _pyav(path: Path) -> Any:
    try:
        import av
    except ImportError as error:
        raise InputError(f'{path}: writing a video needs PyAV; `pip install "saccade-events[video]"`') from error
    return av
