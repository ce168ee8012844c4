"""Every cell of every table can be run, and the paper's numbers are the paper's."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import antialiasing, benchmark, initialisation, mixers, rates, report, stages, world
from experiments.__main__ import TABLES
from experiments.runner import Plan, jobs_of
from experiments.table import Experiment, Ours
from experiments.variant import Variant, detector_of, settings_of
from experiments.world import World
from saccade.config import presets
from saccade.evaluation.interval import packed
from saccade.evaluation.run.condition import Condition
from saccade.model.detector import Detector
from saccade.training import settings as recipes

WORLDS = [build(Path("nowhere")) for build in (world.synthetic, world.gen1, world.one_mpx)]
EVERY = [(one, build(one)) for one in WORLDS for build in TABLES]
NAMES = [f"{experiment.name}-{one.name}" for one, experiment in EVERY]


def test_all_tables_are_there() -> None:
    modules = {path.stem for path in Path(rates.__file__).parent.glob("*.py")}
    shared = {"__init__", "__main__", "command", "report", "runner", "table", "variant", "world"}
    assert modules - shared == {build(WORLDS[0]).name for build in TABLES}


@pytest.mark.parametrize("one", WORLDS[:1], ids=lambda one: one.name)
def test_every_cell_builds_its_detector(one: World) -> None:
    variants = {cell.variant.within(one) for build in TABLES for cell in build(one).cells}
    assert len(variants) > 40
    for variant in variants:
        config = detector_of(variant, one)
        detector = Detector(config)
        assert {type(stage.memory) for stage in detector.backbone.stages} != {type(None)}
        assert [stage.reset for stage in detector.backbone.stages] == [not remembers for remembers in variant.remembers]


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in benchmark.RUN if method in benchmark.TABLE_1])
def test_base_detectors_have_the_papers_size(method: str) -> None:
    detector = Detector(detector_of(benchmark.RUN[method], WORLDS[1]))
    assert round(sum(parameter.numel() for parameter in detector.parameters()) / 1e6, 1) == benchmark.TABLE_1[method].parameters


@pytest.mark.parametrize(("one", "experiment"), EVERY, ids=NAMES)
def test_every_number_of_a_sheet_has_its_cell_and_condition(one: World, experiment: Experiment) -> None:
    cells = {cell.name: cell for cell in experiment.cells}
    assert len(cells) == len(experiment.cells)
    used = set()
    for sheet in experiment.sheets:
        assert set(sheet.plot) <= set(sheet.columns)
        for row in sheet.rows:
            assert len(row.labels) == len(sheet.labels)
            assert len(row.entries) == len(sheet.columns)
            for entry in row.entries:
                if isinstance(entry, Ours):
                    assert set(entry.conditions) <= set(cells[entry.cell].conditions)
                    assert entry.what != "step_ms" or cells[entry.cell].timed
                    used |= {(entry.cell, condition) for condition in entry.conditions}
    assert used == {(cell.name, condition) for cell in experiment.cells for condition in cell.conditions}, "a condition that nobody sees"


@pytest.mark.parametrize("one", WORLDS, ids=lambda one: one.name)
def test_trainings_have_one_name_each_and_one_recipe(one: World) -> None:
    """Tables share them by it: equal names mean equal trainings, and other names other ones."""
    trainings: dict[str, str] = {}
    for build in TABLES:
        for cell in build(one).cells:
            config, settings = detector_of(cell.variant, one), settings_of(cell.variant, one)
            assert replace(settings, model=one.recipe.model, h2_weight=0.0) == one.recipe
            said = repr((replace(config, name=""), settings.h2_weight))
            assert trainings.setdefault(config.name, said) == said
    assert len(set(trainings.values())) == len(trainings)


@pytest.mark.parametrize(
    ("one", "variant", "preset"),
    [
        (WORLDS[0], Variant(), "s5-vit-nano"),
        (WORLDS[0], Variant(memory="lstm"), "rvt-nano"),
        (WORLDS[0], Variant(memory="gs5"), "gs5-vit-nano"),
        (WORLDS[0], Variant(memory="s4", alpha=0.0), "s4-vit-nano"),
        (WORLDS[1], Variant(memory="s4d", timescales="published"), "s4d-vit-b"),
        (WORLDS[1], Variant(small=True), "s5-vit-s"),
        (WORLDS[2], Variant(mixing="ssm2d"), "s5-ssm2d-b"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_variants_are_the_presets_where_there_is_one(one: World, variant: Variant, preset: str) -> None:
    assert replace(detector_of(variant, one), name=preset) == presets[preset]()


def test_worlds_train_by_their_preset() -> None:
    for one in WORLDS:
        assert asdict(one.recipe) == asdict(recipes.presets[one.name]())


@pytest.mark.parametrize(("one", "experiment"), EVERY, ids=NAMES)
def test_what_was_not_run_is_said(one: World, experiment: Experiment, tmp_path: Path) -> None:
    jobs = jobs_of(experiment, one, Plan(runs=tmp_path / "runs", out=tmp_path / "results"))
    said = report.markdown(experiment, one, jobs, "command")
    ours = sum(isinstance(entry, Ours) for sheet in experiment.sheets for row in sheet.rows for entry in row.entries)
    assert said.count(report.NOT_RUN) == ours + len(jobs)
    assert all(f"| {cell.name} |" in said for cell in experiment.cells)


def test_scores_have_intervals_and_differences_are_paired_over_the_same_recordings() -> None:
    """Two memories whose draws move together: the difference is sure, the scores are not. Cells scored earlier have no draws."""
    slow, fast = Condition(), Condition(rate_hz=200)
    wave = 2 * np.sin(np.arange(1000))

    def cell(*scores: float, names: tuple[str, ...] = ("a", "b")) -> dict[str, Any]:
        found = {one.name: {"mAP": mAP, "draws": {"mAP": packed(mAP + wave)}} for one, mAP in zip((slow, fast), scores, strict=True)}
        return {"scoring": {"names": list(names)}, "conditions": found}

    old = {"scoring": {}, "conditions": {one.name: {"mAP": 30.0} for one in (slow, fast)}}
    results = {"s5": cell(40.0, 39.0), "lstm": cell(40.0, 31.0), "elsewhere": cell(40.0, 31.0, names=("a", "c")), "old": old}
    for entry, said in (
        (Ours("s5"), "40.0 [38.0, 42.0]"),
        (Ours("s5", (slow, fast), "drop"), "1.00 [1.00, 1.00]"),
        (Ours("s5", (fast,), "gain", over="lstm"), "8.00 [8.00, 8.00]"),
        (Ours("s5", (fast,), "gain", over="elsewhere"), "8.00"),
        (Ours("s5", (fast,), "gain", over="old"), "9.00"),
        (Ours("old", (slow, fast), "drop"), "0.00"),
    ):
        assert report.text(entry, results) == said


def tex_table(shared: Path, label: str) -> list[list[str]]:
    """Rows of cells without markup; an empty cell under a \\multirow repeats it."""
    text = (shared / "paper.tex").read_text()
    bodies = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", text, re.DOTALL)
    body = next(body for body in bodies if f"\\label{{{label}}}" in body)
    body = re.search(r"\\begin\{tabular(?:x\}\{[^}]*)?\}(.*?)\\end\{tabular", body, re.DOTALL)[1]  # type: ignore[index]
    body = re.sub(r"~?\\cite\{[^}]*\}|\\(hline|toprule|midrule|bottomrule)|\\c(mid|)(line|rule)(\(lr\))?\{[^}]*\}", "", body)
    rows: list[list[str]] = []
    above: dict[int, str] = {}
    for line in body.split("\\\\"):
        cells = []
        for place, cell in enumerate(line.split("&")):
            spanning = re.search(r"\\multirow\{(\d+)\}\{\*\}\{(.*)\}\s*$", cell, re.DOTALL)
            plain = re.sub(r"\\(textbf|underline|text)|[${}\\() \n\t]", "", spanning[2] if spanning else cell.replace("\\checkmark", "x"))
            if spanning:
                above[place] = plain
            cells.append(plain or (above.get(place, "") if place < 2 else ""))
        rows.append(cells)
    return rows


def numbers(cells: list[str]) -> tuple[float | None, ...]:
    return tuple(None if cell == "-" else float(cell) for cell in cells)


def rated(rows: list[list[str]]) -> list[list[str]]:
    """Those that end in numbers."""
    return [row for row in rows if re.fullmatch(r"[\d.]+|>\d+\*", row[-1])]


def test_table_1_is_the_papers(shared: Path) -> None:
    found = {}
    for row in rated(tex_table(shared, "tab:sota")):
        parameters: float | str = row[7] if ">" in row[7] else float(row[7])
        found[re.sub(r"ours$", "", row[0])] = benchmark.Published(*numbers(row[3:7]), parameters)
    assert found == {name.replace(" ", ""): values for name, values in benchmark.TABLE_1.items()}


def test_table_2_is_the_papers(shared: Path) -> None:
    found = {(row[0], row[1].replace("1Mpx", "1 Mpx")): numbers(row[2:]) for row in rated(tex_table(shared, "table:benchmark_freqs"))}
    assert found == rates.TABLE_2


def test_table_3_is_the_papers(shared: Path) -> None:
    found = {row[0]: numbers(row[1:]) for row in rated(tex_table(shared, "table:bandlimit_performance_comparison"))}
    assert found == initialisation.TABLE_3


def test_table_4_is_the_papers(shared: Path) -> None:
    found = {tuple(mark == "x" for mark in row[:4]): numbers(row[4:]) for row in rated(tex_table(shared, "table:performance_comparison"))}
    assert found == stages.TABLE_4


def test_table_5_is_the_papers(shared: Path) -> None:
    found = {}
    strategies = {"-": "-", "H_2norm": "H2", "alpha=0.5": "alpha"}
    for row in rated(tex_table(shared, "table:frequencies_comparison")):
        data, size = row[1].replace("1Mpx", "1 Mpx").split("_")
        found[row[0], data, size, strategies[row[2]]] = numbers(row[3:])
    assert found == rates.TABLE_5
    assert antialiasing.TABLE_5 is rates.TABLE_5


def test_table_6_is_the_papers(shared: Path) -> None:
    assert {row[0]: numbers(row[1:]) for row in rated(tex_table(shared, "tab:rebuttal_map_scores"))} == mixers.TABLE_6


def test_the_papers_drops_follow_from_its_scores() -> None:
    """But for rounding: the mean of what is lost from 20 Hz to each higher rate."""
    for scores in (*rates.TABLE_2.values(), *rates.TABLE_5.values()):
        assert scores[0] - sum(scores[1:5]) / 4 == pytest.approx(scores[5], abs=0.02)
