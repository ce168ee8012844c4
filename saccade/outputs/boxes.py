"""Frames + boxes -> pictures: outlines in a colour per class, and a sheet of labelled frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.files import replacing
from saccade.outputs.picture import Histogram, Pixels, colours
from saccade.types import Boxes, Ids, InputError

INKS = ("#d81b60", "#1e88e5", "#d98c00", "#00796b", "#7b1fa2", "#5d4037", "#43a047", "#37474f")  # told apart also by the colour blind


@dataclass(frozen=True, eq=False)
class BoxedFrame:
    """A frame with the boxes at its end."""

    title: str
    data: Histogram
    boxes: Boxes
    classes: Ids


def ink_of(index: int) -> str:
    return INKS[index % len(INKS)]


def draw_boxes(picture: Pixels, boxes: Boxes, classes: Ids) -> Pixels:
    """A copy with outlines one pixel wide, cut at the borders."""
    out = picture.copy()
    height, width = picture.shape[:2]
    for box, index in zip(boxes.round().astype(int).tolist(), classes.tolist(), strict=True):
        left, top, right, bottom = max(box[0], 0), max(box[1], 0), min(box[2], width) - 1, min(box[3], height) - 1
        if left > right or top > bottom:
            continue
        ink = [int(ink_of(index)[i : i + 2], 16) for i in (1, 3, 5)]
        out[[top, bottom], left : right + 1] = ink
        out[top : bottom + 1, [left, right]] = ink
    return out


def write_boxed_sheet(path: Path, frames: Sequence[BoxedFrame], names: Sequence[str], title: str = "") -> None:
    """A picture of several frames with their boxes and the names of the classes."""
    if not frames:
        raise InputError(f"{path}: no labelled frame to draw; the data set has no labels near its frames")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    across = min(3, len(frames))
    down = -(-len(frames) // across)
    height, width = frames[0].data.shape[1:]
    figure = Figure(figsize=(across * 4.8, down * (4.8 * height / width + 0.35) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for place, frame in enumerate(frames):
        axes = figure.add_subplot(down, across, place + 1)
        axes.imshow(colours(frame.data), interpolation="nearest")
        for (left, top, right, bottom), index in zip(frame.boxes.tolist(), frame.classes.tolist(), strict=True):
            # imshow puts the centre of pixel 0 at 0
            axes.add_patch(
                Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor=ink_of(index), linewidth=1.2)
            )
            axes.text(left, top - 2, names[index], color=ink_of(index), fontsize=6, verticalalignment="bottom", clip_on=True)
        axes.set_title(frame.title, fontsize=7)
        axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format=path.suffix.lstrip(".").lower())
