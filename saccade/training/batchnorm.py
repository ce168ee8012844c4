"""BATCH NORM over all processes: the same statistics and gradients as one process with all frames. torch's own needs CUDA."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class SharedBatchNorm(nn.BatchNorm2d):
    """Its state dict is BatchNorm2d's. Processes may have different numbers of frames, even none. Every process must call it."""

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
    """Passes over the maps are torch's own fused ones, given the statistics of all; only what couples the processes is added here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count = x.numel() / x.shape[1]
        nothing = x.new_zeros(x.shape[1])
        spread, mean = torch.var_mean(x, (0, 2, 3), correction=0) if count else (nothing, nothing)
        counts, means, spreads = _gather(torch.cat([x.new_tensor([count]), mean, spread])).split([1, len(mean), len(mean)], 1)
        # Of parts with their own means: squares of one sum would cancel in float32.
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
        # The parameters' own gradients stay this process's part: the loop adds them up with all others.
        return through.addcmul_(x, tilt[:, None, None]).add_(shift[:, None, None]), weight_gradient, bias_gradient, None


def _gather(row: Tensor) -> Tensor:
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return torch.stack(rows)


def share_batch_norms(module: nn.Module) -> None:
    """Make the batch norms inside count all processes; parameters and buffers stay the same tensors."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            shared = SharedBatchNorm(child.num_features, child.eps, child.momentum)
            shared._parameters, shared._buffers = child._parameters, child._buffers
            setattr(module, name, shared.train(child.training))
        else:
            share_batch_norms(child)
