"""EVALUATION -> one HTML file that works offline: tables, charts, and the worst mistakes as pictures. No script, no other file.

What it says is worked out here; how it is laid out is report.html, a jinja2 template, and report.css.
"""

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from saccade.evaluation.result import Evaluation, Part, Result, Series
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.score.mistakes import SURE, Mistake
from saccade.evaluation.show import charts
from saccade.evaluation.show.charts import REFERENCE, Line, css_colour, has_points, rate_lines, style_of
from saccade.evaluation.show.table import (
    NOTHING,
    TextTable,
    conditions_table,
    cost_table,
    differences_table,
    lines_of,
    number,
    rates_table,
    sampled_from,
    significant,
)
from saccade.files import replacing
from saccade.types import InputError

if TYPE_CHECKING:
    from jinja2 import Environment

# XML forbids these characters, and a file name may hold them; halves of surrogate pairs stand for bytes that were no UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, eq=False)
class Gallery:
    """The worst mistakes of one condition, each with a picture of the events that led to it."""

    condition: Condition
    false: Sequence[tuple[Mistake, UInt8[np.ndarray, "H W 3"]]]
    missed: Sequence[tuple[Mistake, UInt8[np.ndarray, "H W 3"]]]


def write_report(path: Path, evaluation: Evaluation, gallery: Gallery | None = None, beside: Sequence[Evaluation] = ()) -> None:
    """Write the whole report, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(report(evaluation, gallery, beside), encoding="utf-8")


def report(evaluation: Evaluation, gallery: Gallery | None = None, beside: Sequence[Evaluation] = ()) -> str:
    """The page as text; other weights on the same data stand beside the first."""
    if not evaluation.results:
        raise InputError(f"{evaluation.weights}: an evaluation without results; give at least one rate")
    several = (evaluation, *beside)
    named, chosen = lines_of(*several), detailed(*several)
    return (
        environment()
        .get_template("report.html")
        .render(
            title=f"{' and '.join(one.model for one in several)} on {evaluation.dataset}",
            evaluation=evaluation,
            weights=", ".join(one.weights for one in several),
            metrics=evaluation.results[0].scores,
            tiles=_tiles(evaluation.series[0]),
            series=[(name, style_of(place)) for place, (name, _) in enumerate(named)],
            rate_charts=_rate_charts(named),
            rates=rates_table(*several, intervals=True),
            intervals=sampled_from(evaluation),
            differences=differences_table(*several),
            breakdowns=_breakdowns(chosen),
            chosen=[(name, style) for name, style, _ in chosen],
            curve_charts=_curve_charts(evaluation.classes, chosen),
            class_scores=_class_table(evaluation.classes, chosen),
            gallery=gallery,
            sure=SURE,
            mistakes=_pictures(gallery, evaluation.classes) if gallery else [],
            conditions=conditions_table(*several, intervals=True),
            costs=cost_table(*several),
        )
    )


def environment() -> "Environment":
    """Of the template: whatever isn't the template's own text is escaped, and characters that XML forbids are replaced."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return _UNPRINTABLE.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["number"] = number
    made.globals.update(swatch=lambda style: Markup(charts.swatch(style)), colour=css_colour)
    return made


def detailed(*evaluations: Evaluation) -> list[tuple[str, Mapping[str, Any], Result]]:
    """(name, style, result) of what is looked at closely: every series at its highest rate, and before them the training rate."""
    chosen: list[tuple[str, Mapping[str, Any], Result]] = []
    lines = lines_of(*evaluations)
    (name, first), *_ = lines
    if first.trained is not None and first.trained is not first.fastest:
        chosen.append((f"{name}, {first.common.rate_hz:g} Hz", REFERENCE, first.trained))
    for place, (name, series) in enumerate(lines):
        chosen.append((f"{name}, {series.fastest.condition.rate_hz:g} Hz", style_of(place), series.fastest))
    return chosen


def _tiles(series: Series) -> list[tuple[str, str, str]]:
    """(value, name, note): what one wants to know first, of the first series."""
    fastest, trained = series.fastest, series.trained
    rate = f"{fastest.condition.rate_hz:g} Hz"
    tiles = []
    if trained is not None and trained is not fastest:
        tiles.append((number(trained.scores.mAP), f"mAP at {series.common.rate_hz:g} Hz", f"{_between(trained, 'mAP')}the training rate"))
    kept = series.name if math.isnan(series.retention) else f"{number(series.retention)} % kept; {series.name}"
    tiles.append((number(fastest.scores.mAP), f"mAP at {rate}", f"{_between(fastest, 'mAP')}{kept}"))
    if fastest.streaming is not None:
        tiles.append((number(fastest.streaming.mAP), f"streaming AP at {rate}", f"a step takes {significant(fastest.cost.step_ms)} ms"))
    if not math.isnan(fastest.scores.recall_still):
        hidden = f"{_between(fastest, 'recall_still')}objects without events for over 0.25 s"
        tiles.append((number(fastest.scores.recall_still, unit=" %"), f"hidden recall at {rate}", hidden))
    if not math.isnan(fastest.ghosts.share):
        lasting = f"of {fastest.ghosts.ended:,} objects that left; 95 % of the boxes are gone after {number(fastest.ghosts.p95_s, 2)} s"
        tiles.append((number(fastest.ghosts.share, unit=" %"), f"ghosts at {rate}", lasting))
    speed = significant(fastest.cost.times_real_time)
    speed = speed if speed == NOTHING else f"{speed} ×"
    return [*tiles, (speed, f"real time at {rate}", f"{significant(fastest.cost.frames_per_s)} frames/s")]


