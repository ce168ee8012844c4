"""A configuration says what can be built, and refuses the rest by name."""

import subprocess
import sys
from typing import Any, get_args

import pytest

from saccade.config import BackboneConfig, DetectorConfig, Memory, Mixing
from saccade.model.detector import Detector
from saccade.model.temporal import TEMPORAL_LAYERS


def config(**backbone: Any) -> DetectorConfig:
    return DetectorConfig(name="small", backbone=BackboneConfig(dims=(8, 16, 32, 64), head_dim=8, **backbone), bottlenecks=1, head_width=8)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("memories=('s5', 's6', 's5', 's5')", "memories: unknown 's6'; expected s5, s4d, s4, gs5, lstm, none"),
        ("mixing='conv'", "mixing='conv': expected attention, convnext, ssm2d"),
        ("memories=('s5',) * 3", "four entries"),
        ("reset=(True,) * 5", "four entries"),
    ],
)
def test_a_backbone_that_nobody_can_build_is_refused(wrong: str, said: str) -> None:
    """In a process of its own, as users have it: while tests run, types are checked and would refuse it first."""
    code = f"from saccade.config import BackboneConfig\nBackboneConfig({wrong})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InputError: backbone." in ended.stderr
    assert said in ended.stderr


def test_a_config_may_name_what_can_be_built() -> None:
    assert {*get_args(Memory)} == {*TEMPORAL_LAYERS, "none"}
    for mixing in get_args(Mixing):
        Detector(config(mixing=mixing))
