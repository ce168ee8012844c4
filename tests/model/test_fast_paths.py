"""Fast ways of the network on a CPU compute what their plain twins compute, gradients included."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config import presets
from saccade.model.detector import Detector
from saccade.model.linear import linear, matmul
from saccade.model.recomputed import recomputing
from saccade.model.sparse import convolve_frames
from saccade.model.temporal import build_temporal


def gradients(value: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    upstream = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad(value, inputs, upstream)


@pytest.mark.parametrize("shape", [(3, 5), (4, 1000, 16), (30_000, 16), (9000, 64), (300, 128)], ids=str)
@pytest.mark.parametrize("outputs", [16, 200])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_is_torchs(shape: tuple[int, ...], outputs: int, biased: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(outputs, shape[-1], requires_grad=True)
    bias = torch.randn(outputs, requires_grad=True) if biased else None
    inputs = (x, weight) if bias is None else (x, weight, bias)
    ours, plain = linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)
    for own, expected in zip(gradients(ours, *inputs), gradients(plain, *inputs), strict=True):
        assert own.shape == expected.shape
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(9000, 32, 64), (64, 9000, 64), (16, 9000, 16), (1, 2000, 2000)])
def test_matmul_is_torchs(rows: int, inner: int, columns: int) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    for one in (left, left.T.contiguous().T):
        for other in (right, right.T.contiguous().T):
            torch.testing.assert_close(matmul(one, other), left @ right, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("density", [0.0, 0.001, 0.02, 0.5])
@pytest.mark.parametrize(("size", "stride"), [(7, 4), (3, 2)])
def test_convolution_of_counts_is_torchs(density: float, size: int, stride: int) -> None:
    torch.manual_seed(0)
    frames = (torch.randint(1, 256, (3, 6, 32, 64)) * (torch.rand(3, 6, 32, 64) < density)).to(torch.uint8)
    frames[0, 0, 0, 0] = frames[-1, -1, -1, -1] = 1  # corners
    layer = nn.Conv2d(6, 10, size, stride, padding=size // 2, bias=False)
    ours, plain = convolve_frames(frames, layer), layer(frames.float()).permute(0, 2, 3, 1)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(gradients(ours, layer.weight)[0], gradients(plain, layer.weight)[0], rtol=1e-4, atol=1e-1)


@pytest.mark.parametrize("name", ["s5-vit-nano", "gs5-vit-nano", "rvt-nano", "red-nano", "get-nano"])
def test_detector_as_in_double_precision(name: str) -> None:
    """Fast ways are of float32: in float64 the whole detector takes the plain ones."""
    torch.manual_seed(0)
    detector = Detector(presets[name]()).train()
    frames = (torch.randint(1, 4, (2, 2, 20, 128, 160)) * (torch.rand(2, 2, 20, 128, 160) < 0.01)).to(torch.uint8)

    def learn(frames: Tensor) -> tuple[Tensor, list[Tensor]]:
        predictions, _ = detector(frames, detector.initial_state(frames), 1.0)
        total = sum(part.tanh().mean() for part in predictions[:3])
        return total.detach(), list(torch.autograd.grad(total, list(detector.parameters()), allow_unused=True))

    total, fast = learn(frames)
    detector = detector.double()
    exact, slow = learn(frames)
    assert float(total) == pytest.approx(float(exact), abs=1e-5)
    for own, expected in zip(fast, slow, strict=True):
        torch.testing.assert_close(own.double(), expected, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", ["s5-vit-nano", "gs5-vit-nano", "s4d-vit-nano"])
def test_what_is_recomputed_has_the_same_gradients_and_keeps_less(name: str) -> None:
    torch.manual_seed(0)
    detector = Detector(presets[name]()).train()
    parameters = list(detector.backbone.parameters())
    frames = (torch.randint(1, 4, (2, 1, 20, 128, 160)) * (torch.rand(2, 1, 20, 128, 160) < 0.02)).to(torch.uint8)

    def learn() -> tuple[int, list[Tensor]]:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            pyramid, _ = detector.encode(frames, detector.initial_state(frames), 1.0)
        total = sum(level.tanh().mean() for level in pyramid)
        own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        return sum(size for place, size in kept.items() if place not in own), list(torch.autograd.grad(total, parameters))

    most, expected = learn()
    with recomputing():
        least, found = learn()
    assert least < 0.9 * most
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["s4", "s4d"])
def test_a_step_without_gradients_is_one_with(name: str) -> None:
    """With steps that differ, as those of a camera whose period is no whole number of microseconds."""
    torch.manual_seed(0)
    layer = build_temporal(name, dim=4)
    clip, dt = torch.randn(3, 2, 2, 3, 4), torch.tensor([[0.33366, 0.33368], [0.33368, 0.33366], [0.33366, 0.33366]])
    whole, last = layer(clip, layer.initial_state(clip), dt)
    state = layer.initial_state(clip)
    with torch.no_grad():
        for t, expected in enumerate(whole):
            y, state = layer(clip[t : t + 1], state, dt[t : t + 1])
            torch.testing.assert_close(y[0], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, last, rtol=1e-4, atol=1e-5)
