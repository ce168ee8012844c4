"""CELLS -> RESULTS: each cell is trained, scored and written whole; what is there already isn't done again."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.table import Cell, Experiment
from experiments.variant import detector_of, settings_of
from experiments.world import World
from saccade import pool
from saccade.cluster import LOCAL, connected_gpus, patiently, spread
from saccade.config import DetectorConfig
from saccade.datasets.open import open_dataset
from saccade.evaluation.result import Evaluation
from saccade.files import replacing
from saccade.training.log import METRICS, read_metrics
from saccade.training.settings import TrainingSettings
from saccade.types import InputError

if TYPE_CHECKING:
    from saccade.weights.load import Weights

PAIRED = ("mAP", "recall_still")  # scores of which the draws are kept, for intervals of differences, also between cells
WEIGHTS = "final.safetensors"  # the last average of the weights: no cell chooses its best by validation
Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where things are kept and how much is scored."""

    runs: Path  # trainings and their answers, shared by all tables
    out: Path  # results
    recordings: int = 0  # scored at most, 0 = all
    processes: int = 1
    device: str = "auto"
    scores: bool = True  # else cells are only trained
    weights: tuple[str, ...] = ()  # files or names: a cell that they were trained for isn't trained again
    on: str = LOCAL  # or ray, ray://HEAD:PORT: trainings beside one another, as many as the cluster has room for


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell with all that decides its result. Files carry a hash of that, so that other settings never meet."""

    cell: Cell
    config: DetectorConfig
    settings: TrainingSettings
    split: str
    folder: Path  # of the training
    file: Path  # of the result
    given: str | None = None  # weights of this very training, made elsewhere

    @property
    def weights(self) -> Path | str:
        return self.given or self.folder / WEIGHTS

    @property
    def trained(self) -> bool:
        return self.given is not None or (self.folder / WEIGHTS).exists()

    @property
    def status(self) -> str:
        if self.file.exists():
            return "done"
        if self.trained:
            return "trained"
        rows = read_metrics(self.folder / METRICS)
        return f"step {rows[-1]['step']} of {self.settings.steps}" if rows else "not run"

    @property
    def result(self) -> dict[str, Any] | None:
        return json.loads(self.file.read_text()) if self.file.exists() else None


def jobs_of(experiment: Experiment, world: World, plan: Plan) -> list[Job]:
    """All cells of a table. Reads no recording."""
    split = world.split or experiment.split
    data = {name: recordings_of(world.folder, name) for name in ("train", split)}
    return list(_jobs(experiment, world, plan, split, data))


def _jobs(experiment: Experiment, world: World, plan: Plan, split: str, data: dict[str, Any]) -> Iterator[Job]:
    given = _read(plan.weights)
    for cell in experiment.cells:
        variant = cell.variant.within(world)
        config, settings = detector_of(variant, world), settings_of(variant, world)
        learned = _hash(asdict(config), settings.binding(), data["train"])
        conditions = [condition.name for condition in cell.conditions]
        scored = _hash(learned, conditions, cell.timed, data[split], split, world.protocol, world.label_rate_hz, plan.recordings)
        yield Job(
            cell=cell,
            config=config,
            settings=settings,
            split=split,
            folder=plan.runs / world.name / f"{variant.name}-{learned}",
            file=plan.out / result_name(experiment, world) / f"{cell.name}-{scored}.json",
            given=next((name for name, weights in given.items() if _fits(weights, config, settings)), None),
        )


def _read(names: Sequence[str]) -> dict[str, "Weights"]:
    if not names:
        return {}  # and nobody waits for torch
    from saccade.weights.load import read_weights

    return {name: read_weights(name) for name in names}


def _fits(weights: "Weights", config: DetectorConfig, settings: TrainingSettings) -> bool:
    """Whether this training would give these weights: by the notes in their file, which say all but the data."""
    told, asked = weights.training, json.loads(json.dumps(settings.binding()))
    return weights.config.backbone == config.backbone and told.get("settings") == asked and told.get("steps") == settings.steps


def result_name(experiment: Experiment, world: World) -> str:
    return experiment.name if world.name == "synthetic" else f"{experiment.name}-{world.name}"


def recordings_of(folder: Path, split: str) -> list[str]:
    """What tells one data set from another: how it was simulated, and the names of its recordings; nothing while it isn't there."""
    if not folder.exists():
        return []
    described = folder / "dataset.json"
    names = [recording.name for recording in open_dataset(folder, split).recordings]
    return [described.read_text() if described.exists() else "", *names]


