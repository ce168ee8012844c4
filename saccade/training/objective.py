"""BATCH + STATE -> GRADIENTS: the loss of every labelled frame of all processes, divided once by the number of positives of all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from saccade.datasets.loader import Batch
from saccade.detection.loss import loss
from saccade.model.detector import Detector
from saccade.model.temporal.antialias import h2_norm
from saccade.model.values import State, detach, join_states, pick, reset
from saccade.training.processes import Processes
from saccade.training.settings import TrainingSettings


@dataclass(frozen=True)
class Learned:
    """What one step reports; equal in every process."""

    terms: dict[str, float]  # of the loss, per positive
    positives: int
    labelled: int  # frames
    stop: bool  # some process was asked to stop


def slots(batch: Batch, first: int, last: int) -> Batch:
    """The clips FIRST to LAST of a batch."""
    slot = batch.labelled.nonzero()[:, 1]
    kept = (slot >= first) & (slot < last)
    counts = torch.tensor(batch.counts, dtype=torch.int64, device=kept.device)
    rows = torch.repeat_interleave(kept, counts)
    return replace(
        batch,
        frames=batch.frames[:, first:last],
        dt=batch.dt[:, first:last],
        is_first=batch.is_first[first:last],
        labelled=batch.labelled[:, first:last],
        boxes=batch.boxes[rows],
        classes=batch.classes[rows],
        counts=tuple(counts[kept].tolist()),
        names=batch.names[first:last],
        ends_us=batch.ends_us[:, first:last],
    )


def parts(batch: Batch, count: int) -> Iterator[tuple[int, int]]:
    """Where the COUNT parts of a batch begin and end."""
    clips = batch.frames.shape[1]
    return pairwise(range(0, clips + 1, clips // count))


def learn(
    detector: Detector, batch: Batch, state: State, settings: TrainingSettings, processes: Processes, stop: bool = False
) -> tuple[Learned, State]:
    """Leave in every parameter's `grad` the gradient over all processes, and return the state after the batch.

    Sums are exchanged, not means: so it doesn't matter how the clips are spread over processes and parts (but for batch norms and parts).
    """
    parameters = list(detector.parameters())
    for parameter in parameters:
        parameter.grad = None
    sums: dict[str, Tensor] = {}
    states = []
    for first, last in parts(batch, settings.accumulation):
        part = slots(batch, first, last) if settings.accumulation > 1 else batch
        memory = tuple(tuple(tensor[first:last] for tensor in layer) for layer in state)
        terms, memory = _learn_part(detector, part, memory, settings, processes)
        states.append(memory)
        sums = {name: sums[name] + value if name in sums else value for name, value in terms.items()}
    # One message: sums of this process, whether it was asked to stop, its gradients. They come back in this order, summed over processes.
    asked = torch.tensor(float(stop), device=batch.frames.device)
    own_gradients = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters]
    added = iter(processes.add([*(value.float() for value in sums.values()), asked, *own_gradients]))
    totals = {name: float(next(added)) for name in sums}
    stopping = bool(next(added) > 0)
    positives, labelled = totals.pop("positives"), totals.pop("labelled")
    for parameter, gradient in zip(parameters, torch._foreach_div(list(added), max(positives, 1.0)), strict=True):
        parameter.grad = gradient
    means = {name: value / max(positives, 1.0) for name, value in totals.items()}
    if settings.h2_weight:
        norm = settings.h2_weight * _h2(detector, settings.h2_omega_min)
        norm.backward()
        means["h2"] = float(norm.detach())
        means["total"] = means.get("total", 0.0) + means["h2"]
    return Learned(means, int(positives), int(labelled), stopping), join_states(states)


def _learn_part(
    detector: Detector, batch: Batch, state: State, settings: TrainingSettings, processes: Processes
) -> tuple[dict[str, Tensor], State]:
    """Backward of the summed loss of this process; where no process has a label, the state is carried and nothing is learned."""
    labelled = batch.labelled.sum().float()
    device = batch.frames.device.type
    with torch.autocast(device, torch.bfloat16, enabled=settings.precision == "bf16"):
        pyramid, state = detector.encode(batch.frames, reset(state, batch.is_first), batch.dt)
        if not float(processes.add([labelled])[0]):
            zero = torch.zeros((), device=batch.frames.device)
            names = ("iou", "objectness", "class", *(["l1"] if settings.l1 else []), "total", "positives", "labelled")
            return dict.fromkeys(names, zero), detach(state)
        predictions = detector.detect(pick(pyramid, batch.labelled))
    found = loss(predictions, batch.targets, l1=settings.l1)
    positives, total = found.positives.to(labelled), found.total
    scale = positives.clamp(min=1)
    (total * scale).backward()
    terms = found.terms | {"total": total}
    return {**{name: value.detach() * scale for name, value in terms.items()}, "positives": positives, "labelled": labelled}, detach(state)


def _h2(detector: Detector, omega_min: float) -> Tensor:
    """Over all stages whose memory is a linear system with a transfer function."""
    memories: list[Any] = [getattr(stage.memory, "memory", stage.memory) for stage in detector.backbone.stages]
    norms = [h2_norm(memory.transfer(), omega_min) for memory in memories if hasattr(memory, "transfer")]
    return torch.stack(norms).sum() if norms else torch.zeros((), requires_grad=True)
