"""BATCH + STATE -> GRADIENTS: the loss of every labelled frame of all processes, divided once by the number of positives of all."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from saccade.datasets.loader import Batch
from saccade.detection.loss import loss
from saccade.model.detector import Detector
from saccade.model.temporal.antialias import h2_norm
from saccade.model.values import State, detach, join_states, reset
from saccade.training.processes import Processes
from saccade.training.settings import TrainingSettings


@dataclass(frozen=True)
class Learned:
    """What one step reports; equal in every process."""

    terms: dict[str, float]  # of the loss, per positive
    positives: int
    labelled: int  # frames
    stop: bool  # some process was asked to stop
    finite: bool  # the gradient


@dataclass(frozen=True, eq=False)
class Pending:
    """A step whose gradients are on their way: what it will report, still on the device."""

    names: tuple[str, ...]
    values: Tensor  # one of each name

    def read(self) -> Learned:
        """Wait for the device: the only time in a step."""
        found = dict(zip(self.names, self.values.tolist(), strict=True))
        positives, labelled, stop, finite = (found.pop(name) for name in ("positives", "labelled", "stop", "finite"))
        terms = {name: value / max(positives, 1.0) for name, value in found.items() if name != "h2"}
        if "h2" in found:
            terms |= {"h2": found["h2"], "total": terms["total"] + found["h2"]}
        return Learned(terms, int(positives), int(labelled), stop > 0, finite > 0)


def slots(batch: Batch, first: int, last: int) -> Batch:
    """The clips FIRST to LAST of a batch."""
    slot = batch.labelled.nonzero()[:, 1]
    kept = (slot >= first) & (slot < last)
    counts = torch.tensor(batch.counts, dtype=torch.int64)
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
    return pairwise(clips * part // count for part in range(count + 1))


def learn(
    network: nn.Module, batch: Batch, state: State, settings: TrainingSettings, processes: Processes, stop: bool = False
) -> tuple[Pending, State]:
    """Leave in every parameter's `grad` the gradient over all processes, and return the state after the batch. Waits for no device.

    NETWORK: a detector, or what `sharing_gradients` makes of it. Sums are exchanged, not means: so it doesn't matter how the clips are
    spread over processes and parts (but for batch norms and parts).
    """
    detector = cast(Detector, network.module if isinstance(network, DistributedDataParallel) else network)
    parameters = list(detector.parameters())
    for parameter in parameters:
        parameter.grad = None
    sums: dict[str, Tensor] = {}
    states = []
    for first, last in parts(batch, settings.accumulation):
        part = slots(batch, first, last) if settings.accumulation > 1 else batch
        memory = tuple(tuple(tensor[first:last] for tensor in layer) for layer in state)
        unfinished = isinstance(network, DistributedDataParallel) and last < batch.frames.shape[1]
        with network.no_sync() if unfinished else nullcontext():  # type: ignore[operator]
            terms, memory = _learn_part(network, part, memory, settings, processes)
        states.append(memory)
        sums = {name: sums[name] + value if name in sums else value for name, value in terms.items()}
    sums["stop"] = batch.frames.new_full((), float(stop), dtype=torch.float32)
    (totals,) = processes.add([torch.stack([value.float() for value in sums.values()])])
    found = dict(zip(sums, totals, strict=True))
    gradients = _gradients(parameters)
    # Means over processes of what is a sum in each of them, over the positives of all: the same as their sum over all positives.
    torch._foreach_div_(gradients, found["positives"].clamp(min=1) / processes.world)
    if settings.h2_weight:
        found["h2"] = _add_h2(detector, parameters, gradients, settings)
    found["finite"] = torch.stack(torch._foreach_norm(gradients, 1)).isfinite().all().float()
    return Pending(tuple(found), torch.stack(list(found.values()))), join_states(states)


def _learn_part(
    network: nn.Module, batch: Batch, state: State, settings: TrainingSettings, processes: Processes
) -> tuple[dict[str, Tensor], State]:
    """Backward of the summed loss of this process. Where there is no label, the state is carried and nothing is learned.

    One of several processes can't know without asking that there is none in any: it goes through all layers, with no frame.
    """
    device = batch.frames.device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
        memory = reset(state, batch.is_first)
        if processes.world == 1 and not batch.counts:
            with torch.no_grad():
                _, state = cast(Detector, network).encode(batch.frames, memory, batch.dt)
            names = ("iou", "objectness", "class", *(["l1"] if settings.l1 else []), "total", "positives", "labelled")
            return dict.fromkeys(names, torch.zeros((), device=device)), state
        predictions, state = network(batch.frames, memory, batch.dt, batch.labelled)
    found = loss(predictions, batch.targets, l1=settings.l1)
    scale, total = found.positives.clamp(min=1), found.total
    (total * scale).backward()
    terms = {name: value.detach() * scale for name, value in (found.terms | {"total": total}).items()}
    labelled = torch.full((), float(len(batch.counts)), device=device)
    return {**terms, "positives": found.positives, "labelled": labelled}, detach(state)


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    """Of all parameters: zero where nothing was learned, so that the optimiser treats all alike."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [cast(Tensor, parameter.grad) for parameter in parameters]


def _add_h2(detector: Detector, parameters: list[nn.Parameter], gradients: list[Tensor], settings: TrainingSettings) -> Tensor:
    """The weighted H2 norm, whose gradient, the same in every process, is added. Not by `backward`: that would send it again."""
    norm = settings.h2_weight * _h2(detector, settings.h2_omega_min)
    added = torch.autograd.grad(norm, parameters, allow_unused=True)
    pairs = [(total, more) for total, more in zip(gradients, added, strict=True) if more is not None]
    if pairs:
        torch._foreach_add_(*(list(column) for column in zip(*pairs, strict=True)))
    return norm.detach()


def _h2(detector: Detector, omega_min: float) -> Tensor:
    """Over all stages whose memory is a linear system with a transfer function."""
    memories: list[Any] = [getattr(stage.memory, "memory", stage.memory) for stage in detector.backbone.stages]
    norms = [h2_norm(memory.transfer(), omega_min) for memory in memories if hasattr(memory, "transfer")]
    return torch.stack(norms).sum() if norms else torch.zeros((), requires_grad=True, device=next(detector.parameters()).device)
