"""Laws of the whole detector, over every preset: the sizes may differ, what holds doesn't."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from saccade.config import BackboneConfig, DetectorConfig, presets
from saccade.detection.boxes import Target, overlap
from saccade.detection.decode import decode, dense
from saccade.detection.loss import loss
from saccade.model.detector import Detector
from saccade.model.temporal import TEMPORAL_LAYERS
from saccade.model.values import Predictions, change, detach, join_states, pick, reset
from saccade.types import InputError
from saccade.weights.load import load_detector, save_detector

# Millions of parameters: the paper's (table 1), the published code's, and for the rest our own count, which may not drift unseen.
MILLIONS = {
    "s5-vit-b": 18.2, "s5-vit-s": 9.7, "s5-vit-t": 4.32, "s4d-vit-b": 16.5, "s4d-vit-s": 8.8, "s4-vit-b": 16.57,
    "rvt-b": 18.5, "rvt-s": 9.87, "rvt-t": 4.41, "s5-convnext-b": 15.49, "s5-ssm2d-b": 18.19,
    "s5-vit-nano": 1.24, "s4d-vit-nano": 1.15, "s4-vit-nano": 1.16, "gs5-vit-nano": 1.27, "rvt-nano": 1.26,
    "gs5-vit-small": 4.25, "red-nano": 1.37, "get-nano": 1.21,
}  # fmt: skip
NANO = [name for name in presets if name.endswith("nano")]
OVERFITTED = ("s5-vit-nano", "gs5-vit-nano", "rvt-nano", "s5-vit-t")  # the others take up to minutes each


def build(name: str) -> Detector:
    """Everything loud enough to be heard in the boxes: mixing and memory start near zero, norms that have seen no data dull the rest."""
    torch.manual_seed(0)
    detector = Detector(presets[name]())
    frames = counts(2, 4, 20, 64, 64, seed=9)
    with torch.no_grad():
        for key, parameter in detector.named_parameters():
            if key.endswith("scale.weight"):
                parameter.fill_(0.5)
            elif key.endswith("memory.memory.C"):
                parameter.mul_(20)
        for module in detector.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
        predictions, _ = detector.train()(frames, detector.initial_state(frames))
    assert predictions.boxes.std(1).min() > 0.03
    return detector.eval()


def counts(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 11, shape, dtype=torch.uint8, generator=generator) * (torch.rand(shape, generator=generator) < 0.2)


def assert_equal(found: Predictions, expected: Predictions) -> None:
    assert found.grids == expected.grids
    for one, other in zip(
        found[:3], expected[:3], strict=True
    ):  # kernels of some machines add in another order for other numbers of frames
        torch.testing.assert_close(one, other, rtol=1e-3, atol=5e-4)


@pytest.mark.parametrize("name", presets)
def test_parameters_are_those_of_the_paper(name: str) -> None:
    assert set(MILLIONS) == set(presets)
    found = sum(parameter.numel() for parameter in Detector(presets[name]()).parameters())
    assert found == pytest.approx(MILLIONS[name] * 1e6, rel=0.01)


@pytest.mark.parametrize("name", presets)
def test_gradients_reach_every_parameter(name: str) -> None:
    detector = build(name).train()
    frames = counts(3, 2, 20, 64, 64)
    predictions, _ = detector(frames, detector.initial_state(frames))
    generator = torch.Generator().manual_seed(1)
    torch.stack([(part * torch.randn(part.shape, generator=generator)).sum() for part in predictions[:3]]).sum().backward()
    for key, parameter in detector.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", presets)
@torch.no_grad()
def test_any_split_equals_one_pass_and_the_state_matters(name: str) -> None:
    detector, frames = build(name), counts(4, 2, 20, 64, 96)
    dt = torch.tensor([[1.0, 1.0], [0.5, 1.0], [0.1, 2.0], [1.0, 0.3]])
    whole, last = detector(frames, detector.initial_state(frames), dt)
    state, parts = detector.initial_state(frames), []
    for part in (slice(0, 1), slice(1, 3), slice(3, 4)):
        predictions, state = detector(frames[part], state, dt[part])
        parts.append(predictions)
    joined = Predictions(*(torch.cat([part[index] for part in parts]) for index in range(3)), whole.grids)
    assert_equal(joined, whole)
    for found, expected in zip(state, last, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    forgetful, _ = detector(frames[3:], detector.initial_state(frames), dt[3:])
    assert not torch.allclose(forgetful.boxes, whole.boxes[-2:], atol=1e-4)


@pytest.mark.parametrize("name", presets)
@torch.no_grad()
def test_a_sample_does_not_see_its_neighbours(name: str) -> None:
    detector, frames = build(name), counts(2, 3, 20, 64, 64)
    dt = torch.tensor([[1.0, 0.5, 0.1], [1.0, 0.2, 3.0]])
    together, _ = detector(frames, detector.initial_state(frames), dt)
    for sample in range(3):
        alone = frames[:, sample : sample + 1]
        predictions, _ = detector(alone, detector.initial_state(alone), dt[:, sample : sample + 1])
        expected = Predictions(*(part.unflatten(0, (2, 3))[:, sample] for part in together[:3]), together.grids)
        assert_equal(predictions, expected)


@pytest.mark.parametrize("name", presets)
@torch.no_grad()
def test_two_sizes_one_after_the_other(name: str) -> None:
    """Nothing about a size sticks: neither grids nor partitions nor state. Odd sides are padded with zeros."""
    detector = build(name)
    small, large = counts(1, 1, 20, 64, 64), counts(1, 1, 20, 96, 130)
    first, _ = detector(small, detector.initial_state(small))
    other, _ = detector(large, detector.initial_state(large))
    again, _ = detector(small, detector.initial_state(small))
    assert_equal(again, first)
    assert other.grids == ((12, 20), (6, 10), (3, 5))
    padded = torch.nn.functional.pad(large, (0, 30))
    assert_equal(detector(padded, detector.initial_state(padded))[0], other)
    assert dense(other).shape == (1, 315, 7)


@pytest.mark.parametrize("name", presets)
@torch.no_grad()
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path) -> None:
    detector, frames = build(name), counts(2, 1, 20, 64, 64)
    save_detector(detector, tmp_path / "a.safetensors")
    again = load_detector(tmp_path / "a.safetensors")
    assert again.config == detector.config
    for part, expected in zip(
        again(frames, again.initial_state(frames))[0][:3], detector(frames, detector.initial_state(frames))[0][:3], strict=True
    ):
        assert torch.equal(part, expected)


@pytest.mark.parametrize("name", NANO)
def test_bfloat16_trains_and_infers_without_nan(name: str) -> None:
    detector, frames = build(name).train(), counts(3, 2, 20, 64, 64)
    optimiser = torch.optim.AdamW(detector.parameters(), lr=1e-3)
    targets = [Target(torch.tensor([[10.0, 12.0, 40.0, 50.0]]), torch.tensor([1])) for _ in range(6)]
    state = detector.initial_state(frames)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            predictions, state = detector(frames, detach(state))
            total = loss(predictions, targets).total
        assert all(tensor.dtype == torch.float32 for layer in state for tensor in layer)
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        assert total.isfinite()
    detector.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        predictions, state = detector(frames, detach(state))
    assert dense(predictions).isfinite().all()
    assert all(tensor.isfinite().all() for layer in state for tensor in layer)
    decode(predictions, range(6))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in OVERFITTED else pytest.mark.thorough) for name in presets])
def test_overfits_eight_frames_and_finds_their_boxes(name: str) -> None:
    torch.manual_seed(0)
    detector = Detector(presets[name]()).train()
    frames, targets = boxes_that_blink()
    optimiser = torch.optim.AdamW(detector.parameters(), lr=2e-3)
    for _ in range(200):
        predictions, _ = detector(frames, detector.initial_state(frames))
        total = loss(predictions, targets).total
        if total < 2 and finds(predictions, targets):
            break
        optimiser.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_value_(detector.parameters(), 1.0)
        optimiser.step()
    assert total < 2  # it begins above 11
    assert finds(predictions, targets)


def finds(predictions: Predictions, targets: list[Target]) -> bool:
    """Whether in every frame the detection with the best score is its one object."""
    for detections, target in zip(decode(predictions, range(len(targets)), threshold=0.1), targets, strict=True):
        best = detections[:1]
        if not len(best) or best.classes[0] != target.classes or overlap(torch.from_numpy(best.boxes), target.boxes) < 0.5:
            return False
    return True


def boxes_that_blink() -> tuple[Tensor, list[Target]]:
    """Eight frames of two recordings: in each a filled rectangle; its class is the polarity of its events."""
    generator = torch.Generator().manual_seed(3)
    frames, targets = torch.zeros(4, 2, 20, 64, 64, dtype=torch.uint8), []
    for step in range(4):
        for sample in range(2):
            left, top = (int(value) for value in torch.randint(2, 30, (2,), generator=generator))
            width, height = (int(value) for value in torch.randint(14, 32, (2,), generator=generator))
            kind = int(torch.randint(0, 2, (), generator=generator))
            frames[step, sample, 10 * kind : 10 * kind + 10, top : top + height, left : left + width] = 5
            targets.append(Target(torch.tensor([[left, top, left + width, top + height]]).float(), torch.tensor([kind])))
    return frames, targets


def small(**options) -> DetectorConfig:
    return DetectorConfig(name="small", backbone=BackboneConfig(dims=(8, 16, 32, 64), head_dim=8, **options), bottlenecks=1, head_width=8)


@pytest.mark.parametrize("memory", TEMPORAL_LAYERS)
@torch.no_grad()
def test_a_stage_that_is_reset_forgets_and_keeps_its_parameters(memory: str) -> None:
    torch.manual_seed(0)
    plain = Detector(small(memories=(memory,) * 4)).eval()
    forgetful = Detector(small(memories=(memory,) * 4, reset=(True,) * 4)).eval()
    forgetful.load_state_dict(plain.state_dict())
    frames, dt = counts(3, 2, 20, 64, 64), torch.tensor([[1.0, 0.5], [1.0, 0.1], [0.3, 1.0]])
    found, state = forgetful(frames, forgetful.initial_state(frames), dt)
    for step in range(3):
        expected, _ = plain(frames[step : step + 1], plain.initial_state(frames), dt[step : step + 1])
        assert_equal(Predictions(*(part[2 * step : 2 * step + 2] for part in found[:3]), found.grids), expected)
    assert all(not tensor.any() for layer in state for tensor in layer)
    one = Detector(small(memories=(memory,) * 4, reset=(False, True, False, False))).eval()
    one.load_state_dict(plain.state_dict())
    _, state = one(frames, one.initial_state(frames), dt)
    assert [any(bool(tensor.any()) for tensor in layer) for layer in state] == [True, False, True, True]


@torch.no_grad()
def test_memories_can_differ_by_stage_and_be_absent() -> None:
    detector, frames = Detector(small(memories=("none", "lstm", "s5", "none"))).eval(), counts(2, 1, 20, 64, 64)
    state = detector.initial_state(frames)
    assert [len(layer) for layer in state] == [0, 2, 1, 0]
    _, state = detector(frames, state)
    assert [len(layer) for layer in state] == [0, 2, 1, 0]


@torch.no_grad()
def test_more_windows_change_attention_and_the_padding() -> None:
    torch.manual_seed(0)
    config = small(split=2)
    detector, frames = Detector(config).eval(), counts(1, 1, 20, 96, 96)
    assert detector(frames, detector.initial_state(frames))[0].grids[0] == (16, 16)
    assert replace(config.backbone, split=1).multiple == 32


@torch.no_grad()
def test_picked_frames_are_those_of_all() -> None:
    detector, frames = build("s5-vit-nano"), counts(3, 2, 20, 64, 64)
    which = torch.tensor([[True, False], [False, False], [True, True]])
    pyramid, _ = detector.encode(frames, detector.initial_state(frames))
    every, some = detector.detect(pyramid), detector.detect(pick(pyramid, which))
    assert_equal(some, Predictions(*(part[which.flatten()] for part in every[:3]), every.grids))
    assert_equal(detector(frames, detector.initial_state(frames), 1.0, which)[0], some)


def test_reset_forgets_samples_and_detach_cuts_gradients() -> None:
    detector, frames = build("rvt-nano"), counts(1, 3, 20, 64, 64)
    _, state = detector(frames, detector.initial_state(frames))
    state = change(state, lambda tensor: tensor.clone())
    state[0][0].data[1] = torch.nan
    begun = reset(state, torch.tensor([False, True, False]))
    for before, after in zip(state, begun, strict=True):
        for old, new in zip(before, after, strict=True):
            assert not new[1].any()
            assert torch.equal(new[[0, 2]], old[[0, 2]])
            assert new.requires_grad
    assert not any(tensor.requires_grad for layer in detach(begun) for tensor in layer)


@pytest.mark.parametrize("memory", TEMPORAL_LAYERS)
@torch.no_grad()
def test_joined_states_are_those_of_one_batch(memory: str) -> None:
    torch.manual_seed(0)
    detector, frames = Detector(small(memories=(memory, "none", memory, memory))).eval(), counts(2, 3, 20, 64, 64)
    _, whole = detector(frames, detector.initial_state(frames))
    parts = [detector(part, detector.initial_state(part))[1] for part in (frames[:, :1], frames[:, 1:])]
    for found, expected in zip(join_states(parts), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("frames", "dt", "message"),
    [
        (torch.zeros(1, 1, 18, 64, 64), 1.0, r"\(T, B, 20, H, W\)"),
        (torch.zeros(1, 20, 64, 64), 1.0, r"\(T, B, 20, H, W\)"),
        (torch.zeros(1, 1, 20, 64, 64, dtype=torch.int64), 1.0, "uint8"),
        (torch.zeros(2, 1, 20, 64, 64), torch.ones(2), r"\(T, B\) = \(2, 1\)"),
        (torch.zeros(1, 1, 20, 64, 64), 0.0, "positive"),
        (torch.zeros(1, 2, 20, 64, 64), 1.0, "state"),
        (torch.zeros(1, 1, 20, 96, 64), 1.0, "state"),
    ],
)
def test_wrong_input_is_named(frames: Tensor, dt, message: str) -> None:
    detector = build("s5-vit-nano")
    state = detector.initial_state(torch.zeros(1, 1, 20, 64, 64))
    with pytest.raises(InputError, match=message):
        detector.encode(frames, state, dt)
    with pytest.raises(InputError, match="4 stages"):
        detector.encode(torch.zeros(1, 1, 20, 64, 64), state[:2], 1.0)