def _hash(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def run(jobs: Sequence[Job], world: World, plan: Plan, *, say: Callable[[str], None], progress: Progress | None = None) -> dict[str, str]:
    """Finish the jobs in their order; what went wrong, by cell. An interrupt ends it between two steps or recordings, and nothing is lost.

    Under torchrun and srun the cells are only trained: all processes share a training, one alone scores. On Ray the order is the cluster's.
    """
    if plan.on != LOCAL:
        return _run_on_cluster(jobs, world, plan, say, progress)
    from saccade.training.processes import joined

    failures = {}
    with joined(plan.device) as processes:  # once for all trainings: torchrun's processes find each other only once
        for number, job in enumerate(jobs):
            if job.file.exists():
                continue
            if processes.rank == 0:
                say(f"{number + 1} of {len(jobs)}, {job.cell.name}: {job.status}, into {job.folder}")
            try:
                train(job, world)
                if plan.scores and processes.world == 1:
                    score(job, world, plan, progress)
            except InputError as error:
                failures[job.cell.name] = str(error)
                say(f"{job.cell.name}: {error}")
    return failures


def _run_on_cluster(jobs: Sequence[Job], world: World, plan: Plan, say: Callable[[str], None], progress: Progress | None) -> dict[str, str]:
    """A piece is a training with the cells that share it."""
    groups: dict[Path, list[Job]] = {}
    for job in jobs:
        if not job.file.exists():
            groups.setdefault(job.folder, []).append(job)

    def heard(kind: str, *values: Any) -> None:
        if kind == "say":
            say(*values)
        elif progress is not None:
            progress(*values)

    failures: dict[str, str] = {}
    plan.runs.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=plan.runs, prefix=".seen-") as seen:
        work = partial(_finish, world=world, plan=replace(plan, on=LOCAL, processes=1))
        gpus = connected_gpus(plan.on, plan.device)
        for _, failed in spread(work, list(groups.values()), on=plan.on, heard=heard, what="cell", seen=Path(seen.name), gpus=gpus):
            failures |= failed
    return failures


def _finish(jobs: Sequence[Job], world: World, plan: Plan) -> dict[str, str]:
    """In a process of the cluster. What went wrong, by cell."""
    tell, failures = pool.reporter(), {}

    def finish(job: Job) -> None:
        train(job, world)
        if plan.scores:
            score(job, world, plan, partial(tell, "scored"))

    for job in jobs:
        tell("say", f"{job.cell.name}: {job.status}, into {job.folder}")
        try:
            patiently(partial(finish, job))
        except InputError as error:
            failures[job.cell.name] = str(error)
            tell("say", f"{job.cell.name}: {error}")
        tell("say", f"{job.cell.name}: {job.status}")
    return failures


def train(job: Job, world: World) -> None:
    """From the last checkpoint, if there is one."""
    from saccade.training.loop import fit

    if not job.trained:
        fit(open_dataset(world.folder, "train"), None, job.folder, job.settings, job.config)


def score(job: Job, world: World, plan: Plan, progress: Progress | None = None) -> None:
    from saccade.evaluation.evaluate import evaluate

    evaluation = evaluate(
        job.weights,
        open_dataset(world.folder, job.split),
        job.cell.conditions,
        out=job.folder / "-".join([job.split, world.protocol, *(["timed"] if job.cell.timed else [])]),  # timed answers know being late
        protocol=world.protocol,
        recordings=plan.recordings,
        label_rate_hz=world.label_rate_hz,
        processes=plan.processes,
        latency_ms="measured" if job.cell.timed else None,
        device=plan.device,
        progress=progress,
    )
    job.file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(job.file) as temporary:
        temporary.write_text(json.dumps(_facts(job, world, evaluation), indent=1) + "\n")


def _facts(job: Job, world: World, evaluation: Evaluation) -> dict[str, Any]:
    """What the cell found, and what is needed to find it again."""
    from saccade.weights.load import load_detector

    settings = job.settings
    steps = [row for row in read_metrics(job.folder / METRICS) if row["kind"] == "train"]
    return {
        "cell": job.cell.name,
        "model": job.config.name,
        "parameters": sum(parameter.numel() for parameter in load_detector(job.weights).parameters()),
        "training": {
            **{name: getattr(settings, name) for name in ("steps", "batch", "length", "learning_rate", "h2_weight", "seed")},
            "seconds": None if job.given else sum(settings.batch * settings.length / row["frames_per_s"] for row in steps),
        },
        "scoring": {
            "dataset": evaluation.dataset,
            "split": evaluation.split,
            "recordings": evaluation.recordings,
            "names": list(evaluation.names),
            "protocol": evaluation.protocol,
            "label_rate_hz": world.label_rate_hz,
            "seconds": sum(result.cost.seconds for result in evaluation.results),
            "labels": evaluation.results[0].scores.labels,
        },
        "step_ms": evaluation.results[0].cost.step_ms,
        "conditions": {
            result.condition.name: {
                **{name: _number(getattr(result.scores, name)) for name in ("mAP", "ap50", "ap75", "recall", "recall_still")},
                "intervals": {name: [_number(end) for end in result.interval(name)] for name in result.draws},
                "ghosts": {name: _number(value) for name, value in asdict(result.ghosts).items()},
                "age_ms": _number(result.age_ms),
                "steps_per_s": _number(result.cost.steps_per_s),
                "frames_per_s": _number(result.cost.frames_per_s),
                "draws": {name: drawn for name, drawn in result.draws.items() if name in PAIRED},
            }
            for result in evaluation.results
        },
    }


def _number(value: float) -> float | None:
    return value if value == value else None  # JSON has no NaN
