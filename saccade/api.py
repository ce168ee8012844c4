"""A folder of recordings -> weights, or scores: what `saccade train` and `saccade evaluate` do, as two calls without a command line."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.datasets.classes import with_class_map
from saccade.datasets.open import DatasetKind, join_datasets, open_dataset, open_to_score, open_to_validate
from saccade.datasets.recording import Dataset
from saccade.evaluation.run.condition import RATES_HZ, Condition
from saccade.machine import check_extra
from saccade.s3 import S3Path, located
from saccade.staging import staged
from saccade.training.settings import TrainingSettings, presets
from saccade.types import InputError

if TYPE_CHECKING:
    from saccade.evaluation.result import Evaluation, Metrics
    from saccade.model.detector import Detector


def train(
    data: Path | str,
    out: Path | str,
    recipe: str | TrainingSettings = "synthetic",
    *,
    kind: DatasetKind | None = None,
    also: Sequence[Path | str] = (),
    on: str = "local",
    processes: int = 0,
    **changes: Any,
) -> "Metrics | None":
    """Train a detector on the splits train and val of a folder: `saccade.train("streets", "run", "synthetic", steps=300)`.

    OUT gets final.safetensors, best.safetensors, metrics.jsonl and a checkpoint; the same call goes on where it was stopped. Returns the
    scores of the last validation.

    recipe: gen1, 1mpx, synthetic, photos, or a `TrainingSettings`. kind: what the data set is, where its content doesn't tell.
    also: folders of further data sets of the same classes, whose split train is trained on as well; validation stays with DATA.
    on: ray or ray://HOST:10001 (extra cluster): PROCESSES of a Ray cluster (0: one for each of its GPUs) share every batch; its machines
    must share the folders. Returns None then: the scores are in metrics.jsonl.
    changes: any field of `TrainingSettings`, such as model="rvt-nano", steps=300, device="cuda".
    """
    from saccade.training.loop import fit
    from saccade.training.on_ray import RayTraining, train_on_ray
    from saccade.training.processes import from_environment

    settings = _settings(recipe, changes)
    if "wandb" in settings.log:
        check_extra("log=wandb", "wandb", "wandb")
    if on != "local":
        if isinstance(located(out), S3Path):
            raise InputError(f"{out}: a training on Ray goes on from a folder that all its machines share; data may be s3://, OUT may not")
        if not on.startswith("ray://"):
            training_data(data, settings, kind=kind, also=also)  # what is wrong with it is better said here
        folder, place, *places = (located(name).resolve() for name in (out, data, *also))
        work = partial(train, str(place), str(folder), settings, kind=kind, also=[str(further) for further in places])
        gpus = None if settings.device == "auto" else settings.device == "cuda"
        train_on_ray(RayTraining(work, folder, processes, gpus, most=settings.batch // settings.accumulation), on)
        return None
    found = training_data(data, settings, kind=kind, also=also)
    with staged(located(out), writes=from_environment(os.environ)["rank"] == 0) as folder:
        return fit(*found, folder, settings)


def training_data(
    data: Path | str, settings: TrainingSettings, *, kind: DatasetKind | None = None, also: Sequence[Path | str] = ()
) -> tuple[Dataset, Dataset | None]:
    """The recordings that `train` learns from, and those that it validates on, if there are any."""
    from saccade.training.start import halving_of

    halved = halving_of(settings)
    further = [open_dataset(folder, "train", halve=halved) for folder in also]
    training = join_datasets([open_dataset(data, "train", kind, halve=halved), *further])
    return training, open_to_validate(data, kind, halve=halved)


def evaluate(
    weights: "Path | str | Detector",
    dataset: Path | str | Dataset,
    rates_hz: Sequence[float] = RATES_HZ,
    *,
    split: str | None = None,
    kind: DatasetKind | None = None,
    class_map: Mapping[str, str] | None = None,
    conditions: Sequence[Condition] | None = None,
    **options: Any,
) -> "Evaluation":
    """Score weights at every rate: `[r.scores.mAP for r in saccade.evaluate("nano", "streets", rates_hz=(20, 200)).results]`.

    Every recording runs as one stream with carried memory, and every rate is scored at the same labelled instants.

    weights: a file, a name that comes with saccade, or a Detector. dataset: a folder, of which SPLIT is scored (None: test, or
    else what there is), or an open `Dataset`.
    class_map: classes of the data set under the names that the weights know, {"bicycle": "two-wheeler"}; "" as a name: neither right nor
    wrong to find.
    conditions: instead of rates_hz, which are of sliding windows and direct stepping: any `Condition`.
    options: of `saccade.evaluation.evaluate.evaluate`, such as out="scores", recordings=10, processes=2, protocol="prophesee".
    """
    from saccade.evaluation.evaluate import evaluate as run
    from saccade.weights.load import load_detector

    detector = load_detector(weights) if isinstance(weights, Path | str) else weights
    if not isinstance(dataset, Dataset):
        dataset = open_to_score(dataset, split, kind, halve=detector.config.halved)
    if class_map:
        dataset = with_class_map(dataset, class_map)
    if conditions is None:
        conditions = [Condition(rate_hz=rate_hz) for rate_hz in rates_hz]
    if options.get("out") is not None:
        options["out"] = located(options["out"])
    found = run(detector, dataset, conditions, **options)
    return replace(found, weights=str(weights)) if isinstance(weights, Path | str) else found


def _settings(recipe: str | TrainingSettings, changes: dict[str, Any]) -> TrainingSettings:
    if isinstance(recipe, str) and recipe not in presets:
        raise InputError(f"train: unknown recipe {recipe!r}; expected {', '.join(presets)}, or a TrainingSettings")
    unknown = changes.keys() - {field.name for field in fields(TrainingSettings)}
    if unknown:
        known = ", ".join(field.name for field in fields(TrainingSettings))
        raise InputError(f"train: unknown setting {', '.join(sorted(unknown))}; expected some of {known}")
    return replace(presets[recipe]() if isinstance(recipe, str) else recipe, **changes)
