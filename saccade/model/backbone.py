"""Frames + state + dt -> features of four strides: downsampling, spatial mixing, memory, four times over (paper figure 2)."""

import inspect
from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saccade.config import BackboneConfig, MemoryConfig
from saccade.model.mixing import MIXINGS, Partition
from saccade.model.sparse import convolve_frames
from saccade.model.temporal import TEMPORAL_LAYERS, LayerState, TemporalLayer, build_temporal
from saccade.model.values import State
from saccade.types import InputError

Maps = Float[Tensor, "T B _channels _height _width"]
InputFrames = Maps | UInt8[Tensor, "T B _channels _height _width"]

STRIDES = (4, 8, 16, 32)
PUBLISHED_EPS = 1e-5


class Backbone(nn.Module):
    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False  # activation checkpointing: of each stage, training keeps its input only and computes the rest again
        inputs = (config.channels, *config.dims[:-1])
        self.stages: Sequence[Stage] = nn.ModuleList(Stage(config, index, dim_in) for index, dim_in in enumerate(inputs))  # type: ignore[assignment]

    def initial_state(self, frames: Tensor) -> State:
        return tuple(
            stage.initial_state(frames.shape[1], frames.shape[-2] // stride, frames.shape[-1] // stride, frames.device)
            for stage, stride in zip(self.stages, STRIDES, strict=True)
        )

    def forward(self, frames: InputFrames, state: State, dt: Tensor) -> tuple[tuple[Maps, ...], State]:
        """All four stages; sides of the frames are multiples of `config.multiple`."""
        if len(state) != len(self.stages):
            raise InputError(f"the state must be that of {len(self.stages)} stages, got {len(state)}; start from initial_state(frames)")
        partition = frames.shape[-2] // self.config.multiple, frames.shape[-1] // self.config.multiple
        features, states, x = [], [], frames
        for stage, memory in zip(self.stages, state, strict=True):
            if self.recompute and torch.is_grad_enabled():
                x, memory = checkpoint(stage, x, memory, dt, partition, use_reentrant=False, preserve_rng_state=False)
            else:
                x, memory = stage(x, memory, dt, partition)
            features.append(x)
            states.append(memory)
        return tuple(features), tuple(states)


class Stage(nn.Module):
    def __init__(self, config: BackboneConfig, index: int, dim_in: int) -> None:
        super().__init__()
        self.dim, self.reset = config.dims[index], config.reset[index]
        size, stride = (7, 4) if index == 0 else (3, 2)
        groups = config.groups[index] if config.mixing == "grouped" else 1
        self.downsample = nn.Conv2d(dim_in, self.dim, size, stride, padding=size // 2, groups=groups, bias=False)
        self.norm = nn.LayerNorm(self.dim, eps=config.noise_floor if index == 0 else PUBLISHED_EPS)
        self.mixing = MIXINGS[config.mixing](config, index)
        self.memory = _memory(config.memories[index], self.dim, config.memory)
        if self.norm.eps > PUBLISHED_EPS:  # pixels without events become this bias; at zero, the next norm would amplify their noise
            nn.init.normal_(self.norm.bias, std=0.5)

    def initial_state(self, batch: int, height: int, width: int, device: torch.device) -> LayerState:
        if self.memory is None:
            return ()
        shape = torch.zeros((), device=device).expand(1, batch, height, width, self.dim)  # allocates one element: only the shape is read
        return self.memory.initial_state(shape)

    def forward(self, x: Tensor, state: LayerState, dt: Tensor, partition: Partition) -> tuple[Tensor, LayerState]:
        steps, batch = x.shape[:2]
        pixels = convolve_frames(x.flatten(0, 1), self.downsample)
        mixed = self.mixing(self.norm(pixels), partition).unflatten(0, (steps, batch))
        if self.memory is None:
            y = mixed
        elif self.reset:  # every step is the first of its own sequence
            alone = mixed.flatten(0, 1).unsqueeze(0)
            y, _ = self.memory(alone, self.memory.initial_state(alone), dt.reshape(1, -1))
            y = y.view(mixed.shape)
        else:
            y, state = self.memory(mixed, state, dt)
        return y.permute(0, 1, 4, 2, 3), state


def _memory(name: str, dim: int, options: MemoryConfig) -> TemporalLayer | None:
    if name == "none":
        return None
    known = inspect.signature(TEMPORAL_LAYERS[name].__init__).parameters
    return cast(TemporalLayer, build_temporal(name, dim, **{key: value for key, value in vars(options).items() if key in known}))
