"""NUMBERS -> CHARTS of the report: lines as SVG, bars as HTML. Colours come from the page's style, so that they suit light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.evaluation.result import Part
from saccade.evaluation.show.markup import Markup, element, joined
from saccade.evaluation.show.table import number

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 14, 46
STYLES = 6  # in the style sheet, numbered from 1: a colour, a dash and a marker each
REFERENCE = 0  # ... and a grey one, of what the others are compared with


@dataclass(frozen=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    style: int = 1  # as `style_of` gives it


@dataclass(frozen=True)
class Axis:
    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        low, high, value = (math.log(item) if self.logarithmic else item for item in (self.low, self.high, value))
        return (value - low) / (high - low)


def style_of(place: int) -> int:
    """Of the series number PLACE, the same in every chart."""
    return place % STYLES + 1


def percent_axis(label: str, values: Sequence[float]) -> Axis:
    """From 0 to the next round number: a cut axis would make small differences look large."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    step = next(step for step in (2, 5, 10, 20) if step == 20 or largest <= 5 * step)
    high = min(100, max(step, step * math.ceil(largest / step)))
    return Axis(label, 0, high, tuple(range(0, high + 1, step)))


def rate_axis(rates_hz: Sequence[float]) -> Axis:
    """Logarithmic; every rate has its tick unless it would touch its neighbour's."""
    rates = sorted(set(rates_hz))
    low, high = (rates[0], rates[-1]) if len(rates) > 1 else (rates[0] / 2, rates[0] * 2)
    axis = Axis("frames per second", low / 1.08, high * 1.08, (), True)
    ticks: list[float] = []
    for rate in rates:
        if not ticks or axis.place(rate) - axis.place(ticks[-1]) > 0.06:
            ticks.append(rate)
    return Axis(axis.label, axis.low, axis.high, tuple(ticks), True)


def line_chart(title: str, lines: Sequence[Line], x: Axis, y: Axis, *, markers: bool = True) -> Markup:
    """A figure with a title; hovering a marker tells its value."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return round(LEFT + width * x.place(point[0]), 1), round(TOP + height * (1 - y.place(point[1])), 1)

    parts = []
    for tick in y.ticks:
        _, level = at((x.low, tick))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=level, y2=level, class_="grid" if tick != y.low else "axis"))
        parts.append(element("text", f"{tick:g}", x=LEFT - 8, y=level + 4, text_anchor="end"))
    for tick in x.ticks:
        column, level = at((tick, y.low))
        parts.append(element("line", x1=column, x2=column, y1=level, y2=level + 5, class_="axis"))
        parts.append(element("text", f"{tick:g}", x=column, y=level + 19, text_anchor="middle"))
    parts.append(element("text", x.label, x=LEFT + width / 2, y=HEIGHT - 6, text_anchor="middle", class_="label"))
    for line in lines:
        points = [point for point in line.points if all(map(math.isfinite, point))]
        drawn = [at(point) for point in points]
        if len(drawn) > 1:
            parts.append(element("polyline", points=" ".join(f"{a:g},{b:g}" for a, b in drawn), class_=f"line s{line.style}"))
        if markers or len(drawn) == 1:
            hints = [f"{line.name}: {point[1]:.1f} at {point[0]:g}" for point in points]
            parts += [_marker(line.style, *place, element("title", hint)) for place, hint in zip(drawn, hints, strict=True)]
    picture = element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{title}: {y.label} over {x.label}")
    return element("figure", element("figcaption", title, element("small", f" {y.label}")), picture, class_="chart")


def legend(lines: Sequence[tuple[str, int]]) -> Markup:
    """Names of (line, style), each beside its colour, dash and marker."""

    def swatch(style: int) -> Markup:
        stroke = element("line", x1=0, x2=34, y1=7, y2=7, class_=f"line s{style}")
        return element("svg", stroke, _marker(style, 17, 7), viewBox="0 0 34 14", width=34, height=14, aria_hidden="true")

    return element("ul", *(element("li", swatch(style), " ", name) for name, style in lines), class_="legend")


def bars(title: str, unit: str, score: str, groups: Sequence[tuple[str, int, tuple[Part, ...]]]) -> Markup:
    """For every part a row with its range and label count, and in it a bar of SCORE (ap or recall) per (name, style, parts)."""
    rows = []
    ranges = dict.fromkeys((part.low, part.high) for _, _, parts in groups for part in parts)
    for low, high in sorted(ranges):
        found = [(name, style, part) for name, style, parts in groups for part in parts if (part.low, part.high) == (low, high)]
        drawn = []
        for name, style, part in found:
            value = getattr(part, score)
            length = 0.0 if math.isnan(value) else min(max(value, 0.0), 100.0)
            fill = element("span", style=f"width:{length:.1f}%")
            track = element("span", fill, class_="track")
            drawn.append(element("div", track, element("b", number(value)), class_=f"bar s{style}", title=f"{name}: {number(value)}"))
        labels = max(part.labels for _, _, part in found)
        count = element("small", f"{labels:,} label" + ("" if labels == 1 else "s"))
        rows.append(element("tr", element("th", _span(low, high, unit), count, scope="row"), element("td", *drawn)))
    return element("table", element("caption", title), element("tbody", *rows), class_="bars")


def _span(low: float, high: float, unit: str) -> str:
    if math.isinf(high):
        return f"over {low:g} {unit}"
    return f"up to {high:g} {unit}" if low <= 0 else f"{low:g} to {high:g} {unit}"


def _marker(style: int, x: float, y: float, *children: str) -> Markup:
    """A shape per style, for those who can't tell the colours."""
    kind = f"marker s{style}"
    shape = style % 4
    if shape == 1:
        return element("circle", *children, cx=x, cy=y, r=4.5, class_=kind)
    if shape == 2:
        return element("rect", *children, x=x - 4, y=y - 4, width=8, height=8, class_=kind)
    corners = [(0, -5.5), (5, 4), (-5, 4)] if shape == 3 else [(0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)]
    path = joined("M", "L".join(f"{x + dx:g},{y + dy:g}" for dx, dy in corners), "Z")
    return element("path", *children, d=path, class_=kind)
