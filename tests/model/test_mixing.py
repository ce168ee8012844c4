"""Spatial mixing: attention by plain products, RED's gated convolutions and GET's groups."""

import pytest
import torch
import torch.nn.functional as F

from saccade.config import presets
from saccade.model.detector import Detector
from saccade.model.mixing import FEW_HALF_TOKENS, FEW_TOKENS, DualAttentionBlock, GroupAttention, SqueezeExcite, _attention

GROUPS, WIDTH = 4, 8


def block(groups: int = GROUPS) -> DualAttentionBlock:
    torch.manual_seed(0)
    return DualAttentionBlock(groups * WIDTH, groups, head_dim=4, layer_scale=1.0, norm_first=False)


@torch.no_grad()
def test_a_group_is_one_polarity_and_one_half_of_the_window() -> None:
    """Before the first attention: bins of one group reach its channels alone."""
    stage = Detector(presets["get-nano"]()).backbone.stages[0]
    for bin_number in range(20):
        frames = torch.zeros(1, 20, 32, 32)
        frames[:, bin_number] = 1
        seen = stage.downsample(frames).unflatten(1, (GROUPS, -1)).abs().amax((0, 2, 3, 4))
        assert seen.nonzero().flatten().tolist() == [bin_number // 5]


@torch.no_grad()
def test_groups_dont_mix_while_tokens_attend_and_tokens_dont_while_groups_do() -> None:
    layer, x = block(), torch.randn(2, 5, GROUPS, WIDTH)
    touched = x.clone()
    touched[0, 3, 2] += 1
    for attention, changed in ((layer.within, x.new_zeros(x.shape[:3])), (layer.between, x.new_zeros(x.shape[:3]))):
        if attention is layer.within:
            changed[0, :, 2] = 1  # every token of this window, in this group
        else:
            changed[0, 3, :] = 1  # every group of this token
        difference = (attention(touched) - attention(x)).abs().amax(-1)
        assert torch.equal(difference > 1e-6, changed.bool())


@torch.no_grad()
def test_attention_in_groups_is_attention_of_each_group() -> None:
    layer, x = block().within, torch.randn(2, 5, GROUPS, WIDTH)
    for group in range(GROUPS):
        heads = layer.qkv(x[:, :, group]).unflatten(-1, (2, 3, 4)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(*heads.unbind(3)).transpose(1, 2).flatten(2)
        torch.testing.assert_close(layer(x)[:, :, group], layer.project(attended) * layer.scale.weight)


@torch.no_grad()
def test_a_bias_turns_groups_away_from_each_other() -> None:
    """With all weight on itself, a group is told nothing of the others."""
    layer, x = block().between, torch.randn(1, 3, GROUPS, WIDTH)
    alone = torch.full((GROUPS, GROUPS), -1e4).fill_diagonal_(0)
    values = layer.qkv(x).unflatten(-1, (-1, 3, 4))[..., 2, :].flatten(3)
    torch.testing.assert_close(layer(x, alone), layer.project(values) * layer.scale.weight)


def test_one_group_has_no_attention_between_groups() -> None:
    names = {name for name, _ in block(1).named_parameters()}
    assert not any(name.startswith(("between", "bias")) for name in names)
    assert isinstance(block(1).within, GroupAttention)


@torch.no_grad()
def test_a_gate_is_of_its_frame_and_channel_and_opens_or_closes_the_block() -> None:
    torch.manual_seed(0)
    layer, x = SqueezeExcite(8), torch.randn(3, 4, 6, 8)
    gate = layer.gate(x)
    torch.testing.assert_close(gate[1], layer.gate(x[1:2].flip(1, 2))[0])  # where in the image doesn't matter
    assert not torch.allclose(gate[0], gate[1])
    plain = layer(x, (1, 1)) - x
    assert layer.excite.bias is not None
    layer.excite.weight.zero_()
    layer.excite.bias.fill_(-100)
    torch.testing.assert_close(layer(x, (1, 1)), x)
    layer.excite.bias[0] = 100
    opened = layer(x, (1, 1)) - x
    assert not opened[..., 1:].any()
    ratio = plain[..., 0] / opened[..., 0]  # the same gate at every pixel of a frame
    torch.testing.assert_close(ratio, ratio[:, :1, :1].expand_as(ratio), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("dtype", "tokens"), [(torch.float32, FEW_TOKENS), (torch.bfloat16, FEW_HALF_TOKENS)])
def test_plain_products_are_torchs_attention_forward_and_backward(dtype: torch.dtype, tokens: int) -> None:
    """Up to the number of tokens at which products are plain, and beyond it."""
    torch.manual_seed(0)
    within = 1e-5 if dtype == torch.float32 else 0.05
    for count in (tokens, tokens + 1):
        inputs = [torch.randn(2, 3, count, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
        found = torch.autograd.grad(_attention(*inputs).float().square().sum(), inputs)
        exact = [one.detach().double().requires_grad_() for one in inputs]
        expected = torch.autograd.grad(F.scaled_dot_product_attention(*exact).square().sum(), exact)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=within, atol=within * float(other.abs().max()))
