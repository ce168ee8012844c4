"""DETECTIONS + FRAMES -> an H.264 video with boxes, tracks and a time axis; what there is of it plays even if the process was killed."""

import io
import struct
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

from saccade.outputs.outputs import Look, Output, Run, open_to_write
from saccade.outputs.overlay import Overlay
from saccade.outputs.picture import colours
from saccade.outputs.video import FASTEST_FPS
from saccade.types import Detections, InputError

CLOCK_HZ = 90_000  # of the pictures' times: each is shown at its own time, so a change of rate shows as it is
KEYFRAME_EVERY = 60
# Fragments of half a second, and an ordinary index when the video is whole.
MUXING = {"movflags": "hybrid_fragmented", "frag_duration": "500000", "flush_packets": "1"}
ENCODING = {"crf": "20", "preset": "veryfast", "tune": "zerolatency"}  # no frames held back, or they would be lost with the process


class Video(Output):
    """Shown at the recording's speed, or `run.slow` times slower. Frames that come faster than a player shows them are left out."""

    wants_frames = True

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        try:
            import av
        except ImportError as error:
            raise InputError(f'{path}: writing a video needs PyAV; `pip install "saccade[video]"`') from error
        self.overlay = Overlay(run)
        self.sink = Sink(open_to_write(self.part))
        self.container = av.open(self.sink, "w", format="mp4", options=MUXING)
        self.stream = self.container.add_stream("libx264", rate=FASTEST_FPS, options=ENCODING)
        self.stream.pix_fmt = "yuv420p"
        self.stream.codec_context.time_base = Fraction(1, CLOCK_HZ)
        self.stream.codec_context.gop_size = KEYFRAME_EVERY
        self.first_us: int | None = None
        self.shown = -CLOCK_HZ  # time of the newest picture

    def write(self, detections: Detections, look: Look | None = None) -> None:
        import av

        if look is None:
            raise InputError(f"{self.path}: a video needs the frame of each Detections")
        self.first_us = detections.time_us if self.first_us is None else self.first_us
        time = round((detections.time_us - self.first_us) * self.run.slow * CLOCK_HZ / 1e6)
        if (time - self.shown) * FASTEST_FPS < CLOCK_HZ * 0.99:  # rounded times of 60 Hz count as 60 Hz
            self.overlay.remember(detections)
            return
        picture = self.overlay.draw(colours(look()), detections)
        if not self.stream.codec_context.is_open:
            self.stream.height, self.stream.width = picture.shape[:2]
        image = av.VideoFrame.from_ndarray(picture, format="rgb24")
        image.pts, image.time_base = time, Fraction(1, CLOCK_HZ)
        self.shown = time
        self.container.mux(self.stream.encode(image))
        self.sink.check()

    def end(self) -> None:
        if self.stream.codec_context.is_open:
            self.container.mux(self.stream.encode(None))
        self.container.close()
        self.sink.close()
        self.sink.check()


class Sink:
    """The file that the muxer writes to. Once the disk was full nothing more reaches it, and it is cut to the fragments that are whole."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Never fails, because the muxer's C code can't pass the reason on: `check` does."""
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
    """Length of an mp4 file up to the end of its last whole fragment: boxes of (length, name), a fragment is moof and mdat."""
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
