"""The detector: `encode` frames with state, `detect` on the features. Training, evaluation, stream and export call nothing else."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config import DetectorConfig
from saccade.model.backbone import Backbone
from saccade.model.temporal.interface import limits_of_steps
from saccade.model.values import Predictions, Pyramid, State, pick
from saccade.model.yolox import Head, Neck
from saccade.types import InputError


class Detector(nn.Module):
    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        dims = config.backbone.dims[1:]
        self.backbone = Backbone(config.backbone)
        self.neck = Neck(dims, config.bottlenecks)
        self.head = Head(dims, config.head_width, len(config.classes))

    def initial_state(self, frames: Tensor) -> State:
        """Zero memory for frames (T, B, channels, H, W) of this size, batch and device."""
        return self.backbone.initial_state(self._fit(frames))

    def encode(self, frames: Tensor, state: State, dt: Tensor | float = 1.0) -> tuple[Pyramid, State]:
        """Features of strides 8, 16, 32 of frames (T, B, channels, H, W), counts as uint8 or float, and the state after the last.

        dt is the time since the frame before in units of the training window: one number, or (T, B), on the CPU or with the frames. Frames
        whose sides don't suit the attention are padded with zeros at the bottom and right; boxes keep their origin.
        """
        frames = self._fit(frames)
        steps = torch.as_tensor(dt, dtype=torch.float32)
        if steps.ndim and steps.shape != frames.shape[:2]:
            raise InputError(f"{self.config.name}: dt must be one number or (T, B) = {tuple(frames.shape[:2])}, got {tuple(steps.shape)}")
        if steps.device != frames.device:
            lowest, highest = limits_of_steps(self.config.name, steps)
            steps = (steps.flatten()[0] if lowest == highest else steps).to(frames.device, non_blocking=True)
        features, state = self.backbone(frames, state, steps.expand(frames.shape[:2]))
        return features[1:], state

    def detect(self, pyramid: Pyramid) -> Predictions:
        """Raw predictions of every cell, for all frames of `encode` or of those that `pick` chose."""
        maps = tuple(level.flatten(0, -4) if level.ndim == 5 else level for level in pyramid)
        return self.head(self.neck(maps))

    def prepare(self, dt: float) -> None:
        """Cache what depends on dt alone, for a stream at a constant rate, until the parameters change; results are the same."""
        for stage in self.backbone.stages:
            prepare = getattr(stage.memory, "prepare", None)  # not every memory has something to prepare
            if prepare is not None:
                prepare(dt)

    def forward(self, frames: Tensor, state: State, dt: Tensor | float = 1.0, which: Tensor | None = None) -> tuple[Predictions, State]:
        """`encode` and `detect`; predictions only of the frames where WHICH (T, B) is true, if given."""
        pyramid, state = self.encode(frames, state, dt)
        return self.detect(pyramid if which is None else pick(pyramid, which)), state

    def _fit(self, frames: Tensor) -> Tensor:
        """Checked, and padded to the sides that the backbone needs."""
        channels = self.config.backbone.channels
        if frames.ndim != 5 or frames.shape[2] != channels or frames.numel() == 0:
            raise InputError(f"{self.config.name}: frames must be (T, B, {channels}, H, W) with no empty axis, got {tuple(frames.shape)}")
        if not (frames.is_floating_point() or frames.dtype == torch.uint8):
            raise InputError(f"{self.config.name}: frames must be counts as uint8 or floating point, got {frames.dtype}")
        height, width = frames.shape[-2:]
        padded_height, padded_width = self.config.backbone.padded(height, width)
        if (padded_height, padded_width) == (height, width):
            return frames
        return F.pad(frames, (0, padded_width - width, 0, padded_height - height))
