"""SETTINGS + DATA SET -> what a training would take, before a machine is booked: memory, frames per second, hours. An estimate.

Measured here: how quickly this machine's processor reads the data, and how many bytes a frame leaves behind for the backward. Counted: the
operations of a frame. Assumed: that a GPU does 40 % of its peak, and 2 of 3 operations of a step are in the backward.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saccade.datasets.lanes import Lanes
from saccade.datasets.loader import collate
from saccade.datasets.recording import Dataset, Sampling
from saccade.model.detector import Detector
from saccade.training.settings import GpuName, TrainingSettings
from saccade.training.start import build_detector
from saccade.types import InputError

USE = 0.4  # of a GPU's peak
SPARE = 1.25  # memory of the backward itself, of libraries, and what the allocator can't use
PROCESS_MB = 500  # of a process that reads ahead: Python, numpy, torch
AHEAD = 3  # batches of each: two wait, one is being made


@dataclass(frozen=True)
class Gpu:
    """Of the makers' data sheets: dense, without sparsity."""

    fp32_tflops: float
    bf16_tflops: float
    memory_gb: float


GPUS: dict[GpuName, Gpu] = {
    "a100": Gpu(19.5, 312.0, 80.0),
    "h100": Gpu(67.0, 989.0, 80.0),
    "l40s": Gpu(91.6, 362.0, 48.0),
    "rtx4090": Gpu(82.6, 165.0, 24.0),
    "rtx3090": Gpu(35.6, 71.0, 24.0),
}


