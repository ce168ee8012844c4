"""RESULTS -> Markdown and a plot, ours beside the paper's; a cell that wasn't run says so."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import Job
from experiments.table import Entry, Experiment, Ours, Sheet
from experiments.world import World
from saccade.events.files import replacing

NOT_RUN = "not run"
Results = Mapping[str, dict[str, Any] | None]  # by cell, None = not run


def number(entry: Entry, results: Results) -> float | None:
    """NaN = the cell wasn't run; None = there is no such number."""
    if not isinstance(entry, Ours):
        return float(entry) if isinstance(entry, float | int) else None
    found = results[entry.cell]
    if found is None:
        return float("nan")
    if entry.what == "parameters":
        return found["parameters"] / 1e6
    if entry.what == "step_ms":
        return found["step_ms"]
    kept = "recall_still" if entry.what == "recall_still" else "mAP"
    values = [found["conditions"][condition.name][kept] for condition in entry.conditions]
    if None in values:
        return None
    return float(values[0] - np.mean(values[1:])) if entry.what == "drop" else values[0]


def text(entry: Entry, results: Results) -> str:
    if isinstance(entry, str):
        return entry
    value = number(entry, results)
    if value is None:
        return "-"
    if value != value:
        return NOT_RUN
    if isinstance(entry, Ours):
        return f"{value:.2f}" if entry.what in ("parameters", "drop") else f"{value:.1f}"
    return f"{value:g}"


def markdown(experiment: Experiment, world: World, jobs: Sequence[Job], command: str, failures: Mapping[str, str] | None = None) -> str:
    results = {job.cell.name: job.result for job in jobs}
    done = sum(result is not None for result in results.values())
    lines = [f"# {experiment.title}", "", experiment.about, ""]
    lines += [f"Data set: {world.name}. {done} of {len(jobs)} cells were run. Repeat with `{command}`.", ""]
    for sheet in experiment.sheets:
        lines += [f"## {sheet.title}", "", *_table(sheet, results), ""]
    lines += ["## What was run", "", *_runs(jobs, failures or {}), ""]
    recipe = {name: value for name, value in world.recipe.binding().items() if name not in ("model", "h2_weight")}
    lines += ["The recipe of every training:", "", "```json", json.dumps(recipe, sort_keys=True), "```", ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(sheet: Sheet, results: Results) -> list[str]:
    head = [_line((*sheet.labels, *sheet.columns)), "|" + "---|" * len(sheet.labels) + "--:|" * len(sheet.columns)]
    return head + [_line((*row.labels, *(text(entry, results) for entry in row.entries))) for row in sheet.rows]


def _runs(jobs: Sequence[Job], failures: Mapping[str, str]) -> list[str]:
    columns = ("cell", "status", "M parameters", "steps", "clips x frames", "seed", "training, s", "scored on", "scoring, s")
    lines = [_line(columns), "|" + "---|" * 2 + "--:|" * 5 + "---|--:|"]
    for job in jobs:
        found = job.result
        if found is None:
            status = f"failed: {failures[job.cell.name]}" if job.cell.name in failures else job.status
            lines.append(_line((job.cell.name, status.replace("\n", " "), *[""] * (len(columns) - 2))))
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
            f"{training['seconds']:.0f}",
            scored,
            f"{scoring['seconds']:.0f}",
        )
        lines.append(_line(values))
    return lines


def plot(experiment: Experiment, world: World, jobs: Sequence[Job], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = {job.cell.name: job.result for job in jobs}
    across = min(len(experiment.sheets), 2)
    down = -(-len(experiment.sheets) // across)
    tallest = max(6.0 if sheet.lines else 1.5 + 0.16 * len(sheet.rows) * len(sheet.plot) for sheet in experiment.sheets)
    figure = Figure(figsize=(10 * across, min(tallest, 12.0) * down), layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for sheet, axes in zip(experiment.sheets, panels, strict=False):
        (_lines if sheet.lines else _bars)(axes, sheet, results)
        axes.set_title(sheet.title)
    for axes in panels[len(experiment.sheets) :]:
        axes.axis("off")
    figure.suptitle(f"{experiment.title} ({world.name}; dashed or pale: the paper's)")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")


def _values(sheet: Sheet, results: Results) -> tuple[list[str], list[bool], np.ndarray]:
    """Names of the rows, whether each has numbers of ours, and what to draw (rows, columns), NaN where there is nothing."""
    chosen = [sheet.columns.index(name) for name in sheet.plot]
    names = [", ".join(label for label in row.labels if label) or "none" for row in sheet.rows]
    ours = [any(isinstance(row.entries[column], Ours) for column in chosen) for row in sheet.rows]
    found = [[number(row.entries[column], results) for column in chosen] for row in sheet.rows]
    return names, ours, np.array([[np.nan if value is None else value for value in row] for row in found])


def _lines(axes: Any, sheet: Sheet, results: Results) -> None:
    names, ours, values = _values(sheet, results)
    rates_hz = [float(name.split()[0]) for name in sheet.plot]
    for name, own, row in zip(names, ours, values, strict=True):
        kept = np.isfinite(row)
        if own or kept.any():
            label = name if kept.any() else f"{name} ({NOT_RUN})"
            axes.plot(np.array(rates_hz)[kept], row[kept], "o-" if own else ".--", alpha=1.0 if own else 0.6, label=label)
    axes.set_xscale("log")
    axes.set_xticks(rates_hz, [f"{rate_hz:g}" for rate_hz in rates_hz])
    axes.minorticks_off()
    axes.set(xlabel="frames per second", ylabel="mAP", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", loc="best")


def _bars(axes: Any, sheet: Sheet, results: Results) -> None:
    names, _, values = _values(sheet, results)
    thickness = 0.8 / len(sheet.plot)
    for number_of, name in enumerate(sheet.plot):
        places = np.arange(len(names)) + (number_of - (len(sheet.plot) - 1) / 2) * thickness
        paper = name.endswith("paper")
        axes.barh(places, np.nan_to_num(values[:, number_of]), thickness, label=name, alpha=0.4 if paper else 1.0)
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="mAP")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="x-small")


def write(
    experiment: Experiment, world: World, jobs: Sequence[Job], name: Path, command: str, failures: Mapping[str, str] | None = None
) -> None:
    """NAME.md and NAME.png."""
    name.parent.mkdir(parents=True, exist_ok=True)
    with replacing(name.with_name(name.name + ".md")) as temporary:
        temporary.write_text(markdown(experiment, world, jobs, command, failures))
    plot(experiment, world, jobs, name.with_name(name.name + ".png"))
