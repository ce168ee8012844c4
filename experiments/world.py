"""Where an experiment runs: a data set, the detectors that suit its size, and the recipe that all its trainings share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from saccade import config
from saccade.config import DetectorConfig
from saccade.training.settings import TrainingSettings, presets


@dataclass(frozen=True, kw_only=True)
class World:
    name: str
    folder: Path  # of the data set
    size: str  # of the detectors, the ending of their names
    base: Callable[[], DetectorConfig]
    small: Callable[[], DetectorConfig]
    recipe: TrainingSettings
    split: str | None  # that is scored; None = the table's own
    protocol: str  # of scoring
    label_rate_hz: float  # denser labels are thinned to this
    papers: tuple[str, ...]  # data sets of the paper whose numbers stand beside ours


def synthetic(folder: Path) -> World:
    """Simulated streets: nano detectors, an hour or less of two cores each. The paper's numbers beside them are of other data."""
    return World(
        name="synthetic",
        folder=folder,
        size="nano",
        base=config.s5_vit_nano,
        small=_smaller_nano,
        recipe=presets["synthetic"](),
        split="test",  # nothing was chosen by it
        protocol="saccade",
        label_rate_hz=20.0,
        papers=("Gen1", "1 Mpx"),
    )


def gen1(folder: Path) -> World:
    """As in the paper: base detectors, 400,000 steps; scored as the field does it."""
    return _published("gen1", folder, "Gen1", label_rate_hz=20.0)


def one_mpx(folder: Path) -> World:
    """As in the paper, at half resolution; labels at 10 Hz as published."""
    return _published("1mpx", folder, "1 Mpx", label_rate_hz=10.0)


def _published(name: str, folder: Path, paper: str, label_rate_hz: float) -> World:
    return World(
        name=name,
        folder=folder,
        size="b",
        base=config.s5_vit_b,
        small=config.s5_vit_s,
        recipe=presets[name](),
        split=None,
        protocol="prophesee",
        label_rate_hz=label_rate_hz,
        papers=(paper,),
    )


def _smaller_nano() -> DetectorConfig:
    """Three quarters of the channels, as S5-ViT-S is to S5-ViT-B."""
    whole = config.s5_vit_nano()
    return replace(whole, name="s5-vit-nano-small", backbone=replace(whole.backbone, dims=(12, 24, 48, 96), head_dim=12), head_width=36)