@dataclass(frozen=True)
class Plan:
    """Of one training; rates in frames per second."""

    settings: TrainingSettings
    gpu: GpuName
    gpus: int
    parameters: int
    size: tuple[int, int]  # width, height of a padded frame
    labelled: float  # share of the frames that are learned from
    read_rate: float  # of one process that reads ahead, by the clock
    read_rate_alone: float  # by its processor time: with nothing beside it, and a disk that is fast enough
    frame_flops: float  # of one frame, forward and backward
    weights_bytes: float  # with gradients, moments and average
    stored_bytes: float  # what a step keeps for its backward, on one GPU
    batch_bytes: float  # one batch of one GPU

    @property
    def frames(self) -> int:
        return self.settings.batch * self.settings.length

    @property
    def eaten_rate(self) -> float:
        """What one GPU would take."""
        peak = GPUS[self.gpu].bf16_tflops if self.settings.precision == "bf16" else GPUS[self.gpu].fp32_tflops
        return USE * peak * 1e12 / self.frame_flops

    @property
    def memory_gb(self) -> float:
        return (self.weights_bytes + SPARE * self.stored_bytes + 2 * self.batch_bytes) / 1e9

    @property
    def steps_per_s(self) -> float:
        return self.gpus * min(self.eaten_rate, max(self.settings.workers, 1) * self.read_rate) / self.frames

    @property
    def hours(self) -> float:
        return self.settings.steps / self.steps_per_s / 3600

    def table(self) -> str:
        """For people."""
        settings, enough = self.settings, GPUS[self.gpu].memory_gb >= self.memory_gb
        wanted = max(1, -int(-self.eaten_rate // self.read_rate))
        limit = "the GPUs" if self.eaten_rate <= settings.workers * self.read_rate else f"reading: {wanted} workers each would keep up"
        fits = "fits" if enough else "does NOT fit: try --recompute, --precision bf16, --accumulation 2, or more GPUs"
        ram_gb = self.gpus * settings.workers * (PROCESS_MB / 1e3 + AHEAD * self.batch_bytes / 1e9)
        rows = {
            "model": f"{settings.model}, {self.parameters:,} parameters, frames of {self.size[0]} x {self.size[1]}",
            "step": f"{settings.batch} clips of {settings.length} frames, {self.labelled:.0%} labelled, {settings.precision}"
            + (", recomputed" if settings.recompute else "")
            + f", on {self.gpus} x {self.gpu}",
            "memory": f"{self.memory_gb:.1f} GB of {GPUS[self.gpu].memory_gb:.0f} on each GPU, {fits}",
            "read": f"{self.read_rate:,.0f} frames/s by one worker of this machine ({self.read_rate_alone:,.0f} by processor time), "
            f"{settings.workers} for each GPU: {settings.workers * self.read_rate:,.0f}; {ram_gb:.1f} GB of main memory",
            "eaten": f"{self.eaten_rate:,.0f} frames/s by one GPU: {self.frame_flops / 1e9:.0f} GFLOP a frame at {USE:.0%} of its peak",
            "speed": f"{self.steps_per_s:.2f} steps/s, limited by {limit}",
            "time": f"{self.hours:,.1f} hours for {settings.steps:,} steps, without validations",
        }
        lines = [f"{name:<7} {text}" for name, text in rows.items()]
        return "\n".join([*lines, "An estimate: reading was measured here, the GPU's part is counted operations, and none was used."])


def plan_training(training: Dataset, settings: TrainingSettings, gpu: GpuName = "a100", gpus: int = 1, seconds: float = 5.0) -> Plan:
    """Read clips of TRAINING for about SECONDS, and run one frame on this processor."""
    if gpu not in GPUS:
        raise InputError(f"plan: gpu={gpu!r} isn't known; expected {', '.join(GPUS)}")
    if gpus < 1 or settings.batch // gpus < settings.accumulation:
        raise InputError(f"plan: batch={settings.batch} can't be shared by {gpus} GPUs in {settings.accumulation} parts")
    detector = build_detector(settings, training)
    lanes = Lanes(training, Sampling.of(detector.config), settings.lanes, lanes=settings.batch, length=settings.length, seed=settings.seed)
    height, width = detector.config.backbone.padded(lanes.height, lanes.width)
    read_rate, read_rate_alone, labelled = _reading(lanes, detector.config.backbone.multiple, seconds)
    frames = torch.zeros(1, 1, detector.config.backbone.channels, height, width, dtype=torch.uint8)
    frames[..., ::7, ::7] = 1  # a fiftieth of the pixels, as in a real frame
    clips = -(-settings.batch // gpus)
    encoded, detected = _stored_bytes(detector, frames, settings)
    parameters = sum(parameter.numel() for parameter in detector.parameters())
    return Plan(
        settings=settings,
        gpu=gpu,
        gpus=gpus,
        parameters=parameters,
        size=(width, height),
        labelled=labelled,
        read_rate=read_rate,
        read_rate_alone=read_rate_alone,
        frame_flops=_flops(detector, frames, labelled, settings.recompute),
        weights_bytes=4.0 * parameters * (5 if settings.average else 4),  # weight, gradient, two moments, average
        stored_bytes=(encoded + labelled * detected) * -(-clips // settings.accumulation) * settings.length,
        batch_bytes=float(frames.numel() * clips * settings.length),
    )


def _reading(lanes: Lanes, multiple: int, seconds: float) -> tuple[float, float, float]:
    """(frames per second that one process reads, cuts, augments and joins, by the clock and by processor time; share that is labelled)."""
    collate([lanes.clip(0, 0)], lanes.height, lanes.width, multiple)  # compiles, and writes the index of the recording
    started, busy, frames, labelled, step = time.perf_counter(), time.process_time(), 0, 0, 0
    while step == 0 or time.perf_counter() - started < seconds:
        for lane in range(min(lanes.lanes, 4)):
            clip = lanes.clip(lane, step)
            collate([clip], lanes.height, lanes.width, multiple)
            frames += len(clip.frames)
            labelled += int(clip.labelled.sum())
        step += 1
    return frames / (time.perf_counter() - started), frames / (time.process_time() - busy), labelled / frames


def _stored_bytes(detector: Detector, frames: Tensor, settings: TrainingSettings) -> tuple[float, float]:
    """Of one frame, what the backward of the backbone and that of neck and head need. Measured; bf16 is taken as half.

    With `recompute` that is the input of every stage, and all of the largest one while its turn has come.
    """
    detector.backbone.recompute = False
    whole, pyramid = _kept(lambda: detector.encode(frames, detector.initial_state(frames))[0])
    # Off the CPU, the first convolution keeps its counts as floats; the CPU's keeps the bytes.
    whole += 4.0 * frames.numel()
    if settings.recompute:
        detector.backbone.recompute = True
        inputs, _ = _kept(lambda: detector.encode(frames, detector.initial_state(frames))[0])
        detector.backbone.recompute = False
        largest = max(_stage_bytes(detector, frames, stage) for stage in range(len(detector.backbone.stages)))
        whole = inputs + largest + 4.0 * frames.numel()
    fine, middle, coarse = (level.detach() for level in pyramid)
    ends, _ = _kept(lambda: detector.detect((fine, middle, coarse)))
    share = 0.5 if settings.precision == "bf16" else 1.0
    return share * whole, share * ends


def _stage_bytes(detector: Detector, frames: Tensor, index: int) -> float:
    config, stage = detector.backbone.config, detector.backbone.stages[index]
    scale = (1, 4, 8, 16)[index]
    height, width = frames.shape[-2] // scale, frames.shape[-1] // scale
    x = frames if index == 0 else torch.zeros(1, 1, config.dims[index - 1], height, width)
    state, partition = detector.initial_state(frames)[index], (frames.shape[-2] // config.multiple, frames.shape[-1] // config.multiple)
    return _kept(lambda: stage(x, state, torch.ones(1, 1), partition))[0]


def _kept(work: Callable[[], Any]) -> tuple[float, Any]:
    """(bytes that autograd keeps of what WORK does, without parameters; its result)."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = work()
    return float(sum(tensor.untyped_storage().nbytes() for tensor in kept.values())), result


def _flops(detector: Detector, frames: Tensor, labelled: float, recompute: bool) -> float:
    """Of one frame, forward and backward; counted in the products of a real one, with float counts: bytes take a way of the CPU's own."""
    own = {
        torch.ops.mkldnn._linear_pointwise: lambda x, weight, *_, **__: 2 * prod(x) * weight[0],
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: (
            2 * prod(query) * key[-2] + 2 * prod(query[:-1]) * prod(value[-2:])
        ),
    }
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=own) as counter:
        detector(frames.float(), detector.initial_state(frames))
    counts = {name.rpartition(".")[2]: sum(operations.values()) for name, operations in counter.get_flop_counts().items()}
    return (4 if recompute else 3) * counts["backbone"] + 3 * labelled * (counts["neck"] + counts["head"])
