"""The command line of every table: `python -m experiments.NAME`, and of all: `python -m experiments`."""

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tqdm import tqdm

from experiments import report, world
from experiments.runner import Job, Plan, jobs_of, result_name, run
from experiments.table import Build, Experiment
from experiments.world import World
from saccade.cluster import LOCAL, check_place
from saccade.files import from_plain
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.training.processes import from_environment
from saccade.types import InputError

RESULTS, LOOKS = Path("results"), Path("results/looks")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run the cells that aren't done yet, one after the other, and write what is there as Markdown and a plot."""

    data: Path | None = None
    """Synthetic data set, simulated if it isn't there. data/synthetic, unless --gen1 or --one-mpx is given."""
    gen1: Path | None = None
    """Gen1, with base detectors and the paper's recipe."""
    one_mpx: Path | None = None
    """1 Mpx, with base detectors and the paper's recipe."""
    cells: tuple[str, ...] = ()
    """Run only these cells; the tables show all."""
    list: bool = False
    """Only list the cells and their progress."""
    train_only: bool = False
    """Train only; a later run of the same command scores and writes the tables."""
    weights: tuple[str, ...] = ()
    """Weights files or names. Cells of the same detector and recipe are scored with them instead of being trained; the training data
    aren't compared. `nano rvt-nano` are gs5 and lstm."""
    runs: Path = Path("runs")
    """Trainings and answers, shared by all tables."""
    out: Path | None = None
    """Folder for results: results, or results/looks if any setting below is changed."""
    steps: int | None = None
    """Steps of every training, for a quick look."""
    batch: int | None = None
    """Clips per batch of every training, likewise."""
    length: int | None = None
    """Frames per clip, likewise."""
    learning_rate: float | None = None
    """Learning rate of every training, likewise."""
    seed: int | None = None
    """Random seed of every training, likewise."""
    recordings: int = 0
    """Score only the first so many recordings; 0 = all."""
    workers: int | None = None
    """Processes that read data while training; changes no result."""
    threads: int | None = None
    """Threads of a training; changes no result."""
    processes: int = 1
    """Processes that score; changes no result."""
    on: str = LOCAL
    """Where cells run: local, one after the other, or on a Ray cluster (ray, ray://HEAD:10001), whose nodes see data, runs and out
    under the same names; changes no result, but for what is timed."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train and to score."""

    @property
    def changes(self) -> dict[str, Any]:
        """Of the recipe, as far as they change a result."""
        asked = {name: getattr(self, name) for name in ("steps", "batch", "length", "learning_rate", "seed")}
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def folder(self) -> Path:
        return self.out or (LOOKS if self.changes or self.recordings else RESULTS)


def worlds(options: Options) -> list[World]:
    found = [build(path) for build, path in ((world.gen1, options.gen1), (world.one_mpx, options.one_mpx)) if path is not None]
    if options.data is not None or not found:
        found.insert(0, world.synthetic(options.data or Path("data/synthetic")))
    free = {name: getattr(options, name) for name in ("workers", "threads") if getattr(options, name) is not None}
    return [replace(one, recipe=replace(one.recipe, device=options.device, **options.changes, **free)) for one in found]


