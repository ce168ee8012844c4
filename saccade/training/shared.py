"""GRADIENTS AND BATCH NORMS of all processes: torch's DistributedDataParallel, and a batch norm over the frames of all of them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from saccade.model.detector import Detector
from saccade.training.processes import Processes


@contextmanager
def sharing_gradients(detector: Detector, processes: Processes) -> Iterator[nn.Module]:
    """The detector whose backward leaves the mean of all processes' gradients, sent in buckets while the rest is still being computed.

    Collectives are matched by their order. It is the same in all processes, batch norms' included: autograd runs equal graphs in the same
    order, and a process without labels has the same graph. To be left before the processes part.
    """
    if processes.world == 1:
        yield detector
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of another name for broadcast_buffers, which earlier versions don't know
        network = DistributedDataParallel(
            detector,
            broadcast_buffers=False,  # equal anyway, or each process's own
            gradient_as_bucket_view=True,
            static_graph=True,  # every step uses the same parameters, also one without labels
        )
    try:
        _sort_buckets(network, detector, processes.device)
        yield network
    finally:
        # Torch's reducer, if it is the last to let go of a process group, waits with the GIL for threads of the group that may need it.
        network.reducer = network.logger = None  # type: ignore[assignment]


def _sort_buckets(network: DistributedDataParallel, detector: Detector, device: torch.device) -> None:
    """Two backwards of an empty frame: after the second torch sorts parameters into other buckets, for good.

    Sums of more than two processes may then be rounded otherwise, and a resumed training is to round as one that was never stopped.
    """
    config = detector.config.backbone
    frames = torch.zeros(1, 1, config.channels, config.multiple, config.multiple, dtype=torch.uint8, device=device)
    network.eval()  # batch norms count nothing
    for _ in range(2):
        predictions, _ = network(frames, detector.initial_state(frames))
        torch.stack([column.sum() for column in predictions[:3]]).sum().backward()
    for parameter in detector.parameters():
        parameter.grad = None
    network.train()


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes: statistics and gradients as of one process with all frames; if not TOGETHER, over this one's.

    Its state dict is BatchNorm2d's. Processes may have different numbers of frames, even none, and if none has any, the statistics stay.
    Every process must call it. torch's SyncBatchNorm needs CUDA, and waits for the GPU in every layer, of which s5-vit-b has 47: it drops
    processes without frames, and asks the GPU which those are. Here their share is zero.
    """

    together = True

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        if not self.together:
            return super().forward(x) if len(x) else x + 0 * (self.weight + self.bias)[:, None, None]
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.autocast(x.device.type, enabled=False):
            y, mean, variance, count = _Normalise.apply(x.float(), self.weight, self.bias, self.eps)
            with torch.no_grad():
                momentum = (0.1 if self.momentum is None else self.momentum) * (count > 0)
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), momentum)
                self.num_batches_tracked.add_(count > 0)
        return y.to(x.dtype)


class _Normalise(torch.autograd.Function):
    """torch's own fused passes over the maps, with the statistics of all processes; only what couples the processes is added here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count = x.numel() / x.shape[1]
        nothing = x.new_zeros(x.shape[1])
        spread, mean = torch.var_mean(x, (0, 2, 3), correction=0) if count else (nothing, nothing)
        counts, means, spreads = _gather(torch.cat([x.new_full((1,), count), mean, spread])).split([1, len(mean), len(mean)], 1)
        # Combined from the means and variances of the parts: a sum of squares would cancel in float32.
        frames = counts.sum()
        total = frames.clamp(min=1)
        mean = (counts * means).sum(0) / total
        variance = (counts * (spreads + (means - mean).square())).sum(0) / total
        ctx.save_for_backward(x, weight, mean, variance, total)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance, frames)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance, frames

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
        # The parameters' own gradients stay this process's part: they are added up over the processes with all others.
        return through.addcmul_(x, tilt[:, None, None]).add_(shift[:, None, None]), weight_gradient, bias_gradient, None


def _gather(row: Tensor) -> Tensor:
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return torch.stack(rows)


def share_batch_norms(module: nn.Module, together: bool = True) -> None:
    """Replace the batch norms inside by `SharedBatchNorm`; parameters and buffers stay the same tensors."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            shared = SharedBatchNorm(child.num_features, child.eps, child.momentum)
            shared.together = together
            shared._parameters, shared._buffers = child._parameters, child._buffers
            setattr(module, name, shared.train(child.training))
        else:
            share_batch_norms(child, together)
