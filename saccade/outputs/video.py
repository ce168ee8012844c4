"""Frames -> an H.264 video that browsers play."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from saccade.files import replacing
from saccade.outputs.picture import colours, enlarge
from saccade.representation.frames import Frame
from saccade.types import InputError

FASTEST_FPS = 60  # players drop frames above this


def write_video(path: Path, frames: Iterator[Frame], frames_per_second: float) -> int:
    """Write all frames, one picture each, and return how many there were."""
    try:
        import av
    except ImportError as error:
        raise InputError(f'{path}: writing a video needs PyAV; `pip install "saccade[video]"`') from error
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
