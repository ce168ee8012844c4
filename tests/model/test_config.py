"""A configuration says what can be built, and refuses the rest by name."""

import subprocess
import sys
from typing import Any, get_args

import pytest
import torch

from saccade.config import BackboneConfig, DetectorConfig, MemoryName, Mixing, presets
from saccade.model.detector import Detector
from saccade.model.temporal import TEMPORAL_LAYERS


def config(**backbone: Any) -> DetectorConfig:
    return DetectorConfig(name="small", backbone=BackboneConfig(dims=(8, 16, 32, 64), head_dim=8, **backbone), bottlenecks=1, head_width=8)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("memories=('s5', 's6', 's5', 's5')", "memories: unknown 's6'; expected s5, s4d, s4, gs5, lstm, convlstm, none"),
        ("mixing='conv'", "mixing='conv': expected attention, convnext, ssm2d, squeeze, grouped"),
        ("memories=('s5',) * 3", "four entries"),
        ("reset=(True,) * 5", "four entries"),
        ("mixing='grouped', groups=(4, 2, 1)", "four entries"),
        ("mixing='grouped', groups=(4, 3, 1, 1)", "groups=(4, 3, 1, 1): expected positive numbers, each a multiple of the next stage's"),
        ("mixing='grouped', groups=(8, 4, 2, 1)", "groups=(8, 4, 2, 1): the first must be 2 x a divisor of the 10 bins, or 1"),
        ("mixing='grouped', groups=(5, 1, 1, 1)", "the first must be 2 x a divisor of the 10 bins, or 1"),
        ("mixing='grouped', dims=(18, 32, 64, 128)", "dims=(18, 32, 64, 128) must divide into groups=(4, 4, 2, 1)"),
        ("mixing='grouped', dims=(16, 32, 72, 128), head_dim=32", "heads of head_dim=32 channels, unless it is narrower"),
        ("noise_floor=0.0", "noise_floor=0.0 must be positive"),
    ],
)
def test_a_backbone_that_nobody_can_build_is_refused(wrong: str, said: str) -> None:
    """In a process of its own, as users have it: while tests run, types are checked and would refuse it first."""
    code = f"from saccade.config import BackboneConfig\nBackboneConfig({wrong})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InputError: backbone." in ended.stderr
    assert said in ended.stderr


def test_a_config_may_name_what_can_be_built() -> None:
    assert {*get_args(MemoryName)} == {*TEMPORAL_LAYERS, "none"}
    for mixing in get_args(Mixing):
        Detector(config(mixing=mixing))


def test_a_noise_floor_keeps_one_stray_event_quieter_than_an_edge() -> None:
    """Without one, the first norm makes both equally loud; and the published presets have none."""
    alone, edge, silence = (torch.zeros(1, 1, 20, 64, 64) for _ in range(3))
    alone[..., 10, 32, 32] = 1
    edge[..., 24:40, 30:34] = 1

    def loudness(frames: torch.Tensor, noise_floor: float) -> float:
        torch.manual_seed(0)
        stage = Detector(config(noise_floor=noise_floor)).backbone.stages[0]
        with torch.no_grad():
            seen, nothing = (stage.norm(stage.downsample(shown[0]).permute(0, 2, 3, 1)) for shown in (frames, silence))
        return float((seen - nothing).square().mean(-1).max())

    published = BackboneConfig().noise_floor
    assert loudness(alone, published) > 0.8 * loudness(edge, published)
    assert loudness(alone, 0.01) < 0.1 * loudness(edge, 0.01)
    assert all(presets[name]().backbone.noise_floor == published for name in presets if not name.endswith(("nano", "small")))
