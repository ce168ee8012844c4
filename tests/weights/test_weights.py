"""Weights files: read(write(x)) = x, and no file, however broken or malicious, does more than raise InputError."""

import collections
import json
import pickle
import sys
import types
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import saccade
from saccade import cli
from saccade.config import BackboneConfig, DetectorConfig, presets
from saccade.datasets.recording import Dataset
from saccade.export.runtime import open_runtime
from saccade.model.detector import Detector
from saccade.samples import STREET
from saccade.training.settings import TrainingSettings
from saccade.training.start import build_detector
from saccade.types import InputError
from saccade.weights.load import find_weights, load_detector, read_weights, save_detector

TINY = DetectorConfig(
    name="tiny",
    backbone=BackboneConfig(dims=(8, 16, 32, 64), head_dim=8),
    bottlenecks=1,
    head_width=8,
    classes=("cat",),
    notes="for a test",
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.safetensors"
    save_detector(Detector(TINY), path, training={"steps": 7, "mAP": 12.5})
    return path


def test_a_file_builds_its_own_model(tmp_path: Path) -> None:
    detector = Detector(TINY)
    save_detector(detector, tmp_path / "a.safetensors", training={"steps": 7})
    again = saccade.load_detector(tmp_path / "a.safetensors")
    assert again.config == TINY
    assert not again.training
    for name, value in detector.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)
    assert read_weights(tmp_path / "a.safetensors").training == {"steps": 7}


def test_half_precision_takes_half_the_space_and_changes_little(own: Path, tmp_path: Path) -> None:
    cli.weights(own, out=tmp_path / "half.safetensors", half=True)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * own.stat().st_size
    whole, half = (load_detector(path).state_dict() for path in (own, tmp_path / "half.safetensors"))
    for name, value in whole.items():
        assert half[name].dtype == value.dtype
        torch.testing.assert_close(half[name], value, rtol=1e-3 if value.ndim > 1 else 0, atol=1e-7 if value.ndim > 1 else 0)


def test_saving_replaces_a_file_at_once_or_not_at_all(own: Path) -> None:
    before = own.read_bytes()
    with pytest.raises(TypeError):
        save_detector(Detector(TINY), own, training={"unwritable": object()})
    assert own.read_bytes() == before
    assert list(own.parent.iterdir()) == [own]