def main(*builds: Build) -> None:
    """Entry point of one or more tables; wrong input is one line and exit code 2, a cell that failed exit code 1."""
    notes = logging.StreamHandler()
    notes.setFormatter(logging.Formatter("note: %(message)s"))
    logging.getLogger("saccade").addHandler(notes)
    options = tyro.cli(Annotated[Options, tyro.conf.FlagCreatePairsOff], prog=f"python -m {_module()}")
    try:
        check_place(options.on)
        tables = [(build(one), one) for one in worlds(options) for build in _chosen(builds, options)]
        _check_weights(tables, options)
        failed = [_table(experiment, one, options) for experiment, one in tables]
        sys.exit(1 if any(failed) else 0)
    except InputError as error:
        print(f"experiments: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("experiments: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def _chosen(builds: Sequence[Build], options: Options) -> Sequence[Build]:
    """The tables that have the cells asked for."""
    known = {build: [cell.name for cell in build(one).cells] for one in worlds(options)[:1] for build in builds}
    unknown = sorted(set(options.cells) - {name for names in known.values() for name in names})
    if unknown:
        every = ", ".join(dict.fromkeys(name for names in known.values() for name in names))
        raise InputError(f"--cells {' '.join(unknown)}: no such cell; there are {every}")
    return [build for build, names in known.items() if not options.cells or set(names) & set(options.cells)]


def _check_weights(tables: Sequence[tuple[Experiment, World]], options: Options) -> None:
    """Weights that serve no cell were given by mistake, and their cell would silently be trained for an hour."""
    if not options.weights:
        return
    jobs = [job for experiment, one in tables for job in jobs_of(experiment, one, _plan(options))]
    serving = {job.given for job in jobs if not options.cells or job.cell.name in options.cells}
    idle = [name for name in options.weights if name not in serving]
    if idle:
        raise InputError(
            f"--weights {' '.join(idle)}: trained for none of these cells with this recipe (`saccade weights FILE` says how they were); "
            "leave them out, or give the cells, steps and seed that they were trained with"
        )


def _plan(options: Options) -> Plan:
    return Plan(
        runs=options.runs,
        out=options.folder,
        recordings=options.recordings,
        processes=options.processes,
        device=options.device,
        scores=not options.train_only,
        weights=options.weights,
        on=options.on,
    )


def _table(experiment: Experiment, one: World, options: Options) -> bool:
    """Whether a cell failed."""
    plan = _plan(options)
    if not options.list and one.name == "synthetic":
        _simulate(one.folder, options.on)
    elif not options.list and not one.folder.exists():
        raise InputError(f"{one.folder}: no such folder; expected the data set {one.name} with its splits train, val and test")
    jobs = jobs_of(experiment, one, plan)
    name = plan.out / result_name(experiment, one)
    if options.list:
        print(f"{experiment.title} ({one.name}, {one.folder}, into {name}.md)")
        for job in jobs:
            print(f"  {job.cell.name:32} {job.status:24} {len(job.cell.conditions):3} conditions  {job.folder}")
        return False
    failures: dict[str, str] = {}
    wanted = [job for job in jobs if not options.cells or job.cell.name in options.cells]
    try:
        failures |= _run(wanted, one, plan)
    finally:  # interrupted, too: what is done is worth seeing
        if plan.scores and from_environment(os.environ)["world"] == 1:  # who only trains has no table to show, and keeps that of others
            report.write(experiment, one, jobs, name, _repeat(experiment, one, options), failures)
            print(f"{name}.md: {sum(job.file.exists() for job in jobs)} of {len(jobs)} cells")
    return bool(failures)


def _run(jobs: Sequence[Job], one: World, plan: Plan) -> dict[str, str]:
    with tqdm(desc="scoring", unit=" s recorded", leave=False, disable=None) as bar:

        def progress(condition: str, seconds: float) -> None:
            bar.set_postfix_str(condition, refresh=False)
            bar.update(seconds)

        return run(jobs, one, plan, say=tqdm.write, progress=progress)


def _simulate(folder: Path, on: str) -> None:
    """The data set that `saccade simulate FOLDER` writes, or the rest of one that was interrupted."""
    described = folder / "dataset.json"
    if folder.exists() and not described.exists():
        return  # `open_dataset` says what it finds
    config = DatasetConfig()
    if described.exists():
        about = json.loads(described.read_text())
        if all((folder / path).exists() for paths in about["splits"].values() for path in paths):
            return
        known = {name: about[name] for name in ("recordings", "seconds", "width", "height", "seed", "sensor")}
        config = from_plain(DatasetConfig, known, str(described))
    if from_environment(os.environ)["world"] > 1:
        raise InputError(f"{folder}: no whole data set; write it first, with `saccade simulate {folder}`")
    with tqdm(total=config.recordings, desc="simulating", unit=" recordings", leave=False, disable=None) as bar:
        write_dataset(folder, config, progress=lambda path, seconds: bar.update(), on=on)


def _repeat(experiment: Experiment, one: World, options: Options) -> str:
    """Of the whole table, whatever part of it was asked for this time."""
    place = {"synthetic": "--data", "gen1": "--gen1", "1mpx": "--one-mpx"}[one.name]
    changes = options.changes | ({"recordings": options.recordings} if options.recordings else {})
    given = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["python", "-m", f"experiments.{experiment.name}", place, str(one.folder), *given])


def _module() -> str:
    """As it was started with `python -m`."""
    name = Path(sys.argv[0]).stem
    return "experiments" if name == "__main__" else f"experiments.{name}"
