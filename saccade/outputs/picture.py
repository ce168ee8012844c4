"""Frames -> pictures: one frame as colours, several as a sheet."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from saccade.events.reader import Reader
from saccade.files import replacing
from saccade.representation.frames import Frame, frames
from saccade.representation.windows import WindowKind
from saccade.types import InputError

Pixels = UInt8[np.ndarray, "H W 3"]
Histogram = UInt8[np.ndarray, "channels H W"]

PAPER = np.array([250, 250, 248], np.float32)
BRIGHTER = np.array([20, 90, 200], np.float32)  # blue: events of rising intensity
DARKER = np.array([215, 60, 30], np.float32)  # red: falling
OLDEST = 0.35  # weight of the oldest bin, so that motion shows its direction


def colours(frame: Histogram) -> Pixels:
    """Polarities as two inks on paper, newer bins darker."""
    active = np.bitwise_or.reduce(frame, axis=0) > 0  # most pixels are silent: a large sensor takes a tenth of the time
    darker, brighter = np.split(frame[:, active].astype(np.float32), 2)
    age = np.linspace(OLDEST, 1, len(darker), dtype=np.float32)[:, None]
    ink = [np.minimum((counts * age).max(axis=0) * 0.6, 1)[:, None] for counts in (darker, brighter)]
    inked = PAPER + ink[0] * (DARKER - PAPER)
    inked = inked + ink[1] * (BRIGHTER - inked)
    picture = np.empty((*frame.shape[1:], 3), np.uint8)
    picture[:] = PAPER
    picture[active] = inked.round()
    return picture


def enlarge(picture: Pixels, shortest: int = 480) -> UInt8[np.ndarray, "larger_H larger_W 3"]:
    """Whole multiples only: events are points, and blurred points look like noise."""
    factor = max(1, round(shortest / min(picture.shape[:2])))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def spread(reader: Reader, number: int, start_us: int, end_us: int, rate_hz: float, kind: WindowKind, window_us: int) -> list[Frame]:
    """Frames from all over [start_us, end_us), each the last one before the middle of its share of the time."""
    chosen = []
    for i in range(number):
        middle_us = start_us + (2 * i + 1) * (end_us - start_us) // (2 * number)
        piece = reader.stream(max(start_us, middle_us - window_us - 2 * round(1e6 / rate_hz)), middle_us)
        complete = [frame for frame in frames(piece, rate_hz, kind, window_us) if frame.end_us <= middle_us]
        chosen += complete[-1:]
    return chosen


def write_sheet(path: Path, frames: list[Frame], title: str = "") -> None:
    """A picture of several frames with their times."""
    if not frames:
        raise InputError(f"{path}: no frame to write; the recording or the chosen piece of it is empty, or shorter than a frame")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(4, len(frames))
    down = -(-len(frames) // across)
    height, width = frames[0].data.shape[1:]
    figure = Figure(figsize=(across * 3.6, down * (3.6 * height / width + 0.35) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for place, frame in enumerate(frames):
        axes = figure.add_subplot(down, across, place + 1)
        axes.imshow(colours(frame.data), interpolation="nearest")
        axes.set_title(f"{frame.start_us / 1e6:.3f} to {frame.end_us / 1e6:.3f} s, {frame.events:,} events", fontsize=8)
        axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format=path.suffix.lstrip(".").lower())
