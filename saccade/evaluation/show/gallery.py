"""MISTAKES -> PICTURES of the report: events, labels and detections of the instant, boxes as sharp lines at any size."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from saccade.evaluation.run.condition import Condition
from saccade.evaluation.score.mistakes import Mistake
from saccade.evaluation.show.markup import Markup, element, joined

Pixels = UInt8[np.ndarray, "H W 3"]


@dataclass(frozen=True, eq=False)
class Gallery:
    """The worst mistakes of one condition, each with the events that led to it as a picture (whoever calls draws them)."""

    condition: Condition
    false: Sequence[tuple[Mistake, Pixels]]
    missed: Sequence[tuple[Mistake, Pixels]]


def pictures(drawn: Sequence[tuple[Mistake, Pixels]], classes: Sequence[str]) -> Markup:
    return element("div", *(_picture(mistake, pixels, classes) for mistake, pixels in drawn), class_="pictures")


def _picture(mistake: Mistake, pixels: Pixels, classes: Sequence[str]) -> Markup:
    height, width = pixels.shape[:2]
    rows = [("truth", "missed", row, box) for row, box in enumerate(mistake.labels.boxes)]
    rows += [("guess", "false", row, box) for row, box in enumerate(mistake.detections.boxes)]
    rows.sort(key=lambda one: one[1:3] == (mistake.kind, mistake.index))  # the mistake is drawn over all others
    boxes = (_box(box, style, (kind, row) == (mistake.kind, mistake.index)) for style, kind, row, box in rows)
    image = element("image", href=_png(pixels), width=width, height=height)
    what = classes[mistake.class_index]
    view = element("svg", image, *boxes, viewBox=f"0 0 {width} {height}", role="img", aria_label=f"{what}, {_told(mistake)}")
    where = element("small", f"{mistake.recording}, {mistake.instant_us / 1e6:.3f} s")
    return element("figure", view, element("figcaption", element("b", what), f" {_told(mistake)}", where))


def _told(mistake: Mistake) -> str:
    """The score of a false detection; size, visible share and stillness of a missed object."""
    if mistake.kind == "false":
        return f"score {mistake.weight:.2f}"
    labels, row = mistake.labels, mistake.index
    width, height = labels.boxes[row, 2:] - labels.boxes[row, :2]
    words = [f"{width:.0f} × {height:.0f} px"]
    if labels.visible is not None and labels.visible[row] < 0.995:
        words.append(f"{100 * labels.visible[row]:.0f} % visible")
    if labels.still_us is not None and labels.still_us[row] > 0:
        words.append(f"no events for {labels.still_us[row] / 1e6:.2g} s")
    return ", ".join(words)


def _box(box: np.ndarray, kind: str, wrong: bool) -> Markup:
    left, top, right, bottom = (round(float(value), 1) for value in box)
    shape = {"x": left, "y": top, "width": max(right - left, 0.0), "height": max(bottom - top, 0.0)}
    halo = element("rect", **shape, class_="halo")  # boxes must be seen on dense events, too
    return joined(halo, element("rect", **shape, class_=f"{kind} wrong" if wrong else kind))


def _png(pixels: Pixels) -> str:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
