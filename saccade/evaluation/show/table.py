"""EVALUATION -> TABLES: the rates side by side, and a row per condition; for a terminal or as Markdown."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.evaluation.interval import UNKNOWN, Interval
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


def with_interval(value: float | None, interval: Interval, digits: int = 1) -> str:
    """`37.2 [33.1, 41.5]`; the value alone where no interval is known."""
    if value is None or math.isnan(value) or math.isnan(interval.low):
        return number(value, digits)
    return f"{number(value, digits)} [{number(interval.low, digits)}, {number(interval.high, digits)}]"


def significant(value: float | None) -> str:
    """Three significant digits, for quantities that span decades."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def lines_of(*evaluations: Evaluation) -> list[tuple[str, Series]]:
    """All series with distinct names: those of several weights begin with the model's name."""
    several = len(evaluations) > 1
    return [(f"{one.model}: {series.name}" if several else series.name, series) for one in evaluations for series in one.series]


def rates_table(evaluation: Evaluation, *beside: Evaluation, intervals: bool = False) -> TextTable:
    """A row per series: mAP at every rate, what is lost above the training rate, and what the memory holds of hidden objects."""
    rates = sorted({result.condition.rate_hz for one in (evaluation, *beside) for result in one.results})
    ends = list(dict.fromkeys(rate for rate in (evaluation.training_rate_hz, rates[-1] if rates else math.nan) if rate in rates))
    rows = []
    for name, series in lines_of(evaluation, *beside):
        rows.append(
            (
                name,
                *(_score(series.at(rate), "mAP", intervals) for rate in rates),
                with_interval(series.mean_drop, series.mean_drop_interval if intervals else UNKNOWN),
                number(series.retention, unit=" %"),
                *(_score(series.at(rate), "recall_still", intervals) for rate in ends),
            )
        )
    header = ("window, stepping", *(f"{rate:g} Hz" for rate in rates), "mean drop", "retention", *(f"hidden, {rate:g} Hz" for rate in ends))
    return TextTable(header, tuple(rows))


def conditions_table(*evaluations: Evaluation, intervals: bool = False) -> TextTable:
    """A row per condition with all of its scores; columns that are empty for all of them are left out."""
    header = (
        "window, stepping", "rate", "mAP", "less training rate", "AP50", "AP75", "AR", "hidden", "ghosts, %", "median, s", "95 %, s",
        "empty, s/min", "streaming AP", "age, ms", "steps/s", "× real time",
    )  # fmt: skip
    rows = [
        (name, f"{result.condition.rate_hz:g} Hz", *_scores(result, series.trained, intervals))
        for name, series in lines_of(*evaluations)
        for result in series.results
    ]
    kept = [place for place in range(len(header)) if place < 3 or any(row[place] != NOTHING for row in rows)]
    return TextTable(tuple(header[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in rows))


def differences_table(evaluation: Evaluation, *beside: Evaluation) -> TextTable | None:
    """How much more mAP other weights have under the same condition, and how much more of hidden objects they find; None without any."""
    first = {result.condition: result for result in evaluation.results}
    pairs = [
        (f"{one.model}: {series.name}", result, first[result.condition])
        for one in beside
        if one.names == evaluation.names
        for series in one.series
        for result in series.results
        if result.condition in first
    ]
    rows = tuple(
        (name, f"{ours.condition.rate_hz:g} Hz", *(with_interval(*ours.gain(theirs, score)) for score in ("mAP", "ap50", "recall_still")))
        for name, ours, theirs in pairs
    )
    return TextTable((f"less {evaluation.model}", "rate", "mAP", "AP50", "hidden"), rows) if rows else None


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


def sampled_from(evaluation: Evaluation) -> str:
    """What the brackets are, for captions."""
    if not any(result.draws for result in evaluation.results):
        return "Without intervals: they need two recordings with labels at least"
    return f"In brackets: 95 % intervals by bootstrap over the {evaluation.recordings:,} recordings; those of differences are paired"


def markdown(*evaluations: Evaluation) -> str:
    """All tables below a line that says weights, data set and protocol."""
    hidden = "hidden: recall in percent of objects that have made no events for over 0.25 s, which only a memory can find"
    ghosts = (
        "ghosts: percent of the objects that left whose box stays, and for how long, median and 95th percentile of all that left; "
        "empty: seconds of boxes in a minute without objects"
    )
    differences = differences_table(*evaluations)
    parts = (
        _escape(described(*evaluations)),
        f"mAP in percent by frames per second; {hidden}; {ghosts}. {sampled_from(evaluations[0])}.",
        to_markdown(rates_table(*evaluations, intervals=True)),
        to_markdown(conditions_table(*evaluations, intervals=True)),
        *([] if differences is None else [to_markdown(differences)]),
    )
    return "\n\n".join(parts) + "\n"


def to_markdown(table: TextTable) -> str:
    lines = [table.header, tuple("---" if place < table.words else "--:" for place in range(len(table.header)))]
    lines += [tuple(_escape(cell, brackets=place < table.words) for place, cell in enumerate(row)) for row in table.rows]
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


def _score(result: Result | None, score: str, intervals: bool) -> str:
    if result is None:
        return NOTHING
    return with_interval(getattr(result.scores, score), result.interval(score) if intervals else UNKNOWN)


def _scores(result: Result, trained: Result | None, intervals: bool) -> tuple[str, ...]:
    """mAP has its interval everywhere."""
    scores, ghosts = result.scores, result.ghosts
    return (
        _score(result, "mAP", True),
        NOTHING if trained is None or result is trained else with_interval(*result.gain(trained)),
        _score(result, "ap50", intervals),
        number(scores.ap75),
        number(scores.ar100),
        _score(result, "recall_still", intervals),
        number(ghosts.share),
        number(ghosts.median_s, 2),
        number(ghosts.p95_s, 2),
        number(ghosts.empty_box_s),
        number(result.streaming.mAP if result.streaming else None),
        number(result.age_ms),
        number(result.cost.steps_per_s),
        significant(result.cost.times_real_time),
    )


def _escape(text: str, brackets: bool = True) -> str:
    """Escape names of files and classes for Markdown, tables included. Brackets of intervals may stay: they are no link."""
    return re.sub(r"([\\`*_{}<>|#\[\]])" if brackets else r"([\\`*_{}<>|#])", r"\\\1", " ".join(text.split()))