def _between(result: Result, score: str) -> str:
    low, high = result.interval(score)
    return "" if math.isnan(low) else f"{number(low)} to {number(high)}; "


def _rate_charts(named: Sequence[tuple[str, Series]]) -> list[tuple[str, Any]]:
    """(title, SVG)."""
    from markupsafe import Markup

    rates = [result.condition.rate_hz for _, series in named for result in series.results]
    drawn = [(title, rate_lines(named, score)) for title, score in (("mAP", "mAP"), ("Hidden recall", "recall_still"))]
    return [(title, Markup(charts.rates_chart(lines, rates))) for title, lines in drawn if has_points(lines)]


def _curve_charts(classes: Sequence[str], chosen: Sequence[tuple[str, Mapping[str, Any], Result]]) -> list[tuple[str, Any]]:
    """(class, SVG)."""
    from markupsafe import Markup

    drawn = [
        (kind, [Line(name, _percent(result.curves[kind]), style) for name, style, result in chosen if kind in result.curves])
        for kind in classes
    ]
    return [(kind, Markup(charts.curves_chart(lines))) for kind, lines in drawn if has_points(lines)]


def _percent(curve: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Precision at evenly spaced recalls as points in percent; below zero (COCO's way) or NaN means that there was no label."""
    last = max(len(curve) - 1, 1)
    return tuple((100 * place / last, 100 * value if value >= 0 else math.nan) for place, value in enumerate(curve))


@dataclass(frozen=True)
class _Breakdown:
    """Scores by a property of the labels: (range, label count, (name, style, part) of each result) per part."""

    title: str
    intro: str
    rows: list[tuple[str, int, list[tuple[str, Mapping[str, Any], Part]]]]
    legend: list[tuple[str, Mapping[str, Any]]]


def _breakdowns(chosen: Sequence[tuple[str, Mapping[str, Any], Result]]) -> list[_Breakdown]:
    told = (
        ("by_still_s", "s", "Hidden objects", "By the time since the object last made events of its own."),
        ("by_speed_px_s", "px/s", "Speed", "By the speed of the object in the picture."),
    )
    found = []
    for field, unit, title, intro in told:
        groups = [(name, style, getattr(result, field)) for name, style, result in chosen if getattr(result, field)]
        rows = []
        for low, high in sorted({(part.low, part.high) for _, _, parts in groups for part in parts}):
            own = [(name, style, part) for name, style, parts in groups for part in parts if (part.low, part.high) == (low, high)]
            rows.append((_span(low, high, unit), max(part.labels for _, _, part in own), own))
        if rows:
            found.append(_Breakdown(title, intro, rows, [(name, style) for name, style, _ in groups]))
    return found


def _span(low: float, high: float, unit: str) -> str:
    if math.isinf(high):
        return f"over {low:g} {unit}"
    return f"up to {high:g} {unit}" if low <= 0 else f"{low:g} to {high:g} {unit}"


def _class_table(classes: Sequence[str], chosen: Sequence[tuple[str, Mapping[str, Any], Result]]) -> TextTable:
    rows = []
    for name, _, result in chosen:
        sizes = (result.scores.ap_small, result.scores.ap_medium, result.scores.ap_large)
        rows.append((name, *map(number, (*(result.scores.classes.get(kind) for kind in classes), *sizes))))
    return TextTable(("mAP", *classes, "small", "medium", "large"), tuple(rows))


def _pictures(gallery: Gallery, classes: Sequence[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    groups = (("Surest detections of nothing", gallery.false), ("Largest objects that nothing found", gallery.missed))
    return [(title, [_picture(mistake, pixels, classes) for mistake, pixels in drawn]) for title, drawn in groups if drawn]


def _picture(mistake: Mistake, pixels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Boxes are drawn by the page: sharp lines at any size. The mistake is drawn over all others."""
    rows = [("truth", box, (mistake.kind, mistake.index) == ("missed", row)) for row, box in enumerate(mistake.labels.boxes)]
    rows += [("guess", box, (mistake.kind, mistake.index) == ("false", row)) for row, box in enumerate(mistake.detections.boxes)]
    boxes = []
    for kind, box, wrong in sorted(rows, key=lambda one: one[2]):
        left, top, right, bottom = (round(float(value), 1) for value in box)
        width, height = max(right - left, 0.0), max(bottom - top, 0.0)
        boxes.append({"x": f"{left:g}", "y": f"{top:g}", "width": f"{width:g}", "height": f"{height:g}", "kind": kind, "wrong": wrong})
    return {
        "png": _png(pixels),
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "boxes": boxes,
        "what": classes[mistake.class_index],
        "told": _told(mistake),
        "where": f"{mistake.recording}, {mistake.instant_us / 1e6:.3f} s",
    }


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


def _png(pixels: np.ndarray) -> str:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
