"""`saccade train`: a data set -> weights."""

import os
from inspect import getdoc
from pathlib import Path
from typing import Annotated

import tyro

from saccade.cluster import LOCAL
from saccade.commands.options import On
from saccade.datasets.open import DatasetKind
from saccade.training.settings import GpuName, TrainingSettings, presets

TrainingData = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help="Folder of a data set; its splits train and val are used.")
]
RunFolder = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="OUT", help="Folder for weights, checkpoint, metrics; resumed if it has a checkpoint."),
]
Gen1 = Annotated[TrainingSettings, tyro.conf.subcommand("gen1", default=presets["gen1"](), description=getdoc(presets["gen1"]))]
Gen1Published = Annotated[
    TrainingSettings,
    tyro.conf.subcommand("gen1-published", default=presets["gen1-published"](), description=getdoc(presets["gen1-published"])),
]
OneMpx = Annotated[TrainingSettings, tyro.conf.subcommand("1mpx", default=presets["1mpx"](), description=getdoc(presets["1mpx"]))]
OneMpxPublished = Annotated[
    TrainingSettings,
    tyro.conf.subcommand("1mpx-published", default=presets["1mpx-published"](), description=getdoc(presets["1mpx-published"])),
]
Synthetic = Annotated[
    TrainingSettings, tyro.conf.subcommand("synthetic", default=presets["synthetic"](), description=getdoc(presets["synthetic"]))
]
Photos = Annotated[TrainingSettings, tyro.conf.subcommand("photos", default=presets["photos"](), description=getdoc(presets["photos"]))]


def train(
    data: TrainingData,
    out: RunFolder,
    settings: Annotated[Gen1 | Gen1Published | OneMpx | OneMpxPublished | Synthetic | Photos, tyro.conf.arg(name="")],
    *,
    kind: DatasetKind | None = None,
    also: tuple[Path, ...] = (),
    on: On = LOCAL,
    workers: int = 0,
    plan: bool = False,
    gpu: GpuName = "a100",
) -> None:
    """Train a detector on DATA with the settings of a preset, any of which can be changed: `saccade train DATA OUT synthetic --steps 300`.

    After an interruption the same command resumes from the last checkpoint, with the same losses. Several processes or machines:
    `torchrun --nproc-per-node N -m saccade.cli train ...`, srun, or `--on ray`.

    Args:
        kind: Layout of the data set; recognised by its files if not given. Before the preset: `saccade train DATA OUT --kind etram 1mpx`.
        also: Further data sets of the same classes to train on; validation stays with DATA. Before the preset, too:
            `saccade train data/photos run --also data/streets photos`.
        on: Where it is computed: local, ray (the cluster of this machine), or ray://HOST:10001. Extra `cluster`; before the preset.
        workers: Training processes of Ray, or of the plan; 0 = one for each GPU that there is. Before the preset: after it, the same name
            is that of the processes that read ahead for each of them.
        plan: Print parameters, memory, frames per second that are read and used, and hours, and train nothing: an estimate.
        gpu: The GPU of the plan.
    """
    from saccade import api
    from saccade.training.loop import Stopped
    from saccade.training.processes import from_environment

    if plan:
        from saccade.training.plan import plan_training

        print(plan_training(api.training_data(data, settings, kind=kind, also=also)[0], settings, gpu, workers or 1).table())
        return
    try:
        scores = api.train(data, out, settings, kind=kind, also=also, on=on, processes=workers)
    except Stopped as stopped:
        print(f"{out}: {stopped}")
        raise KeyboardInterrupt from stopped
    if on != LOCAL:
        print(f"{out}: done; the scores are in {out / 'metrics.jsonl'}")
    elif scores is not None and from_environment(os.environ)["rank"] == 0:
        found = f"mAP {scores.mAP:.1f}, AP50 {scores.ap50:.1f}, recall of still objects {scores.recall_still:.1f}"
        judged = "" if settings.final_protocol == "none" else f", protocol {settings.final_protocol}"
        print(f"{out}: {found} on {scores.frames} frames{judged}")