def test_the_command_prints_and_converts(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.weights(own, out=tmp_path / "copy.safetensors")
    text = capsys.readouterr().out
    assert all(word in text for word in ("tiny", "cat", "50 ms", "for a test", "steps", "12.5", "zoh"))
    assert load_file(tmp_path / "copy.safetensors").keys() == load_file(own).keys()
    assert read_weights(tmp_path / "copy.safetensors").training == {"steps": 7, "mAP": 12.5}
    with pytest.raises(InputError, match="--overwrite"):
        cli.weights(own, out=tmp_path / "copy.safetensors")
    with pytest.raises(InputError, match="safetensors"):
        cli.weights(own, out=tmp_path / "copy.ckpt")


@pytest.fixture
def shipped(own: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As if OWN came with saccade."""
    folder = own.parent / "shipped"
    folder.mkdir()
    own.rename(folder / "pocket.safetensors")
    monkeypatch.setattr("saccade.samples.FOLDER", folder)
    monkeypatch.chdir(own.parent)
    return "pocket"


def test_a_name_stands_for_its_file_everywhere(shipped: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = load_detector(Path("shipped") / "pocket.safetensors").state_dict()
    settings = TrainingSettings(model=shipped)
    for found in (
        saccade.load_detector(shipped),
        load_detector(Path(shipped)),
        open_runtime(shipped).detector,  # type: ignore[attr-defined]
        saccade.Stream(shipped).runtime.detector,  # type: ignore[attr-defined]
        build_detector(settings, Dataset("toys", "train", ("cat",), ())),
    ):
        assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())
    cli.weights(shipped)
    assert "pocket.safetensors" in capsys.readouterr().out


def test_a_file_hides_a_name_and_a_folder_does_not(shipped: str) -> None:
    Path(shipped).mkdir()
    assert find_weights(shipped).parent.name == "shipped"
    Path(shipped).rmdir()
    Path(shipped).write_bytes(b"mine")
    assert find_weights(shipped) == Path(shipped)


def test_an_unknown_name_is_answered_with_those_that_ship(shipped: str, tmp_path: Path) -> None:
    for use in (
        saccade.load_detector,
        saccade.Stream,
        cli.weights,
        lambda name: cli.export(name, tmp_path / "a.onnx"),
        lambda name: cli.detect(name, STREET, out=(tmp_path / "a.csv",)),
        lambda name: build_detector(TrainingSettings(model=name), Dataset("toys", "train", ("cat",), ())),
    ):
        with pytest.raises(InputError, match=r"pockets: no such file, .*\(shipped: pocket\)"):
            use("pockets")
    with pytest.raises(InputError, match=r"preset, .*\(shipped: pocket\)"):
        load_detector("s5-vit-b")
    with pytest.raises(InputError, match=r"\(shipped: pocket\)"):  # longer than any file's name
        load_detector("n" * 300)


def test_a_preset_is_not_mistaken_for_trained_weights() -> None:
    with pytest.raises(InputError, match="no trained weights"):
        load_detector("s5-vit-b")


@pytest.mark.parametrize("keep", [0, 5, 100, 5_000, -1])
def test_a_cut_file(own: Path, keep: int) -> None:
    own.write_bytes(own.read_bytes()[:keep])
    with pytest.raises(InputError, match="own"):
        load_detector(own)


def rewrite(path: Path, change) -> None:
    """The same file with its tensors and metadata changed."""
    size = int.from_bytes(path.read_bytes()[:8], "little")
    metadata = json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]
    tensors = load_file(path)
    change(tensors, metadata)
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, metadata: tensors.pop("neck.out_coarse.join.conv.weight"), "1 missing"),
        (lambda tensors, metadata: tensors.update(stranger=torch.zeros(1)), "stranger"),
        (lambda tensors, metadata: tensors.update({"head.scales.0.boxes.bias": torch.zeros(5)}), r"has shape \(5,\)"),
        (lambda tensors, metadata: tensors.update({"head.scales.0.boxes.bias": torch.full((4,), torch.nan)}), "NaN"),
        (lambda tensors, metadata: metadata.pop("config"), "without saccade's configuration"),
        (lambda tensors, metadata: metadata.update(config="{"), "not JSON"),
        (lambda tensors, metadata: metadata.update(config='{"name": "x", "bins": "ten"}'), "config.bins"),
        (lambda tensors, metadata: metadata.update(config='{"name": "x", "colour": 1}'), "colour"),
        (lambda tensors, metadata: metadata.update(config='{"bins": 10}'), "name"),
        (lambda tensors, metadata: metadata.update(saccade="99"), "format 99"),
        (
            lambda tensors, metadata: metadata.update(
                config=replace(TINY, backbone=replace(TINY.backbone, dims=(8, 16, 32, 1 << 40))).to_json()
            ),
            "channels",
        ),
    ],
)
def test_a_file_that_is_not_what_it_says(own: Path, change, message: str) -> None:
    rewrite(own, change)
    with pytest.raises(InputError, match=message):
        load_detector(own)


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("where", ["state_dict", "callbacks"])
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, where: str, legacy: bool) -> None:
    mark, path = tmp_path / "executed", tmp_path / "evil.ckpt"
    content = {"state_dict": {"mdl.backbone.stages.0.downsample_cf2cl.conv.weight": torch.zeros(2, 2, 1, 1)}, "callbacks": {}}
    content[where]["x"] = Malicious(mark)
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(InputError, match=r"evil\.ckpt"):
        load_detector(path)
    assert not mark.exists()


def test_a_plain_pickle_is_not_executed(tmp_path: Path) -> None:
    mark, path = tmp_path / "executed", tmp_path / "evil.ckpt"
    path.write_bytes(pickle.dumps(Malicious(mark), protocol=2))
    with pytest.raises(InputError, match=r"evil\.ckpt"):
        load_detector(path)
    assert not mark.exists()


def test_shell_commands_are_named_and_not_run(tmp_path: Path) -> None:
    import os

    class Shell:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'executed'}",)

    for legacy, message in ((False, r"system.*nothing of it was run"), (True, "neither a safetensors file")):
        torch.save({"state_dict": {"mdl.x": Shell()}}, tmp_path / "evil.ckpt", _use_new_zipfile_serialization=not legacy)
        with pytest.raises(InputError, match=message):
            load_detector(tmp_path / "evil.ckpt")
    assert not (tmp_path / "executed").exists()


def test_what_lightning_stores_beside_the_weights_does_no_harm(tmp_path: Path) -> None:
    """Paths and settings objects in a checkpoint are read as inert placeholders; the error that follows is about the weights."""
    torch.save({"state_dict": {"mdl.backbone.stages.0.x": torch.zeros(1)}, "callbacks": {"dir": Path("somewhere")}}, tmp_path / "a.ckpt")
    with pytest.raises(InputError, match="not a whole checkpoint"):
        load_detector(tmp_path / "a.ckpt")


def test_settings_objects_of_packages_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of others carry omegaconf's objects: their classes needn't be here, and nothing of them is built."""
    module = types.ModuleType("omegaconf.dictconfig")

    class DictConfig:
        pass

    DictConfig.__module__, DictConfig.__qualname__ = module.__name__, "DictConfig"
    module.DictConfig = DictConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings = DictConfig()
    settings.content, settings.kind, settings.cache = {"lr": 2e-4}, Any, collections.defaultdict(dict)  # type: ignore[attr-defined]
    content = {"state_dict": {"mdl.backbone.stages.0.x": torch.zeros(1)}, "hyper_parameters": settings}
    torch.save(content, tmp_path / "a.ckpt")
    monkeypatch.undo()
    with pytest.raises(InputError, match="not a whole checkpoint"):
        load_detector(tmp_path / "a.ckpt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {"model.conv1.weight": torch.zeros(1)}}, "another architecture"),
        ({"weights": 3}, "another architecture|no `state_dict`"),
        ([1, 2], "no `state_dict`"),
        ({"state_dict": {"mdl.backbone.stages.0.downsample_cf2cl.conv.weight": torch.zeros(3)}}, "not a whole|four axes"),
    ],
)
def test_checkpoints_of_others(tmp_path: Path, content, message: str) -> None:
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(InputError, match=message):
        load_detector(tmp_path / "a.ckpt")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("not weights")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("data.txt", "hello")
    for name in ("a.txt", "b.zip", "missing.ckpt", "."):
        with pytest.raises(InputError):
            load_detector(tmp_path / name)


@pytest.mark.parametrize("name", presets)
def test_every_configuration_survives_json(name: str) -> None:
    config = presets[name]()
    sized = replace(config, trained_size=(304, 240))
    assert DetectorConfig.from_json(config.to_json()) == config
    assert DetectorConfig.from_json(sized.to_json()) == sized
    assert config.name == name
    with pytest.raises(InputError, match="trained_size"):
        DetectorConfig.from_json(sized.to_json().replace("[304, 240]", "[304]"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 24}, "multiples of head_dim"),
        ({"dims": (8, 16, 33, 64), "mixing": "convnext"}, "even"),
        ({"split": 0}, "split"),
    ],
)
def test_impossible_settings(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BackboneConfig(**options)
    with pytest.raises(InputError, match="2 x bins"):
        DetectorConfig(name="x", bins=5)
