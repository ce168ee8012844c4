"""The public calls on a folder: what `saccade train` and `saccade evaluate` do, from Python."""

from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.evaluation.run.condition import Condition
from saccade.training.settings import presets
from tests.datasets.make import recording, some_events

QUICK: dict[str, Any] = {"model": "s5-vit-nano", "steps": 1, "batch": 2, "length": 2, "workers": 0, "threads": 1, "log": ()}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of one's own, recordings of 64 x 48 pixels with csv labels."""
    for split in ("train", "val", "test"):
        recording(tmp_path / f"mine/{split}/{split}.h5", some_events())
        rows = [f"{t},10,8,20,30,{kind}" for t, kind in ((300_000, "bright"), (500_000, "dark"), (700_000, "dark"))]
        (tmp_path / f"mine/{split}/{split}.csv").write_text("\n".join(["t_us,x,y,w,h,class", *rows]) + "\n")
    return tmp_path / "mine"


def test_train_then_evaluate(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    trained = saccade.train(mine, str(tmp_path / "run"), "synthetic", **QUICK)
    assert trained is not None
    assert trained.labels == 3
    written = (tmp_path / "run/final.safetensors").read_bytes()
    saccade.train(mine, tmp_path / "run", "synthetic", **QUICK)  # nothing is left to do
    assert (tmp_path / "run/final.safetensors").read_bytes() == written
    weights = tmp_path / "run/final.safetensors"
    found = saccade.evaluate(weights, str(mine), (20, 40), out=str(tmp_path / "scores"))
    assert [result.condition.rate_hz for result in found.results] == [20, 40]
    assert found.weights == str(weights)
    assert capsys.readouterr().out == ""  # the library never prints

    dataset = saccade.open_dataset(mine, "test")
    detector = saccade.load_detector(weights)
    again = saccade.evaluate(detector, dataset, conditions=[Condition(rate_hz=20), Condition(rate_hz=40)])
    assert [result.scores.mAP for result in again.results] == [result.scores.mAP for result in found.results]


def test_unknown_recipes_and_settings_are_named(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(saccade.InputError, match="unknown recipe 'gen2'; expected gen1, gen1-published, 1mpx, 1mpx-published, synthetic"):
        saccade.train(mine, tmp_path / "run", "gen2")
    with pytest.raises(saccade.InputError, match="unknown setting step; expected some of model, split"):
        saccade.train(mine, tmp_path / "run", presets["synthetic"](), step=3)


def test_on_ray_a_run_folder_on_s3_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(saccade.InputError, match=r"s3://bucket/run: .* all its machines share; data may be s3://"):
        saccade.train(tmp_path, "s3://bucket/run", "synthetic", on="ray")
    assert not list(tmp_path.iterdir())
