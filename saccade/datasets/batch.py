"""CLIPS -> BATCH: one slot per lane, zeros at the bottom and right, labels in the order in which the model's frames are picked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from saccade.datasets.clips import Clip
from saccade.detection.boxes import Target
from saccade.types import InputError


@dataclass(frozen=True, eq=False)
class Batch:
    """T frames of B clips. The labels are columns over all labelled frames: a tensor per frame would slow the way between processes."""

    frames: UInt8[Tensor, "T B channels height width"]
    dt: Float32[Tensor, "T B"]
    is_first: Bool[Tensor, "B"]  # reset the state of these slots before the clip
    labelled: Bool[Tensor, "T B"]
    boxes: Float32[Tensor, "n 4"]
    classes: Int64[Tensor, "n"]
    counts: tuple[int, ...]  # rows of every labelled frame, T before B
    names: tuple[str, ...]  # of the recordings
    ends_us: Int64[Tensor, "T B"]
    vanished: int = 0  # boxes that the augmentation left out

    @property
    def targets(self) -> list[Target]:
        """Of the labelled frames, T before B, as `pick` orders them."""
        parts = zip(self.boxes.split(self.counts), self.classes.split(self.counts), strict=True) if self.counts else ()
        return [Target(boxes, classes) for boxes, classes in parts]

    def to(self, device: torch.device | str) -> "Batch":
        """Copies that don't wait where memory is pinned; the times, which only people read, stay behind."""
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in TENSORS}
        return replace(self, **moved)

    def pin_memory(self) -> "Batch":
        """What torch's loader calls."""
        return replace(self, **{name: getattr(self, name).pin_memory() for name in TENSORS})


TENSORS = ("frames", "dt", "is_first", "labelled", "boxes", "classes")


def collate(clips: Sequence[Clip], height: int = 0, width: int = 0, multiple: int | tuple[int, int] = 1) -> Batch:
    """On a canvas of at least HEIGHT x WIDTH and the largest clip, its sides then rounded up to MULTIPLE, one number or (height, width)."""
    lengths = {clip.frames.shape[:2] for clip in clips}
    if len(lengths) != 1:
        raise InputError(f"collate: clips must be at least one, of equal length and channels, got (length, channels) {sorted(lengths)}")
    (length, channels), *_ = lengths
    down, across = (multiple, multiple) if isinstance(multiple, int) else multiple
    rows = _round_up(max(height, *(clip.frames.shape[2] for clip in clips)), down)
    columns = _round_up(max(width, *(clip.frames.shape[3] for clip in clips)), across)
    frames = np.empty((length, len(clips), channels, rows, columns), np.uint8)
    for slot, clip in enumerate(clips):
        high, wide = clip.frames.shape[2:]
        frames[:, slot, :, :high, :wide] = clip.frames
        frames[:, slot, :, high:] = 0
        frames[:, slot, :, :high, wide:] = 0
    labelled = np.stack([clip.labelled for clip in clips], 1)
    waiting = [iter(clip.labels) for clip in clips]
    labels = [next(waiting[slot]) for slot in np.nonzero(labelled)[1]]
    return Batch(
        frames=torch.from_numpy(frames),
        dt=torch.from_numpy(np.stack([clip.dt for clip in clips], 1)),
        is_first=torch.tensor([clip.is_first for clip in clips]),
        labelled=torch.from_numpy(labelled),
        boxes=torch.from_numpy(np.concatenate([np.zeros((0, 4), np.float32), *(found.boxes for found in labels)])),
        classes=torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *(found.classes for found in labels)])),
        counts=tuple(len(found) for found in labels),
        names=tuple(clip.name for clip in clips),
        ends_us=torch.from_numpy(np.stack([clip.ends_us for clip in clips], 1)),
        vanished=sum(clip.vanished for clip in clips),
    )


def _round_up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple
