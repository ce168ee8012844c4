"""The memory: s5, s4d, s4, gs5, lstm and convlstm behind one interface, (features, state, dt) -> (features, state), sampled at any step."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from saccade.model.temporal.blocks import GatedBlock, MixedBlock, S5Block
from saccade.model.temporal.convlstm import ConvLSTM
from saccade.model.temporal.gs5 import GatedS5
from saccade.model.temporal.interface import Features, LayerState, Steps, TemporalLayer
from saccade.model.temporal.lstm import LSTM
from saccade.model.temporal.s4 import S4
from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5
from saccade.types import InputError

__all__ = ["TEMPORAL_LAYERS", "Features", "LayerState", "Steps", "TemporalLayer", "build_temporal"]

TEMPORAL_LAYERS: dict[str, type[nn.Module]] = {
    "s5": S5, "s4d": S4D, "s4": S4, "gs5": GatedS5, "lstm": LSTM, "convlstm": ConvLSTM,
}  # fmt: skip

_BLOCKS: dict[str, Callable[..., nn.Module]] = {
    "s5": S5Block,
    "s4d": lambda dim, **options: MixedBlock(S4D(dim, **options)),
    "s4": lambda dim, **options: MixedBlock(S4(dim, **options)),
    "gs5": GatedBlock,
}


def build_temporal(name: str, dim: int, **options: Any) -> nn.Module:
    """A memory of TEMPORAL_LAYERS with the block around it as published; options are those of the layer's constructor."""
    if name not in TEMPORAL_LAYERS:
        raise InputError(f"temporal layer {name!r}: expected one of {', '.join(TEMPORAL_LAYERS)}")
    known = [key for key in inspect.signature(TEMPORAL_LAYERS[name].__init__).parameters if key not in ("self", "dim")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f"temporal layer {name!r} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    if dim < 1:
        raise InputError(f"temporal layer {name!r}: dim={dim} must be positive")
    return _BLOCKS.get(name, TEMPORAL_LAYERS[name])(dim, **options)
