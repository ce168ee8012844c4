"""RUN <-> last.pt: all that the next step depends on, written whole or not at all, read without running code."""

import copy
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from saccade.config import DetectorConfig
from saccade.files import differences, replacing
from saccade.model.detector import Detector
from saccade.model.values import State, change, join_states
from saccade.training.processes import Processes
from saccade.training.settings import TrainingSettings
from saccade.types import InputError
from saccade.weights.load import check_checkpoint

FORMAT = 1
LAST = "last.pt"
log = logging.getLogger("saccade")


class MovingAverage:
    """A second detector whose weights and batch statistics follow those of the first; it scores better than the last step's weights."""

    def __init__(self, detector: Detector) -> None:
        self.detector = copy.deepcopy(detector).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, detector: Detector, decay: float) -> None:
        pairs = list(zip(_tensors(self.detector), _tensors(detector), strict=True))
        floats = [(mine, new) for mine, new in pairs if mine.is_floating_point()]
        torch._foreach_lerp_([mine for mine, _ in floats], [new for _, new in floats], 1 - decay)
        for mine, new in pairs:
            if not mine.is_floating_point():
                mine.copy_(new)


def _tensors(detector: Detector) -> Iterator[torch.Tensor]:
    """All that a weights file holds."""
    return chain(detector.parameters(), detector.buffers())


@dataclass(eq=False)
class TrainingRun:
    """What changes from step to step."""

    detector: Detector
    optimiser: torch.optim.Optimizer
    average: MovingAverage | None
    state: State | None = None  # of this process's lanes
    step: int = 0
    best: float = -1.0  # validation mAP of best.safetensors

    @property
    def result(self) -> Detector:
        return self.detector if self.average is None else self.average.detector


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """After STEP steps. Lanes and schedules need no more than that number."""

    step: int
    detector: dict[str, Any]
    average: dict[str, Any] | None
    optimiser: dict[str, Any]
    state: State  # of all lanes, of all processes
    random: torch.Tensor  # torch's generator
    best: float  # validation mAP of best.safetensors, -1 before the first
    binding: dict[str, Any]  # settings, model and data that a resumed run must share


def save_checkpoint(run: TrainingRun, out: Path, processes: Processes, binding: dict[str, Any]) -> None:
    """Into OUT/last.pt. Every process must call it; the first one writes the states of all."""
    assert run.state is not None
    states = processes.gather(change(run.state, lambda tensor: tensor.cpu()))
    if processes.rank:
        return
    checkpoint = Checkpoint(
        step=run.step,
        detector=run.detector.state_dict(),
        average=None if run.average is None else run.average.detector.state_dict(),
        optimiser=run.optimiser.state_dict(),
        state=join_states(states),
        random=torch.get_rng_state(),
        best=run.best,
        binding=binding,
    )
    values = {**vars(checkpoint), "binding": json.dumps(checkpoint.binding), "format": FORMAT}
    with replacing(out / LAST) as temporary, temporary.open("wb") as file:
        torch.save(values, file)  # of a path, torch wouldn't say why it couldn't be written
        file.flush()
        os.fsync(file.fileno())


def load_checkpoint(out: Path, binding: dict[str, Any]) -> Checkpoint | None:
    """The last checkpoint in OUT, if there is one; InputError if it belongs to a run with another BINDING."""
    path = out / LAST
    if not path.exists():
        return None
    try:
        check_checkpoint(path)
        values = torch.load(path, map_location="cpu", weights_only=True)
        version = values.pop("format")
        checkpoint = Checkpoint(**{**values, "binding": json.loads(values["binding"])})
    except Exception as error:  # torch raises anything on a damaged file
        raise InputError(f"{path}: can't be read ({error}); remove it to start anew, or give another folder") from error
    if version != FORMAT:
        raise InputError(f"{path}: written in format {version}, this saccade reads {FORMAT}; remove it to start anew")
    differing = differences(_with_newer(checkpoint.binding), json.loads(json.dumps(binding)))
    if differing:
        raise InputError(
            f"{out}: holds a training with other settings ({'; '.join(differing[:5])}); "
            "resume it with those, or give another folder for a new training"
        )
    return checkpoint


def _with_newer(binding: dict[str, Any]) -> dict[str, Any]:
    """BINDING of an earlier version, with the defaults of settings that it didn't have: what they stand for is what was done before."""
    defaults = {**TrainingSettings().binding(), "config": asdict(DetectorConfig(name=""))}

    def filled(there: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
        both = {**default, **there}
        return {
            name: filled(value, default[name]) if isinstance(value, dict) and isinstance(default.get(name), dict) else value
            for name, value in both.items()
        }

    return filled(binding, json.loads(json.dumps(defaults)))


def resume(run: TrainingRun, out: Path, settings: TrainingSettings, processes: Processes, binding: dict[str, Any]) -> None:
    """Continue RUN from OUT/last.pt, if it is there; each process takes the states of its own lanes, however many there were before."""
    found = load_checkpoint(out, binding)
    steps = processes.gather(None if found is None else found.step)
    if len(set(steps)) > 1:
        raise InputError(f"training: processes found checkpoints of steps {steps}; the output folder must be shared by all nodes")
    if found is None:
        return
    run.detector.load_state_dict(found.detector)
    run.optimiser.load_state_dict(found.optimiser)
    if run.average is not None and found.average is not None:
        run.average.detector.load_state_dict(found.average)
    mine = processes.lanes(settings.batch)
    run.state = change(found.state, lambda tensor: tensor[mine.start : mine.stop].to(processes.device))
    run.step, run.best = found.step, found.best
    torch.set_rng_state(found.random)
    if processes.rank == 0:
        log.warning("going on after step %d of %d", run.step, settings.steps)
