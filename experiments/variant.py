"""What one training of a table changes; all else is the recipe of its world, the same for every memory."""

from dataclasses import dataclass, replace
from typing import Literal

from experiments.world import World
from saccade.config import DetectorConfig, MemoryName, Mixing, with_memory
from saccade.training.settings import TrainingSettings

EVERY_STAGE = (True, True, True, True)
WITH_SPECTRUM = ("s5", "s4d")  # the memories that have initialisations, timescales and a band limit to choose
NAMES = {"s5": "S5", "s4d": "S4D", "s4": "S4", "gs5": "gated S5", "lstm": "RVT"}


@dataclass(frozen=True, kw_only=True)
class Variant:
    memory: MemoryName = "s5"
    initialisation: str = "legs"
    timescales: Literal["published", "clip"] | None = None  # None = as the world's detectors have them
    alpha: float = 0.5  # band limit of the output, 0 = none
    h2_weight: float = 0.0  # of the H2 norm in the loss
    remembers: tuple[bool, bool, bool, bool] = EVERY_STAGE  # which stages don't forget at every step
    mixing: Mixing = "attention"
    small: bool = False

    @property
    def name(self) -> str:
        """For folders and the command line; only what differs from the usual is said."""
        parts = (
            self.memory,
            self.initialisation if self.initialisation != "legs" else "",
            self.timescales or "",
            f"alpha{self.alpha:g}" if self.alpha != 0.5 else "",
            f"h2-{self.h2_weight:g}" if self.h2_weight else "",
            "stages" + "".join(str(int(stage)) for stage in self.remembers) if self.remembers != EVERY_STAGE else "",
            self.mixing if self.mixing != "attention" else "",
            "small" if self.small else "",
        )
        return "-".join(part for part in parts if part)

    def within(self, world: World) -> "Variant":
        """One name for one training, so that tables share it: what its memory doesn't have, or the world does anyway, isn't said."""
        usual = (world.small if self.small else world.base)().backbone.memory.timescales
        if self.memory not in WITH_SPECTRUM:
            return replace(self, initialisation="legs", timescales=None, alpha=0.5, h2_weight=0.0)
        return replace(self, timescales=None) if self.timescales == usual else self


def detector_of(variant: Variant, world: World) -> DetectorConfig:
    variant = variant.within(world)
    usual = with_memory((world.small if variant.small else world.base)(), f"{variant.name}-{world.size}", variant.memory)
    memory = replace(
        usual.backbone.memory,
        initialisation=variant.initialisation,
        timescales=variant.timescales or usual.backbone.memory.timescales,
        bandlimit=variant.alpha or None,
    )
    first, second, third, fourth = (not remembers for remembers in variant.remembers)
    backbone = replace(
        usual.backbone,
        mixing=variant.mixing,
        reset=(first, second, third, fourth),
        memory=memory,
    )
    return replace(usual, backbone=backbone)


def settings_of(variant: Variant, world: World) -> TrainingSettings:
    variant = variant.within(world)
    return replace(world.recipe, model=f"{variant.name}-{world.size}", h2_weight=variant.h2_weight)
