"""DETECTOR -> another one that starts with what it has learned: of twice the channels, with another memory, or mixed with a relative.

To widen, every channel becomes two neighbours. What reads a pair gives each half of the old weight, a little more the one and a little
less the other: the sum is what it was, so the result is the same, but the two learn apart (Net2Net, Chen et al. 2016).
"""

from dataclasses import replace

import torch
from torch import Tensor

from saccade.config import DetectorConfig, MemoryName
from saccade.model.detector import Detector
from saccade.types import InputError

UNLIKE = 0.5  # by how much the two weights of a pair differ, as a share of a matrix's usual weight


def widened(detector: Detector, name: str, seed: int = 0) -> Detector:
    """Twice the channels in every stage and in the neck, and in each of as many attention heads; the detection head keeps its width."""
    config = _wider(detector.config, name)
    random = torch.Generator().manual_seed(seed)
    wide, before = Detector(config), detector.state_dict()
    tensors = {key: _spread(before[key].cpu(), value.shape, random) for key, value in wide.state_dict().items()}
    for key in tensors:
        if ".qkv." in key:  # a product of twice as many channels is twice as large, and attention divides it by only sqrt(2) more
            queries = tensors[key].unflatten(0, (-1, 3, config.backbone.head_dim))
            queries[:, 0] *= 0.5**0.5
    wide.load_state_dict(tensors)
    return wide.train(detector.training)


def with_fresh_memory(detector: Detector, memory: MemoryName, name: str, seed: int = 0) -> Detector:
    """The same stages, neck and head around a memory that has learned nothing: what differs after training on is the memory's doing."""
    backbone = replace(detector.config.backbone, memories=(memory,) * 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = Detector(replace(detector.config, name=name, backbone=backbone))
    fresh.load_state_dict({key: value for key, value in detector.state_dict().items() if ".memory." not in key}, strict=False)
    return fresh.train(detector.training)


def mixed(detector: Detector, other: Detector, share: float, name: str) -> Detector:
    """SHARE of the first one's weights and the rest of the other's: between two that one grew out of the other, most of what either knows.

    What isn't a number to mix, such as how many batches a norm has seen, is the first one's, and so is the configuration.
    """
    if not 0 <= share <= 1:
        raise InputError(f"share={share} must be from 0 to 1: of the first weights, the rest is of the other ones")
    ours, theirs = detector.state_dict(), other.state_dict()
    strange = [key for key in {**ours, **theirs} if key not in ours or key not in theirs or ours[key].shape != theirs[key].shape]
    if strange or detector.config.classes != other.config.classes or detector.config.backbone != other.config.backbone:
        which = f", such as {sorted(strange)[0]}" if strange else ""
        raise InputError(
            f"{detector.config.name} and {other.config.name} can't be mixed: they differ in backbone, classes or {len(strange)} tensors"
            f"{which}; expected weights of which one was trained on from the other"
        )
    between = Detector(replace(detector.config, name=name))
    between.load_state_dict(
        {key: torch.lerp(theirs[key], value, share) if value.is_floating_point() else value for key, value in ours.items()}
    )
    return between.train(detector.training)


def _wider(config: DetectorConfig, name: str) -> DetectorConfig:
    backbone = config.backbone
    if backbone.mixing != "attention" or not set(backbone.memories) <= {"gs5", "none"}:
        raise InputError(f"{config.name}: only detectors with attention, and with gated S5 or no memory, can be widened")
    first, second, third, fourth = (2 * dim for dim in backbone.dims)
    return replace(config, name=name, backbone=replace(backbone, dims=(first, second, third, fourth), head_dim=2 * backbone.head_dim))


def _spread(old: Tensor, shape: torch.Size, random: torch.Generator) -> Tensor:
    """OLD in a larger SHAPE: each output (first axis) that has doubled twice, each input (second axis) that has doubled as two halves."""
    new = old.clone()
    if new.ndim and shape[0] == 2 * new.shape[0]:
        new = new.repeat_interleave(2, 0)
    if new.ndim > 1 and shape[1] == 2 * new.shape[1]:
        unlike = UNLIKE / 2 * new.square().mean().sqrt() * torch.randn(new.shape, generator=random)
        new = torch.stack((new / 2 + unlike, new / 2 - unlike), 2).flatten(1, 2)
    return new
