"""RUN <-> last.pt: all that the next step depends on, written whole or not at all, read without running code."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.files import replacing
from saccade.model.values import State
from saccade.types import InputError

FORMAT = 1
LAST = "last.pt"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """After STEP steps. The lanes need no more than that number; schedules neither."""

    step: int
    detector: dict[str, Any]
    average: dict[str, Any] | None
    optimiser: dict[str, Any]
    state: State  # of all lanes, of all processes
    random: torch.Tensor  # torch's generator
    best: float  # validation mAP of best.safetensors, -1 before the first
    binding: dict[str, Any]  # settings, model and data that a resumed run must share


def save_checkpoint(checkpoint: Checkpoint, out: Path) -> None:
    values = {**vars(checkpoint), "binding": json.dumps(checkpoint.binding), "format": FORMAT}
    with replacing(out / LAST) as temporary:
        torch.save(values, temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())


def load_checkpoint(out: Path, binding: dict[str, Any]) -> Checkpoint | None:
    """The last checkpoint in OUT, if there is one and it belongs to a run with the same BINDING."""
    path = out / LAST
    if not path.exists():
        return None
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
        version = values.pop("format")
        checkpoint = Checkpoint(**{**values, "binding": json.loads(values["binding"])})
    except Exception as error:  # torch raises anything on a damaged file
        raise InputError(f"{path}: can't be read ({error}); remove it to start anew, or give another folder") from error
    if version != FORMAT:
        raise InputError(f"{path}: written in format {version}, this saccade reads {FORMAT}; remove it to start anew")
    differing = list(_differences(checkpoint.binding, json.loads(json.dumps(binding))))
    if differing:
        raise InputError(
            f"{out}: holds a training with other settings ({'; '.join(differing[:5])}); "
            "resume it with those, or give another folder for a new training"
        )
    return checkpoint


def _differences(old: Any, new: Any, where: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for key in sorted({*old, *new}) for line in _differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    return [] if old == new else [f"{where}: there {old!r:.60}, here {new!r:.60}"]
