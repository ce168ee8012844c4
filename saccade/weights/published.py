"""Keys of the published checkpoints (S5-ViT and RVT, Lightning files) -> ours; size, data set and memory inferred from them."""

import re
from collections.abc import Mapping

from torch import Tensor

from saccade.config import GEN1_CLASSES, ONE_MPX_CLASSES, BackboneConfig, DetectorConfig, MemoryConfig
from saccade.model.temporal.s5 import decay_parameters
from saccade.types import InputError

PREFIX = "mdl."
_HEAD_DIMS = {32: 32, 48: 24, 64: 32}  # can't be inferred from the shapes: by the channels of the first stage (tiny, small, base)
_SIZES = {32: "t", 48: "s", 64: "b"}

_RENAMED = [
    (r"^backbone\.stages\.(\d)\.downsample_cf2cl\.conv\.", r"backbone.stages.\1.downsample."),
    (r"^backbone\.stages\.(\d)\.downsample_cf2cl\.norm\.", r"backbone.stages.\1.norm."),
    (r"\.att_blocks\.0\.att_(window|grid)\.", r".mixing.\1."),
    (r"\.self_attn\.qkv\.", ".qkv."),
    (r"\.self_attn\.proj\.", ".project."),
    (r"\.ls1\.gamma$", ".scale.weight"),
    (r"\.ls2\.gamma$", ".feed.scale.weight"),
    (r"\.norm1\.", ".norm."),
    (r"\.norm2\.", ".feed.norm."),
    (r"\.mlp\.net\.0\.0\.", ".feed.widen."),
    (r"\.mlp\.net\.2\.", ".feed.narrow."),
    (r"\.s5_block\.s5\.seq\.", ".memory.memory."),
    (r"\.s5_block\.attn_norm\.", ".memory.norm."),
    (r"\.s5_block\.ff_norm\.", ".memory.feed_norm."),
    (r"\.s5_block\.ff_enc\.", ".memory.feed_in."),
    (r"\.s5_block\.ff_dec\.", ".memory.feed_out."),
    (r"\.lstm\.conv1x1\.", ".memory.gates."),
    (r"^fpn\.(.*)\.m\.(\d+)\.conv1\.", r"fpn.\1.bottlenecks.\2.0."),
    (r"^fpn\.(.*)\.m\.(\d+)\.conv2\.", r"fpn.\1.bottlenecks.\2.1."),
    (r"^fpn\.(C3_..)\.conv1\.", r"fpn.\1.through."),
    (r"^fpn\.(C3_..)\.conv2\.", r"fpn.\1.around."),
    (r"^fpn\.(C3_..)\.conv3\.", r"fpn.\1.join."),
    (r"^fpn\.lateral_conv0\.", "neck.reduce_coarse."),
    (r"^fpn\.C3_p4\.", "neck.merge_middle."),
    (r"^fpn\.reduce_conv1\.", "neck.reduce_middle."),
    (r"^fpn\.C3_p3\.", "neck.merge_fine."),
    (r"^fpn\.bu_conv2\.", "neck.down_fine."),
    (r"^fpn\.C3_n3\.", "neck.out_middle."),
    (r"^fpn\.bu_conv1\.", "neck.down_middle."),
    (r"^fpn\.C3_n4\.", "neck.out_coarse."),
    (r"^yolox_head\.stems\.(\d)\.", r"head.scales.\1.stem."),
    (r"^yolox_head\.cls_convs\.(\d)\.", r"head.scales.\1.class_branch."),
    (r"^yolox_head\.reg_convs\.(\d)\.", r"head.scales.\1.box_branch."),
    (r"^yolox_head\.cls_preds\.(\d)\.", r"head.scales.\1.classes."),
    (r"^yolox_head\.reg_preds\.(\d)\.", r"head.scales.\1.boxes."),
    (r"^yolox_head\.obj_preds\.(\d)\.", r"head.scales.\1.objectness."),
    (r"\.bn\.", ".norm."),
]


def is_published(state_dict: Mapping[str, object]) -> bool:
    return any(key.startswith(f"{PREFIX}backbone.stages.") for key in state_dict)


def from_published(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under our names; S5's Lambda becomes decay and frequency, the LSTM's 1x1 convolution a matrix."""
    ours: dict[str, Tensor] = {}
    for key, value in state_dict.items():
        if not key.startswith(PREFIX):
            raise InputError(f"key {key!r}: expected the prefix {PREFIX!r} as in every published checkpoint")
        name = key.removeprefix(PREFIX)
        for pattern, replacement in _RENAMED:
            name = re.sub(pattern, replacement, name)
        if name.endswith(".memory.memory.Lambda"):
            if value.ndim != 2 or value.shape[1] != 2:
                raise InputError(f"{key}: expected shape (P, 2), got {tuple(value.shape)}")
            ours |= {name.removesuffix("Lambda") + part: tensor for part, tensor in decay_parameters(value.float()).items()}
        elif name.endswith(".memory.gates.weight") and value.ndim == 4:
            ours[name] = value[:, :, 0, 0]
        else:
            ours[name] = value
    return ours


def infer_config(state_dict: Mapping[str, Tensor]) -> DetectorConfig:
    """The model that a published state dict belongs to. Two classes mean Gen1, three 1 Mpx: checkpoints don't name their data set."""
    dims = tuple(_shape(state_dict, f"backbone.stages.{index}.downsample_cf2cl.conv.weight")[0] for index in range(4))
    channels = _shape(state_dict, "backbone.stages.0.downsample_cf2cl.conv.weight")[1]
    classes, head_width = _shape(state_dict, "yolox_head.cls_preds.0.weight")[:2]
    if len(dims) != 4 or channels % 2 or dims[0] not in _HEAD_DIMS:
        raise InputError(f"stages of {dims} channels on frames of {channels}: expected published tiny (32), small (48) or base (64)")
    memory, family = ("s5", "s5-vit") if any(".s5_block." in key for key in state_dict) else ("lstm", "rvt")
    names = {2: GEN1_CLASSES, 3: ONE_MPX_CLASSES}.get(classes)
    if names is None:
        raise InputError(f"{classes} classes: published checkpoints have 2 (Gen1) or 3 (1 Mpx)")
    one_mpx = classes == 3
    return DetectorConfig(
        name=f"{family}-{_SIZES[dims[0]]}",
        backbone=BackboneConfig(
            channels=channels,
            dims=dims,
            head_dim=_HEAD_DIMS[dims[0]],
            split=2 if one_mpx else 1,
            memories=(memory,) * 4,  # type: ignore[arg-type]
            memory=MemoryConfig(discretisation="bilinear", bandlimit=None),
        ),
        bottlenecks=sum(re.fullmatch(r"mdl\.fpn\.C3_p4\.m\.\d+\.conv1\.conv\.weight", key) is not None for key in state_dict),
        head_width=head_width,
        classes=names,
        bins=channels // 2,
        histogram="published",
        halved="published" if one_mpx else "no",
        notes=f"published checkpoint, {'1 Mpx' if one_mpx else 'Gen1'}",
    )


def _shape(state_dict: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    if PREFIX + name not in state_dict:
        raise InputError(f"no key {PREFIX + name!r}: not a whole checkpoint of S5-ViT or RVT")
    shape = tuple(state_dict[PREFIX + name].shape)
    if len(shape) != 4:
        raise InputError(f"{PREFIX + name}: expected a convolution's four axes, got {shape}")
    return shape
