"""SCORES -> CHARTS by matplotlib: lines over the rate for rates.png, for the report (as SVG inside the page) and for the experiments."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from saccade.evaluation.interval import Interval
from saccade.evaluation.result import Evaluation, Series
from saccade.evaluation.show.table import described, lines_of
from saccade.files import replacing
from saccade.types import InputError

# For light paper, told apart also by the colour blind; the report's style sheet has brighter ones of the same names for dark pages.
COLOURS = {"#7b8089": "s0", "#0067a5": "s1", "#c2470c": "s2", "#00795c": "s3", "#a3427f": "s4", "#866700": "s5", "#4c4fb5": "s6"}
SOFT, RULE = "#5c626c", "#e3e4e0"  # of words and axes, of grid lines
_GREY, *_INKS = COLOURS
_VARIABLES = {**COLOURS, SOFT: "soft", RULE: "rule"}
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))  # dashes and markers tell lines apart in black and white
_MARKERS = "os^DvPX"
REFERENCE = MappingProxyType(
    {"color": _GREY, "linestyle": (0, (0.5, 2)), "marker": ".", "linewidth": 2}
)  # what the others are compared with
SUFFIXES = (".png", ".svg")
LARGE, SMALL = (460, 290), (330, 225)  # pixels of charts of the report


@dataclass(frozen=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    style: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of matplotlib's `plot`
    band: tuple[Interval, ...] = ()  # 95 % interval of each point, drawn pale


def style_of(place: int) -> dict[str, Any]:
    """Of the series number PLACE, the same in every chart."""
    dash, marker = _DASHES[place % len(_DASHES)], _MARKERS[place % len(_MARKERS)]
    return {"color": _INKS[place % len(_INKS)], "linestyle": dash, "marker": marker, "linewidth": 2}


def css_colour(style: Mapping[str, Any]) -> str:
    """The colour of a style as the variable of the report's style sheet."""
    return f"var(--{_VARIABLES[style['color']]})"


def rate_lines(named: Sequence[tuple[str, Series]], score: str) -> list[Line]:
    """A line per series: a field of its metrics over the rate."""
    return [
        Line(
            name,
            tuple((result.condition.rate_hz, getattr(result.scores, score)) for result in series.results),
            style_of(place),
            tuple(result.interval(score) for result in series.results if score in result.draws),
        )
        for place, (name, series) in enumerate(named)
    ]


def has_points(lines: Sequence[Line]) -> bool:
    return any(math.isfinite(y) for line in lines for _, y in line.points)


def draw_lines(axes: Any, lines: Sequence[Line], *, markers: bool = True) -> None:
    """The points that are numbers; a lone one has its marker in any case."""
    for line in lines:
        x, y = [[point[axis] for point in line.points if all(map(math.isfinite, point))] for axis in (0, 1)]
        style = dict(line.style) if markers or len(x) == 1 else {**line.style, "marker": ""}
        axes.plot(x, y, label=line.name, clip_on=False, **style)
        if len(line.band) == len(line.points):
            lows, highs = zip(*line.band, strict=True)
            axes.fill_between([x for x, _ in line.points], lows, highs, color=line.style["color"], alpha=0.1, linewidth=0, clip_on=False)
    axes.grid(axis="y", color=RULE, clip_on=False)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_over_rates(axes: Any, lines: Sequence[Line], rates_hz: Sequence[float]) -> None:
    """Lines over a logarithmic rate; every rate has its number unless it would touch its neighbour's."""
    draw_lines(axes, lines)
    rates = sorted(set(rates_hz))
    low, high = (rates[0], rates[-1]) if len(rates) > 1 else (rates[0] / 2, rates[0] * 2)
    numbered: list[float] = []
    for rate in rates:
        if not numbered or math.log(rate / numbered[-1]) > 0.06 * math.log(high / low):
            numbered.append(rate)
    axes.set(xscale="log", xlabel="frames per second", xlim=(low / 1.08, high * 1.08))
    axes.set_xticks(numbered, [f"{rate:g}" for rate in numbered])
    axes.minorticks_off()


