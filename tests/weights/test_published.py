"""Weights with the published keys give what the published code computes from them (reference outputs beside the repository)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.detection.decode import dense
from saccade.model.detector import Detector
from saccade.weights.load import load_detector, read_weights

PARAMETERS = {
    "s5_base_gen1": 18_192_149,
    "s5_small_gen1": 9_677_205,
    "rvt_base_gen1": 18_536_469,
    "rvt_small_gen1": 9_870_165,
    "rvt_tiny_gen1": 4_405_141,
}


@pytest.fixture
def published(shared: Path):
    spec = importlib.util.spec_from_file_location("published_weights", shared / "published" / "weights.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lightning_file(published, shared: Path, name: str, path: Path, seed: int = 0) -> Path:
    """As Lightning saves it: the state dict among other things."""
    state_dict = published.make_state_dict(shared / "published" / f"keys_{name}.tsv", seed)
    torch.save({"state_dict": state_dict, "epoch": 3, "global_step": 400_000, "pytorch-lightning_version": "1.8.6", "callbacks": {}}, path)
    return path


@pytest.mark.parametrize(
    ("name", "model", "multiple"),
    [
        ("s5_base_gen1", "s5-vit-b", 32),
        ("s5_small_gen1", "s5-vit-s", 32),
        ("s5_base_1mpx", "s5-vit-b", 64),
        ("s5_small_1mpx", "s5-vit-s", 64),
        ("rvt_base_gen1", "rvt-b", 32),
        ("rvt_small_gen1", "rvt-s", 32),
        ("rvt_tiny_gen1", "rvt-t", 32),
    ],
)
def test_every_published_checkpoint_loads(name: str, model: str, multiple: int, published, shared: Path, tmp_path: Path) -> None:
    weights = read_weights(lightning_file(published, shared, name, tmp_path / "download.ckpt"))
    assert (weights.kind, weights.config.name, weights.config.backbone.multiple) == ("published", model, multiple)
    assert weights.config.classes == (("car", "pedestrian") if name.endswith("gen1") else ("pedestrian", "two-wheeler", "car"))
    detector = Detector(weights.config)
    detector.load_state_dict(weights.tensors, strict=True)
    if name in PARAMETERS:
        assert sum(parameter.numel() for parameter in detector.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize(("name", "scale"), [("s5_small_gen1", 1.0), ("s5_small_gen1", 0.5), ("rvt_tiny_gen1", 1.0)])
def test_outputs_are_the_published_ones(name: str, scale: float, published, shared: Path, tmp_path: Path) -> None:
    detector = load_detector(lightning_file(published, shared, name, tmp_path / "download.ckpt"))
    reference = np.load(shared / "published" / f"{name}.npz")
    frames = published.make_frames(3, 1, 240, 304, seed=0)
    padded = torch.nn.functional.pad(frames, (0, 16, 0, 16)).float()
    with torch.inference_mode():
        features, _ = detector.backbone(padded, detector.initial_state(frames), torch.full((3, 1), scale))
        pyramid, _ = detector.encode(frames, detector.initial_state(frames), scale)
        cells = dense(detector.detect(pyramid))
    for stage, found in enumerate(features, 1):
        expected = torch.from_numpy(reference[f"scale{scale}_stage{stage}"])
        assert (found[-1, 0, :, ::4, ::4] - expected).abs().max() <= 1e-4 * expected.abs().max()
    expected = torch.from_numpy(reference[f"scale{scale}_head"])[:, 0]
    torch.testing.assert_close(cells[:, ::3, :4], expected[..., :4], atol=0.02, rtol=0)
    torch.testing.assert_close(cells[:, ::3, 4:], expected[..., 4:], atol=1e-4, rtol=0)


def test_a_state_that_does_not_decay_is_clipped_with_a_warning(published, shared: Path, tmp_path: Path) -> None:
    path = lightning_file(published, shared, "s5_small_gen1", tmp_path / "download.ckpt")
    content = torch.load(path, weights_only=True)
    content["state_dict"]["mdl.backbone.stages.2.s5_block.s5.seq.Lambda"][5, 0] = 0.3
    torch.save(content, path)
    with pytest.warns(UserWarning, match="don't decay"):
        detector = load_detector(path)
    assert detector.backbone.stages[2].memory.memory.eigenvalues()[0].max() < 0
