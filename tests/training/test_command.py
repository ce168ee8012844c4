"""`saccade train`: presets are its subcommands, every setting an option, and its help needs no torch."""

import subprocess
import sys

import pytest
import tyro

from saccade.commands.train import train
from saccade.training.settings import presets


def parse(*arguments: str) -> dict:
    """What `train` would be called with."""
    call: dict = {}

    def stand_in(**values: object) -> None:
        call.update(values)

    stand_in.__signature__ = __import__("inspect").signature(train)  # type: ignore[attr-defined]
    stand_in.__annotations__ = train.__annotations__
    tyro.cli(stand_in, args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
    return call


@pytest.mark.parametrize("name", presets)
def test_presets_are_subcommands(name: str) -> None:
    call = parse("data", "out", name)
    assert call["settings"] == presets[name]()
    assert str(call["data"]) == "data"


def test_settings_are_options() -> None:
    settings = parse("data", "out", "gen1", "--steps", "7", "--lanes.kind", "random", "--log", "wandb", "--l1")["settings"]
    assert (settings.steps, settings.lanes.kind, settings.log, settings.l1, settings.length) == (7, "random", ("wandb",), True, 21)


def test_the_help_needs_no_torch() -> None:
    code = "import sys, saccade.commands.train; print([name for name in ('torch', 'tensorboard', 'matplotlib') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
