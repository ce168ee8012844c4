"""`saccade train`: a data set -> weights."""

import os
from pathlib import Path
from typing import Annotated

import tyro

from saccade.datasets.open import Kind
from saccade.training.settings import TrainingSettings, presets

Data = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help="Folder of a data set; its splits train and val are used.")]
Out = Annotated[
    Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="Folder for weights, checkpoint, metrics; an old one is resumed.")
]
Gen1 = Annotated[TrainingSettings, tyro.conf.subcommand("gen1", default=presets["gen1"](), description=presets["gen1"].__doc__)]
OneMpx = Annotated[TrainingSettings, tyro.conf.subcommand("1mpx", default=presets["1mpx"](), description=presets["1mpx"].__doc__)]
Synthetic = Annotated[
    TrainingSettings, tyro.conf.subcommand("synthetic", default=presets["synthetic"](), description=presets["synthetic"].__doc__)
]


def train(
    data: Data, out: Out, settings: Annotated[Gen1 | OneMpx | Synthetic, tyro.conf.arg(name="")], *, kind: Kind | None = None
) -> None:
    """Train a detector on DATA with the settings of a preset, any of which can be changed: `saccade train DATA OUT synthetic --steps 300`.

    Killed or stopped, the same command goes on where the last checkpoint was written, with the same losses. Several processes or machines:
    put `torchrun --nproc-per-node N -m` in front and write saccade.cli for saccade, or use srun.

    Args:
        kind: What the data set is, where its content doesn't tell; before the preset: `saccade train DATA OUT --kind etram 1mpx`.
    """
    from saccade import api
    from saccade.training.loop import Stopped
    from saccade.training.processes import from_environment

    try:
        scores = api.train(data, out, settings, kind=kind)
    except Stopped as stopped:
        print(f"{out}: {stopped}")
        raise KeyboardInterrupt from stopped
    if scores is not None and from_environment(os.environ)["rank"] == 0:
        found = f"mAP {scores.mAP:.1f}, AP50 {scores.ap50:.1f}, recall of still objects {scores.recall_still:.1f}"
        print(f"{out}: {found} on {scores.frames} frames")
