"""`Detector.prepare(dt)`: the same bits, faster; and nothing that is kept outlives the parameters that it was made from."""

import copy

import pytest
import torch

from saccade.config import presets
from saccade.model.detector import Detector

NANO = [name for name in presets if name.endswith("nano")]  # one for each memory


def build(name: str) -> Detector:
    torch.manual_seed(0)
    return Detector(presets[name]()).eval()


def steps(detector: Detector, sizes: list[float]) -> list[torch.Tensor]:
    """What the memory of every stage holds, and the features, after each step."""
    frames = (torch.rand(1, 1, 20, 32, 64, generator=torch.Generator().manual_seed(1)) < 0.1).to(torch.uint8)
    out = []
    with torch.inference_mode():
        state = detector.initial_state(frames)
        for dt in sizes:
            pyramid, state = detector.encode(frames, state, dt)
            out += [*pyramid, *(tensor for layer in state for tensor in layer)]
    return out


def assert_same(left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("name", NANO)
def test_results_are_the_same_to_the_bit(name: str) -> None:
    sizes = [1.0, 0.1, 0.1, 0.33334, 1.0, 2.5]
    plain, prepared = build(name), build(name)
    for dt in (0.1, 0.33334, 1.0):
        prepared.prepare(dt)
    assert_same(steps(prepared, sizes), steps(plain, sizes))
    for dt in (0.001 * k for k in range(1, 30)):  # more than are kept
        prepared.prepare(dt)
    assert_same(steps(prepared, sizes), steps(plain, sizes))


@pytest.mark.parametrize("name", NANO)
def test_what_is_kept_ends_with_its_parameters(name: str) -> None:
    prepared = build(name)
    prepared.prepare(0.1)
    other = copy.deepcopy(prepared)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.01)
    expected = build(name)
    expected.load_state_dict(other.state_dict())
    assert_same(steps(other, [0.1, 0.1]), steps(expected, [0.1, 0.1]))
    prepared.load_state_dict(other.state_dict())
    assert_same(steps(prepared, [0.1, 0.1]), steps(expected, [0.1, 0.1]))


@pytest.mark.parametrize("name", NANO)
def test_a_period_of_no_whole_microseconds_is_sampled_once_for_each_of_its_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """59.94 Hz has periods of 16,683 and 16,684 us: both stay prepared, so that no step computes the matrix exponential again."""
    detector = build(name)
    sizes = [16_683 / 50_000, 16_684 / 50_000]
    for dt in sizes:
        detector.prepare(dt)
    for module in detector.modules():
        for method in ("sampled", "_sampled"):
            if hasattr(module, method):
                monkeypatch.setattr(module, method, lambda *_: pytest.fail("sampled again"))
    steps(detector, [*sizes, *sizes, sizes[1], sizes[0]])


def test_training_is_not_prepared() -> None:
    """Gradients reach the parameters, though a step of the same dt is kept."""
    detector = build("s5-vit-nano")
    detector.prepare(1.0)
    frames = torch.ones(1, 1, 20, 32, 32, dtype=torch.uint8)
    detector.train()
    pyramid, _ = detector.encode(frames, detector.initial_state(frames), 1.0)
    sum(level.square().sum() for level in pyramid).backward()
    memory = detector.backbone.stages[0].memory.memory
    assert memory.log_decay.grad is not None
    assert memory.B.grad.abs().sum() > 0