def rates_chart(lines: Sequence[Line], rates_hz: Sequence[float]) -> str:
    """SVG of scores in percent over the rate, from 0: a cut axis would make small differences look large."""
    figure, axes = _chart(*LARGE)
    draw_over_rates(axes, lines, rates_hz)
    heights = [y for line in lines for y in (*(y for _, y in line.points), *(high for _, high in line.band)) if math.isfinite(y)]
    largest = max(heights, default=0.0)
    step = next(step for step in (2, 5, 10, 20) if step == 20 or largest <= 5 * step)
    _percent_axis(axes.yaxis, min(100, max(step, step * math.ceil(largest / step))), step)
    return _svg(figure)


def curves_chart(lines: Sequence[Line]) -> str:
    """SVG of precision over recall, both in percent."""
    figure, axes = _chart(*SMALL)
    draw_lines(axes, lines, markers=False)
    axes.set_xlabel("recall, %")
    for axis in (axes.xaxis, axes.yaxis):
        _percent_axis(axis, 100, 20)
    return _svg(figure)


def swatch(style: Mapping[str, Any]) -> str:
    """SVG of a short piece of a line, for a legend in HTML."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(34 / 72, 14 / 72))
    place = figure.transFigure
    figure.add_artist(Line2D([0.02, 0.98], [0.5, 0.5], **{**style, "marker": ""}, transform=place))
    figure.add_artist(Line2D([0.5], [0.5], **style, transform=place))
    return _svg(figure)


def plot_rates(evaluation: Evaluation, path: Path, beside: Sequence[Evaluation] = ()) -> None:
    """Write mAP and the recall of hidden objects over the rate, with a caption that says weights, data set and protocol."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected {' or '.join(SUFFIXES)}")
    if not evaluation.results:
        raise InputError(f"{path}: an evaluation without results; nothing to plot")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    rates = [result.condition.rate_hz for one in (evaluation, *beside) for result in one.results]
    names = {"mAP": "mAP, %", "recall_still": "Recall of hidden objects, %"}
    for axes, (score, label) in zip(figure.subplots(1, 2), names.items(), strict=True):
        draw_over_rates(axes, rate_lines(lines_of(evaluation, *beside), score), rates)
        axes.set_title(label, loc="left", fontsize=11)
        axes.set_ylim(bottom=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    caption = figure.supxlabel(
        f"{described(evaluation, *beside)}; hidden: no events for over 0.25 s", fontsize=8, color="#555555", wrap=True
    )
    for words in (caption, *legend.get_texts()):
        words.set_parse_math(False)  # names are no formulas: a lone $ in a path must not be set as mathematics
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "saccade", "svg.fonttype": "none"}):
        kind = path.suffix.lstrip(".").lower()
        figure.savefig(temporary, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _chart(width: int, height: int) -> tuple[Any, Any]:
    """A figure of the report and its axes, without frame and ticks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    axes = figure.subplots()
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(length=0, colors=SOFT, labelsize=12, pad=6)
    axes.xaxis.label.set(color=SOFT, fontsize=12)
    return figure, axes


def _percent_axis(axis: Any, high: int, step: int) -> None:
    axis.axes.set(**{f"{axis.axis_name}lim": (0, high), f"{axis.axis_name}ticks": range(0, high + 1, step)})


def _svg(figure: Any) -> str:
    """SVG to stand inside a page: the same for the same figure, colours by the page's variables, and no id that another one may have."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "saccade", "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = written.getvalue()
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    body = text[text.index("</defs>") + len("</defs>") :]  # after the style sheet, which would be the whole page's
    body = re.sub(r'<g id="[^"]*"', "<g", body).replace("xlink:href", "href")
    body = re.sub(r"font-family: [^;]*; ", "", body)
    for colour, name in _VARIABLES.items():
        body = body.replace(colour, f"var(--{name})")
    return f'<svg {view[0]} aria-hidden="true">{body}'
