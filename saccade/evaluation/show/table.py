"""EVALUATION -> TABLES: the rates side by side, and a row per condition; for a terminal or as Markdown."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.evaluation.result import Evaluation, Result, Series

NOTHING = "–"  # where a number would be NaN


@dataclass(frozen=True)
class TextTable:
    """Cells as text; the first so many columns are words, the others numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """A value as a cell: nothing is a dash, never "nan"."""
    return NOTHING if value is None or math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}{unit}"  # + 0.0: no "-0.0"


def significant(value: float | None) -> str:
    """Three significant digits, for quantities that span decades."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def lines_of(*evaluations: Evaluation) -> list[tuple[str, Series]]:
    """All series with distinct names: those of several weights begin with the model's name."""
    several = len(evaluations) > 1
    return [(f"{one.model}: {series.name}" if several else series.name, series) for one in evaluations for series in one.series]


def rates_table(evaluation: Evaluation, *beside: Evaluation) -> TextTable:
    """A row per series: mAP at every rate, what is lost above the training rate, and what the memory holds of hidden objects."""
    rates = sorted({result.condition.rate_hz for one in (evaluation, *beside) for result in one.results})
    ends = list(dict.fromkeys(rate for rate in (evaluation.training_rate_hz, rates[-1] if rates else math.nan) if rate in rates))
    rows = []
    for name, series in lines_of(evaluation, *beside):
        found = [series.at(rate) for rate in rates]
        hidden = [series.at(rate) for rate in ends]
        rows.append(
            (
                name,
                *(number(result.scores.mAP if result else None) for result in found),
                number(series.mean_drop),
                number(series.retention, unit=" %"),
                *(number(result.scores.recall_still if result else None) for result in hidden),
            )
        )
    header = ("window, stepping", *(f"{rate:g} Hz" for rate in rates), "mean drop", "retention", *(f"hidden, {rate:g} Hz" for rate in ends))
    return TextTable(header, tuple(rows))


def conditions_table(*evaluations: Evaluation) -> TextTable:
    """A row per condition with all of its scores and its cost."""
    header = (
        "window, stepping", "rate", "mAP", "AP50", "AP75", "AR", "hidden", "streaming AP", "age, ms", "steps/s", "frames/s", "× real time",
    )  # fmt: skip
    rows = tuple(
        (name, f"{result.condition.rate_hz:g} Hz", *_scores(result)) for name, series in lines_of(*evaluations) for result in series.results
    )
    return TextTable(header, rows)


def cost_table(*evaluations: Evaluation) -> TextTable:
    """Frames, time and speed of each condition."""
    header = ("window, stepping", "rate", "recorded, s", "frames", "computing, s", "frames/s", "× real time", "one step, ms")
    rows = []
    for name, series in lines_of(*evaluations):
        for result in series.results:
            cost = result.cost
            amounts = (number(cost.recorded_s), f"{cost.frames:,}", number(cost.seconds))
            speeds = (significant(cost.frames_per_s), significant(cost.times_real_time), significant(cost.step_ms))
            rows.append((name, f"{result.condition.rate_hz:g} Hz", *amounts, *speeds))
    return TextTable(header, tuple(rows))


def described(evaluation: Evaluation, *beside: Evaluation) -> str:
    """Weights, data set and protocol in one line, for captions."""
    recordings = f"{evaluation.recordings:,} recording" + ("" if evaluation.recordings == 1 else "s")
    where = f"{evaluation.dataset}, {evaluation.split} ({recordings})"
    weights = ", ".join(f"{one.weights} ({one.model})" for one in (evaluation, *beside))
    return f"{weights} on {where}, protocol {evaluation.protocol}"


def markdown(*evaluations: Evaluation) -> str:
    """Both tables below a line that says weights, data set and protocol."""
    hidden = "hidden: recall in percent of objects that have made no events for over 0.25 s, which only a memory can find"
    return (
        "\n\n".join(
            (
                _escape(described(*evaluations)),
                f"mAP in percent by frames per second; {hidden}.",
                to_markdown(rates_table(*evaluations)),
                to_markdown(conditions_table(*evaluations)),
            )
        )
        + "\n"
    )


def to_markdown(table: TextTable) -> str:
    lines = [table.header, tuple("---" if place < table.words else "--:" for place in range(len(table.header)))]
    lines += [tuple(_escape(cell) for cell in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def to_text(table: TextTable) -> str:
    """Columns aligned for a terminal."""
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if place < table.words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    return "\n".join([line(table.header), "  ".join("-" * width for width in widths), *(line(row) for row in table.rows)])


def _scores(result: Result) -> tuple[str, ...]:
    scores = result.scores
    return (
        number(scores.mAP),
        number(scores.ap50),
        number(scores.ap75),
        number(scores.ar100),
        number(scores.recall_still),
        number(result.streaming.mAP if result.streaming else None),
        number(result.age_ms),
        number(result.cost.steps_per_s),
        significant(result.cost.frames_per_s),
        significant(result.cost.times_real_time),
    )


def _escape(text: str) -> str:
    """Escape names of files and classes for Markdown, tables included."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
