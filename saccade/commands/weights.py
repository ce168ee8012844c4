"""`saccade weights`: print what a weights file holds, convert published checkpoints, and derive detectors to train on from."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.config import MemoryName
from saccade.types import InputError

if TYPE_CHECKING:
    from saccade.weights.load import Weights

WeightsFile = Annotated[
    Path | str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="WEIGHTS", help="A weights file (.safetensors, or a published checkpoint), or a name of weights that come with saccade."
    ),
]


def weights(
    file: WeightsFile,
    *,
    out: Path | None = None,
    half: bool = False,
    widen: bool = False,
    new_memory: MemoryName | None = None,
    mix: Path | None = None,
    share: float = 0.7,
    least_score: float | None = None,
    overwrite: bool = False,
) -> None:
    """Print the detector that WEIGHTS belong to; with --out, write them as a file of saccade, without the optimiser state of checkpoints.

    Args:
        out: Write the weights to this .safetensors file.
        half: Write matrices in half precision, for half the size; computing stays in full precision.
        widen: Write a detector of twice the channels that computes the same, to train on from (`saccade train ... --model OUT`).
        new_memory: Write a detector with this memory, which has learned nothing, in place of its own, to train on from.
        mix: Write the mean of these weights and of those in the file MIX, from which they were trained on: most of what either knows.
        share: Of the weights in that mean; the rest is MIX's.
        least_score: Write this as the least score of a box that is shown by default.
        overwrite: Replace files that exist.
    """
    from saccade.weights.derive import mixed, widened, with_fresh_memory
    from saccade.weights.load import find_weights, load_detector, read_weights, save_detector

    changes = {"--half": half, "--widen": widen, "--new-memory": new_memory, "--mix": mix, "--least-score": least_score is not None}
    asked = [option for option, given in changes.items() if given]
    if asked and out is None:
        raise InputError(f"{asked[0]}: changes only the file that --out writes; give --out NAME.safetensors as well")
    if out is not None:
        if out.suffix != ".safetensors":
            raise InputError(f"{out}: expected a name that ends in .safetensors")
        if out.exists() and not overwrite:
            raise InputError(f"{out}: exists already; give another name, or --overwrite to replace it")
    path = find_weights(file)
    content = read_weights(path)
    print(_describe(path, content))
    if out is not None:
        detector = load_detector(path)
        if mix is not None:
            detector = mixed(detector, load_detector(mix), share, content.config.name)
        if new_memory:
            detector = with_fresh_memory(detector, new_memory, f"{content.config.name} with {new_memory}")
        if widen:
            detector = widened(detector, f"{content.config.name}, widened")
        if least_score is not None:
            detector.config = replace(detector.config, score=least_score)
        save_detector(detector, out, training=content.training, half=half)
        print(f"\n{out}: {out.stat().st_size / 1e6:.1f} MB")


def _describe(path: Path, content: "Weights") -> str:
    from saccade.model.detector import Detector

    config = content.config
    backbone, memory = config.backbone, config.backbone.memory
    names = {name for name, _ in Detector(config).named_parameters()}
    parameters = sum(value.numel() for name, value in content.tensors.items() if name in names)
    rows = {
        "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB, {'published checkpoint' if content.kind == 'published' else 'saccade'}",
        "model": f"{config.name}, {parameters:,} parameters",
        "stages": f"{', '.join(map(str, backbone.dims))} channels, {backbone.mixing}, memory {', '.join(dict.fromkeys(backbone.memories))}",
        "classes": ", ".join(config.classes),
        "score": "" if config.score is None else f"boxes from {config.score:g} on are shown",
        "window": f"{config.window_us / 1000:g} ms in {config.bins} bins, histogram {config.histogram}",
        "input": f"sides padded to multiples of {backbone.multiple}" + ("" if config.halved == "no" else ", sensor at half resolution"),
        "memory": f"{memory.discretisation}, band limit {memory.bandlimit}" if set(backbone.memories) & {"s5", "s4d"} else "",
        "notes": config.notes,
        **{name: str(value) for name, value in content.training.items()},
    }
    return "\n".join(f"{name:<12} {value}" for name, value in rows.items() if value)
