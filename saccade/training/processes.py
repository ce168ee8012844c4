"""ENVIRONMENT -> PROCESSES that train together: one alone, torchrun's, srun's or Ray's; who has which lanes; small sums over all."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from saccade.types import InputError

TIMEOUT_S = 3600.0  # of every wait for another process: a validation may take long in one of them


class ProcessLost(InputError):
    """Another process of the training is gone, or doesn't answer. Those that are left may start again from the last checkpoint."""


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1  # processes on this machine
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def add(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sums over all processes, in one message."""
        if self.world == 1 or not tensors:
            return list(tensors)
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def lanes(self, batch: int) -> range:
        """Those of the BATCH lanes that this process has: equal shares, or some with one more."""
        return range(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in every one of them."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """The processes that the environment names, connected while the block runs; gradients over NCCL on GPUs, all else over gloo."""
    place = from_environment(os.environ)
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("training: device=cuda, but torch finds no GPU; use device=cpu, or install torch with CUDA")
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    chosen = torch.device("cuda", place["local_rank"]) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(chosen)
    processes = Processes(place["rank"], place["world"], place["local_rank"], place["local_world"], chosen)
    if processes.world == 1:
        yield processes
        return
    with _explained(processes), nullcontext() if dist.is_initialized() else _connected(place, on_gpu):
        yield processes


@contextmanager
def _connected(place: dict[str, Any], on_gpu: bool) -> Iterator[None]:
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method=f"tcp://{place['address']}:{place['port']}" if "address" in place else "env://",
            rank=place["rank"],
            world_size=place["world"],
            timeout=timedelta(seconds=TIMEOUT_S),
        )
    except RuntimeError as error:
        raise _lost(
            place["rank"], place["world"], "didn't find the others", error, "do all run, and reach the first one's host?"
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _explained(processes: Processes) -> Iterator[None]:
    """Torch's errors of a process that is gone or late tell of sockets and operations."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            lost = f"lost another one, or waited for it for {TIMEOUT_S / 60:g} minutes"
            raise _lost(processes.rank, processes.world, lost, error, "what does that one say?") from error
        raise


def _lost(rank: int, world: int, what: str, error: RuntimeError, mend: str) -> ProcessLost:
    reason = " ".join(str(error).split())
    return ProcessLost(
        f"training: process {rank} of {world} {what} ({reason:.300}); {mend} The same command goes on from the last checkpoint"
    )


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """torchrun's variables win; srun's are used without them; else this process is alone."""
    try:
        if "RANK" in environment and "WORLD_SIZE" in environment:
            world = int(environment["WORLD_SIZE"])
            local = int(environment.get("LOCAL_RANK", 0)), int(environment.get("LOCAL_WORLD_SIZE", world))
            return {"rank": int(environment["RANK"]), "world": world, "local_rank": local[0], "local_world": local[1]}
        world = int(environment.get("SLURM_STEP_NUM_TASKS", 1))  # of srun's step: in a batch script itself there is none
        if world > 1:
            return {
                "rank": int(environment["SLURM_PROCID"]),
                "world": world,
                "local_rank": int(environment.get("SLURM_LOCALID", 0)),
                "local_world": int(re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))[0]),  # type: ignore[index]
                "address": environment.get("MASTER_ADDR") or first_host(environment["SLURM_STEP_NODELIST"]),
                "port": int(environment.get("MASTER_PORT") or 20_000 + int(environment.get("SLURM_JOB_ID", 0)) % 20_000),
            }
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"training: the variables of torchrun or srun are incomplete ({error}); start with torchrun or srun") from error
    return {"rank": 0, "world": 1, "local_rank": 0, "local_world": 1}


def first_host(nodes: str) -> str:
    """The first name of SLURM's list, e.g. gpu[07-09,12],big1 -> gpu07."""
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)", nodes)
    if not found:
        raise ValueError(f"no host in SLURM_STEP_NODELIST={nodes!r}")
    return found[1] + (found[2] or "") + found[3]
