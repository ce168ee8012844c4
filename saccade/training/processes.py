"""ENVIRONMENT -> PROCESSES that train together: one alone, torchrun's, or srun's; sums and batch norms over all of them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.types import InputError


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
    if processes.world == 1 or dist.is_initialized():
        yield processes
        return
    address = f"tcp://{place['address']}:{place['port']}" if "address" in place else "env://"
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        init_method=address,
        rank=processes.rank,
        world_size=processes.world,
        timeout=timedelta(minutes=60),  # a validation may take long on one of them
    )
    try:
        yield processes
    finally:
        dist.destroy_process_group()


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


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes: statistics and gradients as of one process with all frames. torch's own needs CUDA.

    Its state dict is BatchNorm2d's. Processes may have different numbers of frames, even none. Every process must call it.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.autocast(x.device.type, enabled=False):
            y, mean, variance, count = _Normalise.apply(x.float(), self.weight, self.bias, self.eps)
            with torch.no_grad():
                momentum = 0.1 if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), momentum)
                self.num_batches_tracked.add_(1)
        return y.to(x.dtype)


class _Normalise(torch.autograd.Function):
    """torch's own fused passes over the maps, with the statistics of all processes; only what couples the processes is added here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count = x.numel() / x.shape[1]
        nothing = x.new_zeros(x.shape[1])
        spread, mean = torch.var_mean(x, (0, 2, 3), correction=0) if count else (nothing, nothing)
        counts, means, spreads = _gather(torch.cat([x.new_tensor([count]), mean, spread])).split([1, len(mean), len(mean)], 1)
        # Combined from the means and variances of the parts: a sum of squares would cancel in float32.
        total = counts.sum().clamp(min=1)
        mean = (counts * means).sum(0) / total
        variance = (counts * (spreads + (means - mean).square())).sum(0) / total
        ctx.save_for_backward(x, weight, mean, variance, total)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance, total)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance, total = ctx.saved_tensors
        scale = (variance + ctx.eps).rsqrt()
        slope = gradients[0].float()
        if x.numel():
            through, weight_gradient, bias_gradient = torch.ops.aten.native_batch_norm_backward(
                slope, x, weight, mean, variance, None, None, False, ctx.eps, (True, True, True)
            )
        else:
            through, weight_gradient, bias_gradient = torch.zeros_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
        sums = torch.cat([bias_gradient, weight_gradient])
        dist.all_reduce(sums)
        along_bias, along_weight = sums.chunk(2)
        # weight scale (slope - mean of slope - normal x mean of slope normal), the last two as a line in x
        tilt = -weight * scale.square() * along_weight / total
        shift = -weight * scale * along_bias / total - tilt * mean
        # The parameters' own gradients stay this process's part: `learn` adds them up over the processes with all others.
        return through.addcmul_(x, tilt[:, None, None]).add_(shift[:, None, None]), weight_gradient, bias_gradient, None


def _gather(row: Tensor) -> Tensor:
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return torch.stack(rows)


def share_batch_norms(module: nn.Module) -> None:
    """Replace the batch norms inside by `SharedBatchNorm`; parameters and buffers stay the same tensors."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            shared = SharedBatchNorm(child.num_features, child.eps, child.momentum)
            shared._parameters, shared._buffers = child._parameters, child._buffers
            setattr(module, name, shared.train(child.training))
        else:
            share_batch_norms(child)
