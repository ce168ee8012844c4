"""Detectors derived from trained ones: a widened one computes the same, and one with a fresh memory keeps everything around it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import cli
from saccade.config import BackboneConfig, DetectorConfig, get_nano, gs5_vit_nano, gs5_vit_small, red_nano, s5_vit_nano
from saccade.model.detector import Detector
from saccade.types import InputError
from saccade.weights.derive import mixed, widened, with_fresh_memory
from saccade.weights.load import load_detector, save_detector

BACKBONE = BackboneConfig(dims=(8, 8, 16, 16), head_dim=8, layer_scale=1.0, noise_floor=1e-2, memories=("gs5", "gs5", "none", "gs5"))
TINY = DetectorConfig(name="tiny", backbone=BACKBONE, bottlenecks=1, head_width=8, classes=("car", "cat"), score=0.4)


def _trained(seed: int) -> Detector:
    """No two weights are equal, and batch norms have seen something."""
    torch.manual_seed(seed)
    detector = Detector(TINY).train()
    for parameter in detector.parameters():
        torch.nn.init.normal_(parameter, parameter.mean().item(), 0.1)
    frames = torch.poisson(torch.full((2, 2, 20, 64, 96), 0.1))
    detector(frames, detector.initial_state(frames))
    return detector.eval()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), dt=st.sampled_from([0.05, 0.1, 1.0, 3.0]))
def test_a_widened_detector_computes_the_same_at_every_rate(seed: int, dt: float) -> None:
    detector = _trained(seed)
    wide = widened(detector, "wide", seed)
    frames = torch.poisson(torch.full((4, 1, 20, 64, 96), 0.1))
    with torch.no_grad():
        expected, _ = detector(frames, detector.initial_state(frames), dt)
        found, _ = wide(frames, wide.initial_state(frames), dt)
    for name in ("boxes", "objectness", "classes"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4)
    assert wide.config.score == 0.4
    assert not wide.training


def test_the_two_of_a_pair_learn_apart() -> None:
    """Otherwise the new channels would stay copies, and the wide detector as good as the narrow one."""
    wide = widened(_trained(0), "wide").train()
    frames = torch.poisson(torch.full((2, 2, 20, 64, 96), 0.1))
    predictions, _ = wide(frames, wide.initial_state(frames))
    (predictions.objectness.mean() + predictions.boxes.square().mean() + predictions.classes.mean()).backward()
    for name, parameter in wide.named_parameters():
        if parameter.ndim > 1 and name.startswith(("backbone", "neck")):
            assert parameter.grad is not None
            first, second = parameter.grad[0::2], parameter.grad[1::2]
            assert (first - second).abs().max() > 1e-3 * first.abs().max(), name


def test_small_is_nano_widened() -> None:
    wide = widened(Detector(gs5_vit_nano()), "gs5-vit-small")
    assert wide.config == gs5_vit_small()
    assert sum(parameter.numel() for parameter in wide.parameters()) <= 5_000_000


@pytest.mark.parametrize("memory", ["s5", "lstm", "convlstm", "none", "gs5"])
def test_a_fresh_memory_leaves_the_rest_as_it_was(memory: str) -> None:
    detector = _trained(1)
    fresh = with_fresh_memory(detector, memory, "fresh", seed=3)  # type: ignore[arg-type]
    assert fresh.config == replace(TINY, name="fresh", backbone=replace(BACKBONE, memories=(memory,) * 4))
    kept = {name: value for name, value in fresh.state_dict().items() if ".memory." not in name}
    assert kept
    for name, value in kept.items():
        torch.testing.assert_close(value, detector.state_dict()[name], rtol=0, atol=0)
    if memory == "gs5":
        key = next(name for name in fresh.state_dict() if name.endswith("pace.weight"))
        assert not torch.equal(fresh.state_dict()[key], detector.state_dict()[key])
    again = with_fresh_memory(detector, memory, "fresh", seed=3).state_dict()  # type: ignore[arg-type]
    assert all(torch.equal(value, again[name]) for name, value in fresh.state_dict().items())


@pytest.mark.parametrize("preset", [s5_vit_nano, red_nano, get_nano])
def test_what_cannot_be_widened_is_refused(preset: Callable[[], DetectorConfig]) -> None:
    with pytest.raises(InputError, match="gated S5"):
        widened(Detector(preset()), "wide")


def test_the_command_derives(tmp_path: Path) -> None:
    path, out = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_detector(_trained(2), path)
    with pytest.raises(InputError, match=r"--widen.*--out"):
        cli.weights(path, widen=True)
    cli.weights(path, widen=True, new_memory="none", out=out)
    config = load_detector(out).config
    assert config.backbone.dims == (16, 16, 32, 32)
    assert config.backbone.memories == ("none",) * 4


@given(share=st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_weights_are_mixed_by_their_share(share: float) -> None:
    first, second = _trained(0), _trained(1)
    ours, theirs, both = first.state_dict(), second.state_dict(), mixed(first, second, share, "both").state_dict()
    for key, value in both.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, share * ours[key] + (1 - share) * theirs[key])
        else:
            assert torch.equal(value, ours[key])


def test_only_relatives_are_mixed() -> None:
    other = Detector(replace(TINY, head_width=16))
    with pytest.raises(InputError, match="can't be mixed"):
        mixed(_trained(0), other, 0.5, "both")
    with pytest.raises(InputError, match="share"):
        mixed(_trained(0), _trained(1), 1.5, "both")


def test_the_command_mixes_and_sets_the_score(tmp_path: Path) -> None:
    files = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    for seed, file in enumerate(files):
        save_detector(_trained(seed), file)
    out = tmp_path / "both.safetensors"
    cli.weights(files[0], mix=files[1], share=0.25, least_score=0.35, out=out)
    found, expected = load_detector(out), mixed(_trained(0), _trained(1), 0.25, "tiny")
    assert found.config.score == 0.35
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[key], value)
    with pytest.raises(InputError, match="--out"):
        cli.weights(files[0], mix=files[1])
