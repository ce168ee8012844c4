"""RESULTS -> Markdown and a plot, ours beside the paper's; a cell that wasn't run says so."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import Job
from experiments.table import Entry, Experiment, Ours, Sheet
from experiments.world import World
from saccade.evaluation.interval import UNKNOWN, Interval, interval_of, unpacked
from saccade.evaluation.show.charts import Line, draw_over_rates
from saccade.evaluation.show.table import TextTable, to_markdown, with_interval
from saccade.files import replacing

NOT_RUN = "not run"
Results = Mapping[str, dict[str, Any] | None]  # by cell, None = not run


def number(entry: Entry, results: Results) -> float | None:
    """NaN = the cell wasn't run; None = there is no such number."""
    if not isinstance(entry, Ours):
        return float(entry) if isinstance(entry, float | int) else None
    found, over = results[entry.cell], results[entry.over or entry.cell]
    if found is None or over is None:
        return float("nan")
    if entry.what == "parameters":
        return found["parameters"] / 1e6
    if entry.what == "step_ms":
        return found["step_ms"]
    kept = entry.what if entry.what in ("recall_still", "steps_per_s") else "mAP"
    values = [found["conditions"][condition.name][kept] for condition in entry.conditions]
    if entry.over:
        values += [over["conditions"][condition.name][kept] for condition in entry.conditions]
    if None in values:
        return None
    return float(values[0] - np.mean(values[1:])) if entry.what in ("drop", "gain") else values[0]


def interval(entry: Entry, results: Results) -> Interval:
    """95 %, by bootstrap over recordings, paired where two scores are compared. Not known of the paper's, nor of cells scored earlier."""
    if not isinstance(entry, Ours) or entry.what not in ("mAP", "recall_still", "drop", "gain"):
        return UNKNOWN
    cells = [results[name] for name in dict.fromkeys((entry.cell, entry.over or entry.cell))]
    if None in cells or len({tuple(found["scoring"].get("names", ())) for found in cells if found}) > 1:
        return UNKNOWN
    kept = "recall_still" if entry.what == "recall_still" else "mAP"
    conditions = [found["conditions"][condition.name] for found in cells if found for condition in entry.conditions]
    drawn = [unpacked(condition.get("draws", {}).get(kept, "")) for condition in conditions]
    if len({len(one) for one in drawn}) > 1:
        return UNKNOWN
    return interval_of(drawn[0] if len(drawn) == 1 else drawn[0] - np.mean(drawn[1:], axis=0))


def text(entry: Entry, results: Results) -> str:
    if isinstance(entry, str):
        return entry
    value = number(entry, results)
    if value is None:
        return "-"
    if value != value:
        return NOT_RUN
    if isinstance(entry, Ours):
        digits = 2 if entry.what in ("parameters", "drop", "gain") else 1
        return with_interval(value, interval(entry, results), digits)
    return f"{value:g}"


def markdown(experiment: Experiment, world: World, jobs: Sequence[Job], command: str, failures: Mapping[str, str] | None = None) -> str:
    results = {job.cell.name: job.result for job in jobs}
    done = sum(result is not None for result in results.values())
    lines = [f"# {experiment.title}", "", experiment.about, ""]
    lines += [f"Data set: {world.name}. {done} of {len(jobs)} cells were run. Repeat with `{command}`.", ""]
    scored = sorted({result["scoring"]["recordings"] for result in results.values() if result is not None})
    if scored:
        number_of = " to ".join(f"{count:,}" for count in dict.fromkeys((scored[0], scored[-1])))
        lines += [f"Scores are of {number_of} recordings; in brackets 95 % intervals by bootstrap over them, where they are known.", ""]
    for sheet in experiment.sheets:
        lines += [f"## {sheet.title}", "", to_markdown(_table(sheet, results)), ""]
    lines += ["## What was run", "", to_markdown(_runs(jobs, failures or {})), ""]
    recipe = {name: value for name, value in world.recipe.binding().items() if name not in ("model", "h2_weight")}
    lines += ["The recipe of every training:", "", "```json", json.dumps(recipe, sort_keys=True), "```", ""]
    return "\n".join(lines)


def _table(sheet: Sheet, results: Results) -> TextTable:
    rows = tuple((*row.labels, *(text(entry, results) for entry in row.entries)) for row in sheet.rows)
    return TextTable((*sheet.labels, *sheet.columns), rows, words=len(sheet.labels))


def _runs(jobs: Sequence[Job], failures: Mapping[str, str]) -> TextTable:
    header = ("cell", "status", "M parameters", "steps", "clips x frames", "seed", "training, s", "scored on", "scoring, s")
    rows = []
    for job in jobs:
        found = job.result
        if found is None:
            status = f"failed: {failures[job.cell.name]}" if job.cell.name in failures else job.status
            rows.append((job.cell.name, status, *[""] * (len(header) - 2)))
            continue
        training, scoring = found["training"], found["scoring"]
        scored = f"{scoring['dataset']} {scoring['split']}, {scoring['recordings']} recordings, protocol {scoring['protocol']}"
        values = (
            job.cell.name,
            "done",
            f"{found['parameters'] / 1e6:.2f}",
            f"{training['steps']:,}",
            f"{training['batch']} x {training['length']}",
            f"{training['seed']}",
            "trained before" if training["seconds"] is None else f"{training['seconds']:.0f}",
            scored,
            f"{scoring['seconds']:.0f}",
        )
        rows.append(values)
    return TextTable(header, tuple(rows), words=2)


