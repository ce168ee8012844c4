"""FRAMES -> ONE PICTURE: several frames of a recording with their times, or labelled ones with their boxes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.events.reader import Reader
from saccade.files import replacing
from saccade.outputs.picture import LargePicture, boxed_picture, class_marks, colours
from saccade.representation.frames import Frame, frames
from saccade.representation.histogram import Histogram
from saccade.representation.windows import WindowKind
from saccade.types import Boxes, Ids, InputError

DPI = 130


@dataclass(frozen=True, eq=False)
class BoxedFrame:
    """A frame with the boxes at its end."""

    title: str
    data: Histogram
    boxes: Boxes
    classes: Ids


def spread_frames(reader: Reader, number: int, start_us: int, end_us: int, rate_hz: float, kind: WindowKind, window_us: int) -> list[Frame]:
    """NUMBER frames spread evenly over [start_us, end_us), each the last one before the middle of its share of the time."""
    chosen = []
    for middle_us in middles(number, start_us, end_us):
        piece = reader.stream(max(start_us, middle_us - window_us - 2 * round(1e6 / rate_hz)), middle_us)
        complete = [frame for frame in frames(piece, rate_hz, kind, window_us) if frame.end_us <= middle_us]
        chosen += complete[-1:]
    return chosen


def middles(number: int, start_us: int, end_us: int) -> list[int]:
    """Of NUMBER equal shares of [start_us, end_us)."""
    return [start_us + (2 * i + 1) * (end_us - start_us) // (2 * number) for i in range(number)]


def write_sheet(path: Path, frames: Sequence[Frame], title: str = "") -> None:
    """A picture of several frames with their times."""
    if not frames:
        raise InputError(f"{path}: no frame to write; the recording or the chosen piece of it is empty, or shorter than a frame")
    titles = [f"{frame.start_us / 1e6:.3f} to {frame.end_us / 1e6:.3f} s, {frame.events:,} events" for frame in frames]
    _write(path, [colours(frame.data) for frame in frames], titles, title, across=4, width_inch=3.6, fontsize=8)


def write_boxed_sheet(path: Path, frames: Sequence[BoxedFrame], names: Sequence[str], title: str = "") -> None:
    """A picture of several frames with their boxes and the names of the classes."""
    if not frames:
        raise InputError(f"{path}: no labelled frame to draw; the data set has no labels near its frames")
    pictures = [boxed_picture(colours(frame.data), class_marks(frame.boxes, frame.classes, names)) for frame in frames]
    inch = max(4.8, pictures[0].shape[1] / DPI)  # not made smaller, and smoothed where the margins cost some pixels: texts stay legible
    _write(path, pictures, [frame.title for frame in frames], title, across=3, width_inch=inch, fontsize=7, interpolation="antialiased")


def write_pictures(path: Path, pictures: Sequence[tuple[str, LargePicture]], title: str, *, across: int) -> None:
    """One picture of several, each with its own title, ACROSS of them in a row."""
    titles, images = [text for text, _ in pictures], [image for _, image in pictures]
    _write(path, images, titles, title, across=across, width_inch=4.8, fontsize=7, interpolation="antialiased")


def _write(
    path: Path,
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    title: str,
    *,
    across: int,
    width_inch: float,
    fontsize: int,
    interpolation: str = "nearest",
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(across, len(pictures))
    down = -(-len(pictures) // across)
    height, width = pictures[0].shape[:2]
    figure = Figure(figsize=(across * width_inch, down * (width_inch * height / width + 0.35) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for place, (picture, text) in enumerate(zip(pictures, titles, strict=True), 1):
        axes = figure.add_subplot(down, across, place)
        axes.imshow(picture, interpolation=interpolation)
        axes.set_title(text, fontsize=fontsize)
        axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI, format=path.suffix.lstrip(".").lower())
