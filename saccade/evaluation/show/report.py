"""EVALUATION -> one HTML file that works offline: tables, charts, and the worst mistakes as pictures. No script, no other file."""

import math
from collections.abc import Sequence
from pathlib import Path

from saccade.evaluation.result import Evaluation, Result, Series
from saccade.evaluation.score.mistakes import SURE
from saccade.evaluation.show.charts import REFERENCE, Axis, Line, bars, legend, line_chart, percent_axis, rate_axis, style_of
from saccade.evaluation.show.gallery import Gallery, pictures
from saccade.evaluation.show.markup import Markup, element
from saccade.evaluation.show.table import NOTHING, Table, conditions_table, cost_table, lines_of, number, rates_table, significant
from saccade.files import replacing
from saccade.types import InputError

STYLE = Path(__file__).with_name("report.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # a browser refuses whatever isn't in the file

NOTES = {
    "mAP": "COCO's average precision, the mean over overlaps from 0.50 to 0.95 and over the classes, in percent. Every rate is scored at "
    "the same label times; the answer to a label is the newest frame that ended by then.",
    "mean drop": "mAP at the training rate minus the mean of the mAP at all higher rates, as the paper has it.",
    "retention": "mAP at the highest rate in percent of the mAP at the training rate.",
    "hidden": "Recall of objects that have made no events of their own for over 0.25 s: only a memory can find them.",
    "small, medium, large": "Boxes of an area below 32 x 32 pixels, up to 96 x 96, and beyond, as COCO divides them.",
    "AR": "Recall by the best hundred detections of each class and frame, the mean over the same overlaps and classes as mAP.",
    "streaming AP": "mAP when each label is compared with the newest detection that would have been ready by then, computing included.",
    "age": "Mean time from the end of the answering frame to the label.",
    "× real time": "Seconds of recording per second of computing, recordings in batches; one step, ms: a single frame alone.",
    "sliding, disjoint, shrunk": "Sliding windows keep their length and overlap at higher rates; disjoint ones are as long as the step; "
    "shrunk ones are short, too, but come once per training window, and the events between them are never seen.",
    "direct, interleaved": "Direct: a frame continues from the one before. Interleaved: from the one that ended a training window before.",
}  # fmt: skip


def write_report(path: Path, evaluation: Evaluation, gallery: Gallery | None = None, beside: Sequence[Evaluation] = ()) -> None:
    """Write the whole report, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(report(evaluation, gallery, beside), encoding="utf-8")


def report(evaluation: Evaluation, gallery: Gallery | None = None, beside: Sequence[Evaluation] = ()) -> str:
    """The page as text; other weights on the same data stand beside the first."""
    if not evaluation.results:
        raise InputError(f"{evaluation.weights}: an evaluation without results; give at least one rate")
    several = (evaluation, *beside)
    title = f"{' and '.join(one.model for one in several)} on {evaluation.dataset}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: evaluation"),
        element("style", Markup(STYLE.read_text(encoding="utf-8"))),
    )
    sections = (
        _header(title, *several),
        _rates(*several),
        _parts(several, "by_still_s", "s", "Hidden objects", "By the time since the object last made events of its own."),
        _parts(several, "by_speed_px_s", "px/s", "Speed", "By the speed of the object in the picture."),
        _classes(*several),
        _gallery(evaluation, gallery),
        _tabled("All scores", "", conditions_table(*several)),
        _tabled("Cost", "", cost_table(*several)),
        _notes(),
    )
    body = element("body", element("main", *sections))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def detailed(*evaluations: Evaluation) -> list[tuple[str, int, Result]]:
    """(name, style, result) of what is looked at closely: every series at its highest rate, and before them the training rate."""
    chosen = []
    lines = lines_of(*evaluations)
    (name, first), *_ = lines
    if first.trained is not None and first.trained is not first.fastest:
        chosen.append((f"{name}, {first.common.rate_hz:g} Hz", REFERENCE, first.trained))
    for place, (name, series) in enumerate(lines):
        chosen.append((f"{name}, {series.fastest.condition.rate_hz:g} Hz", style_of(place), series.fastest))
    return chosen


def _header(title: str, evaluation: Evaluation, *beside: Evaluation) -> Markup:
    scores = evaluation.results[0].scores
    facts = {
        "Weights": element("code", ", ".join(one.weights for one in (evaluation, *beside))),
        "Data set": f"{evaluation.dataset}, {evaluation.split}, {evaluation.recordings:,} recording{'s' * (evaluation.recordings != 1)}",
        "Labels": f"{scores.labels:,} at {scores.frames:,} instants" + (f", {scores.still:,} of them hidden" if scores.still else ""),
        "Classes": ", ".join(evaluation.classes),
        "Protocol": evaluation.protocol,
    }
    listed = (item for name, value in facts.items() for item in (element("dt", name), element("dd", value)))
    return element("header", element("h1", title), element("dl", *listed, class_="facts"), _tiles(evaluation.series[0]))


def _tiles(series: Series) -> Markup:
    """What one wants to know first, of the first series."""
    fastest, trained = series.fastest, series.trained
    rate = f"{fastest.condition.rate_hz:g} Hz"
    tiles = []
    if trained is not None and trained is not fastest:
        tiles.append((number(trained.scores.mAP), f"mAP at {series.common.rate_hz:g} Hz", "the training rate"))
    kept = series.name if math.isnan(series.retention) else f"{number(series.retention)} % kept; {series.name}"
    tiles.append((number(fastest.scores.mAP), f"mAP at {rate}", kept))
    if fastest.streaming is not None:
        tiles.append((number(fastest.streaming.mAP), f"streaming AP at {rate}", f"a step takes {significant(fastest.cost.step_ms)} ms"))
    if not math.isnan(fastest.scores.recall_still):
        tiles.append((number(fastest.scores.recall_still, unit=" %"), f"hidden recall at {rate}", "objects without events for over 0.25 s"))
    speed = significant(fastest.cost.times_real_time)
    tiles.append(
        (speed if speed == NOTHING else f"{speed} ×", f"real time at {rate}", f"{significant(fastest.cost.frames_per_s)} frames/s")
    )
    drawn = (
        element("div", element("b", value), element("span", name), element("small", note), class_="tile") for value, name, note in tiles
    )
    return element("div", *drawn, class_="tiles")


def _rates(*evaluations: Evaluation) -> Markup:
    named = lines_of(*evaluations)

    def lines(score: str) -> list[Line]:
        return [
            Line(name, tuple((result.condition.rate_hz, getattr(result.scores, score)) for result in series.results), style_of(place))
            for place, (name, series) in enumerate(named)
        ]

    x = rate_axis([result.condition.rate_hz for one in evaluations for result in one.results])
    charts = []
    for title, score in (("mAP", "mAP"), ("Hidden recall", "recall_still")):
        values = lines(score)
        if any(math.isfinite(y) for line in values for _, y in line.points):
            charts.append(line_chart(title, values, x, percent_axis("%", [y for line in values for _, y in line.points])))
    return _section(
        "Scores by rate",
        "The same weights at every rate, scored at the same label times.",
        element("div", *charts, class_="pair"),
        legend([(name, style_of(place)) for place, (name, _) in enumerate(named)]),
        _table(rates_table(*evaluations)),
    )


def _parts(evaluations: Sequence[Evaluation], name: str, unit: str, title: str, intro: str) -> Markup:
    groups = [(label, style, getattr(result, name)) for label, style, result in detailed(*evaluations) if getattr(result, name)]
    if not groups:
        return Markup("")
    drawn = [bars("Recall, %", unit, "recall", groups), bars("AP, %", unit, "ap", groups)]
    return _section(title, intro, element("div", *drawn, class_="pair"), legend([(label, style) for label, style, _ in groups]))


def _classes(evaluation: Evaluation, *beside: Evaluation) -> Markup:
    chosen = detailed(evaluation, *beside)
    header = ("mAP", *evaluation.classes, "small", "medium", "large")
    rows = []
    for name, _, result in chosen:
        sizes = (result.scores.ap_small, result.scores.ap_medium, result.scores.ap_large)
        rows.append((name, *map(number, (*(result.scores.classes.get(kind) for kind in evaluation.classes), *sizes))))
    recall = Axis("recall, %", 0, 100, (0, 20, 40, 60, 80, 100))
    precision = Axis("precision, %", 0, 100, (0, 20, 40, 60, 80, 100))
    charts = []
    for kind in evaluation.classes:
        lines = [Line(name, _percent(result.curves[kind]), style) for name, style, result in chosen if kind in result.curves]
        if any(math.isfinite(y) for line in lines for _, y in line.points):
            charts.append(line_chart(kind, lines, recall, precision, markers=False))
    drawn = (element("div", *charts, class_="pair small"), legend([(name, style) for name, style, _ in chosen])) if charts else ()
    return _section(
        "Classes", "Precision over recall, at an overlap of one half." if charts else "", *drawn, _table(Table(header, tuple(rows)))
    )


def _percent(curve: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Precision at evenly spaced recalls as points in percent; below zero (COCO's way) or NaN means that there was no label."""
    last = max(len(curve) - 1, 1)
    return tuple((100 * place / last, 100 * value if value >= 0 else math.nan) for place, value in enumerate(curve))


def _gallery(evaluation: Evaluation, gallery: Gallery | None) -> Markup:
    if gallery is None or not (gallery.false or gallery.missed):
        return Markup("")

    def key(kind: str, name: str) -> Markup:
        box = element("rect", x=2, y=2, width=22, height=12, class_=kind)
        return element("li", element("svg", box, viewBox="0 0 26 16", width=26, height=16, aria_hidden="true"), " ", name)

    at = f"{gallery.condition.window}, {gallery.condition.stepping}, {gallery.condition.rate_hz:g} Hz"
    keys = key("truth", "label"), key("guess", f"detection, score {SURE:g} or more"), key("guess wrong", "thick: the mistake")
    parts = [element("ul", *keys, class_="legend key")]
    for title, drawn in (("Surest detections of nothing", gallery.false), ("Largest objects that nothing found", gallery.missed)):
        if drawn:
            parts += [element("h3", title), pictures(drawn, evaluation.classes)]
    return _section("Worst mistakes", f"At {at}; one picture per object, or per second of a recording.", *parts)


def _tabled(title: str, intro: str, table: Table) -> Markup:
    return _section(title, intro, _table(table))


def _notes() -> Markup:
    listed = (item for name, value in NOTES.items() for item in (element("dt", name), element("dd", value)))
    return _section("How to read it", "", element("dl", *listed, class_="notes"))


def _section(title: str, intro: str, *children: str) -> Markup:
    return element("section", element("h2", title), element("p", intro) if intro else "", *children)


def _table(table: Table) -> Markup:
    """Numbers to the right; wide tables scroll within the page."""

    def kind(place: int) -> str | None:
        return "word" if place < table.words else None

    head = element("tr", *(element("th", cell, scope="col", class_=kind(place)) for place, cell in enumerate(table.header)))
    rows = (
        element("tr", *(element("th" if not place else "td", cell, class_=kind(place)) for place, cell in enumerate(row)))
        for row in table.rows
    )
    content = element("table", element("thead", head), element("tbody", *rows))
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label="table")
