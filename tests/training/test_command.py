"""`saccade train`: presets are its subcommands, every setting an option, and its help needs no torch."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from saccade.commands.train import train
from saccade.datasets.open import open_dataset
from saccade.datasets.recording import Halve
from saccade.training.settings import presets
from saccade.types import InputError
from tests.datasets.make import recording, some_events
from tests.training.make import tiny_config, tiny_settings, weights_file


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


def test_the_kind_of_the_data_set_is_an_option() -> None:
    assert parse("data", "out", "--kind", "etram", "1mpx")["kind"] == "etram"
    assert parse("data", "out", "1mpx")["kind"] is None


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """Recordings of 64 x 48 pixels."""
    for split in ("train", "val"):
        recording(tmp_path / f"data/{split}/{split}.h5", some_events())
        rows = [f"{t},10,8,20,30,{kind}" for t, kind in ((300_000, "bright"), (500_000, "dark"), (700_000, "dark"))]
        (tmp_path / f"data/{split}/{split}.csv").write_text("\n".join(["t_us,x,y,w,h,class", *rows]) + "\n")
    return tmp_path / "data"


@pytest.mark.parametrize("halved", ["no", "events", "published"])
def test_frames_are_halved_as_the_weights_then_say(halves: Path, tmp_path: Path, halved: Halve) -> None:
    from saccade.weights.load import load_detector, save_detector

    start = weights_file(tmp_path)  # its own halving goes before the settings'
    detector = load_detector(start)
    detector.config = replace(detector.config, halved=halved)
    save_detector(detector, start)
    train(halves, tmp_path / "out", tiny_settings(model=str(start), steps=1, validate_every=1), kind="folder")
    config = load_detector(tmp_path / "out/final.safetensors").config
    assert (config.halved, config.trained_size) == (halved, (64, 48) if halved == "no" else (32, 24))


def test_frames_that_are_halved_otherwise_are_refused(halves: Path, tmp_path: Path) -> None:
    from saccade.training.loop import fit
    from saccade.training.start import halving_of

    assert [halving_of(presets[name]()) for name in ("gen1", "1mpx", "synthetic")] == ["no", "events", "no"]
    settings = tiny_settings(halved="published")
    right, wrong = (open_dataset(halves, "train", halve=how) for how in ("published", "events"))
    for training, validation in ((wrong, None), (right, wrong)):
        with pytest.raises(InputError, match="have halved='events', but halved='published'"):
            fit(training, validation, tmp_path / "out", settings, tiny_config())


def test_the_help_needs_no_torch() -> None:
    code = "import sys, saccade.commands.train; print([name for name in ('torch', 'tensorboard', 'matplotlib') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
