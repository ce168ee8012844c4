"""Every setting of a training as a frozen dataclass, and what follows from them at a step; presets are functions. Needs no torch."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from math import isfinite, pi, sqrt
from typing import Any, Literal

from saccade.config import MemoryConfig
from saccade.datasets.augment import AugmentSettings
from saccade.datasets.lanes import LaneSettings
from saccade.types import InputError

GpuName = Literal["a100", "h100", "l40s", "rtx4090", "rtx3090"]  # those that `saccade train --plan` knows
RATE_BATCH = 8  # the batch that `learning_rate` is meant for
# a resumed run may change these
FREE = (
    "recompute", "compile", "workers", "threads", "device", "validate_every", "validate_recordings", "final_protocol", "checkpoint_every",
    "log",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MemoryChanges:
    """What the memory of a fresh detector has otherwise than its preset; weights that a training starts from keep theirs."""

    discretisation: Literal["preset", "zoh", "bilinear", "euler"] = "preset"
    """How the memory is sampled; published weights were trained with bilinear."""
    initialisation: Literal["preset", "legs", "inv", "lin"] = "preset"
    """Of the eigenvalues."""
    timescales: Literal["preset", "published", "clip"] = "preset"
    """Initial time constants; clip: 1 to 30 windows, which short clips can train."""
    blocks: int = 0
    """S5: equal blocks of the initial state matrix (the paper's J); 0 = the preset's."""
    step_limits: tuple[float, ...] = ()
    """Lowest and highest initial timescale (the paper's delta_min and delta_max), as `0.001 0.1`; empty = the preset's."""
    bandlimit: float | None = None
    """Fraction of the Nyquist frequency that passes (the paper's alpha), 0 = no limit; None = the preset's."""

    def __post_init__(self) -> None:
        if len(self.step_limits) not in (0, 2):
            raise InputError(f"training: memory.step_limits={self.step_limits}: expected two numbers, such as 0.001 0.1")
        if self.bandlimit is not None and not 0 <= self.bandlimit < float("inf"):
            raise InputError(f"training: memory.bandlimit={self.bandlimit} must be 0 or more")
        self.of(MemoryConfig())  # refuses the rest

    def of(self, preset: MemoryConfig) -> MemoryConfig:
        named = {name: getattr(self, name) for name in ("discretisation", "initialisation", "timescales")}
        changes: dict[str, Any] = {name: value for name, value in named.items() if value != "preset"}
        changes |= {"blocks": self.blocks} if self.blocks else {}
        changes |= {"step_limits": self.step_limits} if self.step_limits else {}
        changes |= {"bandlimit": self.bandlimit or None} if self.bandlimit is not None else {}
        return replace(preset, **changes)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What decides the weights, and how often they are validated and saved."""

    model: str = "s5-vit-nano"
    """Preset of a detector, or a weights file or name to start from (whose own split, halved and histogram are kept)."""
    split: int = 1
    """Attention windows per 32 x 32 pixels and axis: 2 for 1 Mpx."""
    halved: Literal["no", "events", "published"] = "no"
    """Frames of half the resolution: by event coordinates, or odd pixels only, as published. Stored frames must match."""
    histogram: Literal["exact", "published"] = "exact"
    """How events are counted; published for frames that the published code wrote."""
    memory: MemoryChanges = field(default_factory=MemoryChanges)
    steps: int = 600
    """Steps of the optimiser."""
    batch: int = 8
    """Clips per step, over all processes together; also the number of lanes."""
    length: int = 10
    """Frames per clip; backpropagation stops at its start, the state is carried on."""
    learning_rate: float = 2e-4
    """Highest learning rate at a batch of 8; scaled with the square root of the batch."""
    warmup: float = 0.005
    """Fraction of the steps during which the learning rate rises."""
    start_division: float = 20.0
    """Learning rate at the start: the highest divided by this."""
    end_division: float = 10_000.0
    """Learning rate at the end: the highest divided by this."""
    weight_decay: float = 0.0
    """Of AdamW."""
    gradient_clip: float = 1.0
    """Gradients are clipped to this absolute value; 0 = no limit."""
    average: float = 0.9998
    """Decay of the moving average of the weights, lower in the first steps; 0 = no average."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the forward pass; weights, the memory's state, gradients and the optimiser stay in fp32."""
    tf32: Literal["auto", "on", "off"] = "auto"
    """Products on a GPU in TF32, with 10 bits of mantissa. Auto: on, unless S4 or S4D advance their state by such products."""
    recompute: bool = False
    """Activation checkpointing: keep only the input of each stage and compute the rest again in the backward, to save memory."""
    compile: bool = False
    """Compile a graph of the backbone (torch.compile): the first step takes minutes, the others less."""
    h2_weight: float = 0.0
    """Weight of the memories' H2 norm in the loss (paper 3.3.2; it gives no value)."""
    h2_omega_min: float = pi
    """Lowest frequency of the norm, in radians per window; pi = Nyquist frequency of training."""
    l1: bool = False
    """Add YOLOX's L1 term, which the paper doesn't have."""
    accumulation: int = 1
    """Gradient accumulation: compute a batch in so many parts, to save memory. Batch norms then see one part."""
    share_batch_norms: bool = True
    """Synchronise batch norms over all processes; off saves two messages per norm and step."""
    lanes: LaneSettings = field(default_factory=LaneSettings)
    seed: int = 0
    """Random seed: for fresh weights, the order of recordings, clips and augmentation."""
    workers: int = 1
    """Data loader processes for each training process."""
    threads: int = 0
    """CPU threads; of each training process, 0 = cores divided by the training processes of this machine."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto: the GPU if there is one."""
    validate_every: int = 0
    """Steps between validations; 0 = only at the end."""
    validate_recordings: int = 0
    """Validate on only the first so many recordings; 0 = all."""
    final_protocol: Literal["none", "saccade", "prophesee"] = "none"
    """Score the weights of the last step once more, with this protocol and every box from 0.001 on: the number that papers print."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)
    """Loggers in addition to metrics.jsonl, which is always written."""

    def __post_init__(self) -> None:
        for name in ("split", "steps", "batch", "length", "accumulation", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"training: {name}={getattr(self, name)} must be at least 1")
        limits = ("weight_decay", "gradient_clip", "h2_weight", "h2_omega_min", "seed", "workers", "threads")
        for name in (*limits, "validate_every", "validate_recordings"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"training: {name}={getattr(self, name)} must be 0 or more")
        for name, most in (("batch", 1 << 16), ("length", 1 << 16), ("split", 32), ("workers", 1024), ("threads", 1024), ("seed", 1 << 63)):
            if getattr(self, name) > most:
                raise InputError(f"training: {name}={getattr(self, name)} must be at most {most}")
        if not (self.learning_rate > 0 and isfinite(self.learning_rate)):
            raise InputError(f"training: learning_rate={self.learning_rate} must be above 0")
        if not (0 <= self.warmup < 1 and 0 <= self.average < 1):
            raise InputError(f"training: warmup={self.warmup} and average={self.average} must be at least 0 and below 1")
        if not (1 <= self.start_division < float("inf") and 1 <= self.end_division < float("inf")):
            raise InputError(f"training: start_division={self.start_division}, end_division={self.end_division} must be at least 1")
        if self.batch % self.accumulation:
            raise InputError(f"training: batch={self.batch} can't be computed in accumulation={self.accumulation} equal parts")

    @property
    def highest_rate(self) -> float:
        return self.learning_rate * sqrt(self.batch / RATE_BATCH)

    def binding(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one that it continues."""
        return {name: value for name, value in asdict(self).items() if name not in FREE}

    def threads_of(self, processes_here: int) -> int:
        return self.threads or max(1, (os.cpu_count() or 1) // processes_here)


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """One cycle: linear rise to the highest rate during the warm-up, linear fall to the end (the paper's schedule).

    A function of the step alone, so that a resumed run needs no state of a schedule.
    """
    highest = settings.highest_rate
    start, end = highest / settings.start_division, highest / settings.end_division
    top = max(settings.warmup * settings.steps - 1, 0.0)  # the step at which torch's OneCycleLR has its highest rate
    last = max(settings.steps - 1.0, top)
    if step < top:
        return start + (highest - start) * step / top
    return highest + (end - highest) * ((step - top) / (last - top) if last > top else 0.0)


def average_decay(step: int, settings: TrainingSettings) -> float:
    """Rises with the number of steps: an average over more than a tenth of the training so far would include its beginning."""
    return min(settings.average, (1 + step) / (10 + step))


def gen1() -> TrainingSettings:
    """Gen1 as in the paper: 400,000 steps, batch 8, 21 frames, 2e-4; and a moving average of the weights, not in the published code."""
    return TrainingSettings(
        model="s5-vit-b",
        steps=400_000,
        batch=8,
        length=21,
        workers=8,
        validate_every=10_000,
        final_protocol="prophesee",
        checkpoint_every=1000,
    )


def gen1_published() -> TrainingSettings:
    """Gen1 as the published code trains: `gen1` with bilinear sampling, its event counts, and no average of the weights."""
    return _published(gen1())


def one_mpx() -> TrainingSettings:
    """1 Mpx with a batch of 24: 12 clips of 10 frames on each of two GPUs, for which 2e-4 scales to the paper's 3.5e-4.

    The paper says a batch of 12 and 3.5e-4, its code scales to 2.45e-4 at 12; which of these was run isn't known. `1mpx-published` has 12.
    """
    return replace(gen1(), split=2, halved="events", batch=24, length=10)


def one_mpx_published() -> TrainingSettings:
    """1 Mpx with the paper's batch of 12 and its 3.5e-4 (its code's 2.45e-4: --learning-rate 2e-4), sampled and counted as published.

    Frames are halved by keeping odd pixels, which drops three quarters of the events, as in the published frames.
    """
    return replace(_published(one_mpx()), batch=12, learning_rate=3.5e-4 / sqrt(12 / RATE_BATCH), halved="published")


def _published(settings: TrainingSettings) -> TrainingSettings:
    return replace(settings, memory=MemoryChanges(discretisation="bilinear"), histogram="published", average=0.0)


def synthetic() -> TrainingSettings:
    """Synthetic recordings on a CPU: half an hour of one core.

    Ten times the paper's learning rate because the training is short. Many short clips because neighbouring frames are nearly equal:
    after 425 steps 12 x 3 frames reach 18.7 mAP, 8 x 5 reach 15.5 (and 4 x 10, on other recordings, two thirds of 8 x 5).
    """
    return TrainingSettings(
        model="gs5-vit-nano",
        steps=3000,
        batch=12,
        length=3,
        learning_rate=1.63e-3,
        warmup=0.05,
        average=0.998,
        share_batch_norms=False,
        lanes=LaneSettings(augment=AugmentSettings(zoom=0.0)),
        validate_every=1000,
    )


def photos() -> TrainingSettings:
    """Photographs turned into events (`saccade simulate --photos`), on from the weights that come with saccade.

    The settings of the last part of `nano`. Clips of two frames, and many short recordings, because what lacks is variety: weights that
    had reached a loss of 5.4 on 577 recordings had 7.2 on new ones. Drawn streets beside them (`--also`) keep the memory of objects that
    stop. 90 minutes of one core that computes in bf16 (`--precision bf16`), longer in fp32.
    """
    augment = AugmentSettings(zoom=0.5, zoom_in=0.4, zoom_ordered=0.3, largest_in=1.4, largest_out=1.5, swap=0.5, thin=0.3)
    return replace(
        synthetic(), model="nano", steps=5200, length=2, learning_rate=8e-4, start_division=5.0, warmup=0.02, end_division=50.0,
        average=0.999, validate_every=0, validate_recordings=40, lanes=LaneSettings(augment=augment),
    )  # fmt: skip


presets: dict[str, Callable[[], TrainingSettings]] = {
    "gen1": gen1,
    "gen1-published": gen1_published,
    "1mpx": one_mpx,
    "1mpx-published": one_mpx_published,
    "synthetic": synthetic,
    "photos": photos,
}