def plot(experiment: Experiment, world: World, jobs: Sequence[Job], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = {job.cell.name: job.result for job in jobs}
    sheets = experiment.sheets
    across = min(len(sheets), 2)
    rows = _rows(sheets, across)
    heights = [max(_height(sheet) for sheet in row) for row in rows]
    figure = Figure(figsize=(9 * across, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), across, squeeze=False, height_ratios=heights)
    highest = max(10.0, *(float(np.nanmax(_drawn(sheet, results), initial=0.0)) for sheet in sheets)) * 1.05  # one scale for all panels
    for row, beside in zip(rows, panels, strict=True):
        for sheet, axes in zip(row, beside, strict=False):
            (_lines if sheet.lines else _bars)(axes, sheet, results, highest)
            axes.set_title(sheet.title)
            axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
        for axes in beside[len(row) :]:
            axes.axis("off")
    figure.suptitle(f"{experiment.title} ({world.name}; dashed or pale: the paper's)")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")


def _rows(sheets: Sequence[Sheet], across: int) -> list[list[Sheet]]:
    """As they come; lines and bars, which need other heights, never in one row."""
    rows: list[list[Sheet]] = []
    for sheet in sheets:
        if rows and len(rows[-1]) < across and rows[-1][0].lines == sheet.lines:
            rows[-1].append(sheet)
        else:
            rows.append([sheet])
    return rows


def _height(sheet: Sheet) -> float:
    return 4.5 if sheet.lines else 1.5 + min(0.16 * len(sheet.rows) * len(sheet.plot), 10.0)


def _drawn(sheet: Sheet, results: Results) -> np.ndarray:
    """(rows, columns to draw), NaN where there is nothing."""
    chosen = [sheet.columns.index(name) for name in sheet.plot]
    found = [[number(row.entries[column], results) for column in chosen] for row in sheet.rows]
    return np.array([[np.nan if value is None else value for value in row] for row in found])


def _lines(axes: Any, sheet: Sheet, results: Results, highest: float) -> None:
    """A colour for each model and strategy, ours and the paper's alike: the last label is the source."""
    rates_hz = [float(name.split()[0]) for name in sheet.plot]
    colours = {name: f"C{place}" for place, name in enumerate(dict.fromkeys(row.labels[:-1] for row in sheet.rows))}
    lines = []
    for row, values in zip(sheet.rows, _drawn(sheet, results), strict=True):
        ours = any(isinstance(entry, Ours) for entry in row.entries)
        style: dict[str, Any] = {"marker": "o"} if ours else {"marker": ".", "linestyle": "--", "alpha": 0.6}
        label = ", ".join(row.labels) if np.isfinite(values).any() else f"{', '.join(row.labels)}: {NOT_RUN}"
        lines.append(Line(label, tuple(zip(rates_hz, values.tolist(), strict=True)), {**style, "color": colours[row.labels[:-1]]}))
    draw_over_rates(axes, lines, rates_hz)
    axes.set(ylabel="mAP", ylim=(0, highest))


def _bars(axes: Any, sheet: Sheet, results: Results, highest: float) -> None:
    values = _drawn(sheet, results)
    thickness = 0.8 / len(sheet.plot)
    meant = [name.removesuffix(", ours").removesuffix(", paper") for name in sheet.plot]  # equal for ours and the paper's
    colours = {name: f"C{place}" for place, name in enumerate(dict.fromkeys(meant))}
    for place, name in enumerate(sheet.plot):
        heights = np.arange(len(sheet.rows)) + (place - (len(sheet.plot) - 1) / 2) * thickness
        style: dict[str, Any] = {"color": colours[meant[place]], "alpha": 0.4 if name.endswith("paper") else 1.0}
        axes.barh(heights, np.nan_to_num(values[:, place]), thickness, label=name, **style)
        for height, row in zip(heights, sheet.rows, strict=True):
            if text(row.entries[sheet.columns.index(name)], results) == NOT_RUN:
                axes.text(0.3, height, NOT_RUN, va="center", fontsize="xx-small")
    axes.set_yticks(np.arange(len(sheet.rows)), [" ".join(label or "·" for label in row.labels) for row in sheet.rows])
    axes.invert_yaxis()
    axes.set(xlabel="mAP", xlim=(0, highest))
    axes.grid(axis="x", alpha=0.3)


def write(
    experiment: Experiment, world: World, jobs: Sequence[Job], name: Path, command: str, failures: Mapping[str, str] | None = None
) -> None:
    """NAME.md and NAME.png."""
    name.parent.mkdir(parents=True, exist_ok=True)
    with replacing(name.with_name(name.name + ".md")) as temporary:
        temporary.write_text(markdown(experiment, world, jobs, command, failures))
    plot(experiment, world, jobs, name.with_name(name.name + ".png"))
