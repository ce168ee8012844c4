"""Every setting of a detector as a frozen dataclass, kept in its weights file; presets are functions that return one."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Literal, cast, get_args

from saccade.files import from_plain
from saccade.types import InputError, check_class_names

MemoryName = Literal["s5", "s4d", "s4", "gs5", "lstm", "convlstm", "none"]
Mixing = Literal["attention", "convnext", "ssm2d", "squeeze", "grouped"]

GEN1_CLASSES = ("car", "pedestrian")
MOST_CLASSES = 4096  # of a detector; the largest list of objects that people label has about 1,200
ONE_MPX_CLASSES = ("pedestrian", "two-wheeler", "car")
SCORE = 0.3  # least score of a box that is shown, where the weights don't say another


def round_up(side: int, multiple: int) -> int:
    """The least multiple of MULTIPLE that is at least SIDE."""
    return -(-side // multiple) * multiple


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """Options of the memory; each layer takes those that it has (`saccade.model.temporal`)."""

    spectrum: Literal["whole", "half"] = "whole"  # s5: whole as published; half: one of each conjugate pair, the same real system
    discretisation: Literal["zoh", "bilinear", "euler"] = "zoh"  # published weights were trained with bilinear
    initialisation: str = "legs"  # of the eigenvalues: legs, inv or lin
    blocks: int = 1  # s5: equal blocks of the initial state matrix (the paper's J); must divide half of every stage's channels
    step_limits: tuple[float, float] = (0.001, 0.1)  # initial timescales are log-uniform in here (the paper's delta_min, delta_max)
    timescales: Literal["published", "clip"] = "published"  # clip: initial time constants of 1 to 30 windows, which short clips can train
    bandlimit: float | None = 0.5  # fraction of the Nyquist frequency that passes at the training step, None = all (paper eq. 4)
    rolloff: float = 0.0  # width of the band limit's soft edge
    depthwise: bool = False  # lstm: 3x3 depthwise convolution of the hidden state, RVT's ablation

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise InputError(f"memory.blocks={self.blocks} must be at least 1")
        if not 0 < self.step_limits[0] < self.step_limits[1] < float("inf"):
            raise InputError(f"memory.step_limits={self.step_limits}: expected two numbers, 0 < lowest < highest")


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    channels: int = 20  # of a frame: 2 polarities x bins
    dims: tuple[int, int, int, int] = (64, 128, 256, 512)  # channels of the four stages
    head_dim: int = 32  # channels of one attention head
    split: int = 1  # attention windows per 32 x 32 pixels and axis: 1 for Gen1, 2 for 1 Mpx
    mixing: Mixing = "attention"
    groups: tuple[int, int, int, int] = (4, 4, 2, 1)  # grouped: of channels; in the first stage 2 polarities x equal parts of the bins
    layer_scale: float = 1e-5  # initial weight of each mixing block; the published 1e-5 takes long trainings to grow
    noise_floor: float = 1e-5  # eps of the first LayerNorm; the published 1e-5 scales a single noise event up to edge strength
    memories: tuple[MemoryName, MemoryName, MemoryName, MemoryName] = ("s5", "s5", "s5", "s5")
    reset: tuple[bool, bool, bool, bool] = (False, False, False, False)  # stages that forget at every step (the paper's ablation)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        for name in ("dims", "groups", "memories", "reset"):
            if len(getattr(self, name)) != 4:
                raise InputError(f"backbone.{name}={getattr(self, name)}: expected four entries, one for each stage")
        unknown = [name for name in self.memories if name not in get_args(MemoryName)]
        if unknown:
            raise InputError(f"backbone.memories: unknown {unknown[0]!r}; expected {', '.join(get_args(MemoryName))}")
        if self.mixing not in get_args(Mixing):
            raise InputError(f"backbone.mixing={self.mixing!r}: expected {', '.join(get_args(Mixing))}")
        if self.head_dim < 1:
            raise InputError(f"backbone.head_dim={self.head_dim} must be positive")
        if self.mixing == "attention" and any(dim % self.head_dim for dim in self.dims):
            raise InputError(f"backbone.dims={self.dims} must be multiples of head_dim={self.head_dim}")
        if self.mixing == "grouped":
            self._check_groups()
        if min(self.dims) < 1 or any(dim % 2 for dim in self.dims):
            raise InputError(f"backbone.dims={self.dims} must be even and positive")
        if "s5" in self.memories and any(dim % (2 * self.memory.blocks) for dim in self.dims):
            raise InputError(
                f"backbone.memory.blocks={self.memory.blocks}: half of the channels of every stage, {self.dims}, must be a multiple"
            )
        for name in ("split", "channels", "layer_scale", "noise_floor"):
            if not getattr(self, name) > 0:
                raise InputError(f"backbone.{name}={getattr(self, name)} must be positive")

    def _check_groups(self) -> None:
        if min(self.groups) < 1 or any(before % after for before, after in pairwise(self.groups)):
            raise InputError(f"backbone.groups={self.groups}: expected positive numbers, each a multiple of the next stage's")
        if self.channels % self.groups[0] or (self.groups[0] > 1 and self.groups[0] % 2):
            raise InputError(f"backbone.groups={self.groups}: the first must be 2 x a divisor of the {self.channels // 2} bins, or 1")
        for dim, groups in zip(self.dims, self.groups, strict=True):
            if dim % groups or (dim // groups) % min(self.head_dim, dim // groups):
                raise InputError(
                    f"backbone.dims={self.dims} must divide into groups={self.groups}, and each group into heads of "
                    f"head_dim={self.head_dim} channels, unless it is narrower"
                )

    @property
    def multiple(self) -> int:
        """Sides of the input must be multiples of this; `encode` pads with zeros at the bottom and right."""
        return 32 * self.split

    def padded(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of the frames that `encode` works on."""
        return round_up(height, self.multiple), round_up(width, self.multiple)


@dataclass(frozen=True, kw_only=True)
class DetectorConfig:
    """All that is needed to build a detector and to make its input frames."""

    name: str
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    bottlenecks: int = 2  # per CSP layer of the neck
    head_width: int = 128
    classes: tuple[str, ...] = GEN1_CLASSES
    window_us: int = 50_000  # length of a window, and the time that dt = 1 stands for
    bins: int = 10  # per window and polarity
    clip: int = 10  # largest count of a frame; higher ones are cut to it
    histogram: Literal["exact", "published"] = "exact"  # published: bins span the first to the last event, uint8 counters wrap at 256
    halved: Literal["no", "events", "published"] = "no"  # the sensor at half resolution, as for 1 Mpx; published: odd pixels only
    trained_size: tuple[int, int] | None = None  # width and height of the training frames; others work if objects are about as large
    score: float | None = None  # least score of a box that is shown, at which these weights miss and err about equally; None: SCORE
    notes: str = ""  # where the weights come from

    def __post_init__(self) -> None:
        if self.backbone.channels != 2 * self.bins:
            raise InputError(f"{self.name}: backbone.channels={self.backbone.channels} must be 2 x bins={self.bins}")
        check_class_names(self.classes, self.name)
        if len(self.classes) > MOST_CLASSES:
            raise InputError(f"{self.name}: {len(self.classes)} classes; expected at most {MOST_CLASSES}")
        if self.trained_size is not None and min(self.trained_size) < 1:
            raise InputError(f"{self.name}: trained_size={self.trained_size} must be a width and a height of at least 1 pixel")
        if self.score is not None and not 0 <= self.score <= 1:
            raise InputError(f"{self.name}: score={self.score} must be from 0 to 1")
        for name in ("bottlenecks", "head_width", "window_us", "bins", "clip"):
            if getattr(self, name) < 1:
                raise InputError(f"{self.name}: {name}={getattr(self, name)} must be positive")

    @property
    def least_score(self) -> float:
        """Of a box that is shown, if nobody asks for another."""
        return SCORE if self.score is None else self.score

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "DetectorConfig":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"config: not JSON ({error}); was the file written by saccade?") from error
        return cast(DetectorConfig, from_plain(cls, content, "config"))


def s5_vit_b() -> DetectorConfig:
    """S5-ViT-B: stages, neck and head of RVT-B, S5 as memory (paper table 1; 18,192,149 parameters)."""
    return DetectorConfig(name="s5-vit-b")


def s5_vit_s() -> DetectorConfig:
    """S5-ViT-S: three quarters of the channels, one bottleneck per CSP layer (paper table 1; 9,677,205 parameters)."""
    return _sized("s5-vit-s", (48, 96, 192, 384), head_dim=24, head_width=96)


def s5_vit_t() -> DetectorConfig:
    """S5-ViT-T: half the channels; the paper has no tiny S5, so the sizes are those of the published RVT-T."""
    return _sized("s5-vit-t", (32, 64, 128, 256), head_dim=32, head_width=64)


def s4d_vit_b() -> DetectorConfig:
    """S4D-ViT-B: one diagonal system of 32 states per channel and a gated mixing instead of S5 (paper table 1: 16.5 M)."""
    return with_memory(s5_vit_b(), "s4d-vit-b", "s4d")


def s4d_vit_s() -> DetectorConfig:
    """S4D-ViT-S (paper table 1: 8.8 M)."""
    return with_memory(s5_vit_s(), "s4d-vit-s", "s4d")


def s4_vit_b() -> DetectorConfig:
    """S4-ViT-B: full HiPPO-LegS systems instead of diagonal ones (paper, ablation study); sizes of S4D-ViT-B."""
    return with_memory(s5_vit_b(), "s4-vit-b", "s4")


def rvt_b() -> DetectorConfig:
    """RVT-B, the LSTM baseline (published code; 18,536,469 parameters)."""
    return with_memory(s5_vit_b(), "rvt-b", "lstm")


def rvt_s() -> DetectorConfig:
    """RVT-S (published code; 9,870,165 parameters)."""
    return with_memory(s5_vit_s(), "rvt-s", "lstm")


def rvt_t() -> DetectorConfig:
    """RVT-T (published code; 4,405,141 parameters)."""
    return with_memory(s5_vit_t(), "rvt-t", "lstm")


def s5_convnext_b() -> DetectorConfig:
    """S5-ConvNeXt-B: ConvNeXt blocks instead of attention (paper, appendix on SSM-only models); block sizes are ConvNeXt's own."""
    return _with_mixing(s5_vit_b(), "s5-convnext-b", "convnext")


def s5_ssm2d_b() -> DetectorConfig:
    """S5-SSM2D-B: scans along rows and columns, both ways, instead of attention (same appendix); sizes are ours, the paper gives none."""
    return _with_mixing(s5_vit_b(), "s5-ssm2d-b", "ssm2d")


def s5_vit_nano() -> DetectorConfig:
    """For a CPU: a quarter of the base channels, about 1 M parameters.

    Made for trainings of a thousand steps: initial time constants of 1 to 30 windows, which short clips can train, and a layer scale of 1
    (the published one takes some hundred steps to grow to where it matters). Its noise floor is about the response of an untrained
    convolution to thirty events: half of all patches without motion have one noise event in their 50 ms.
    """
    config = _sized("s5-vit-nano", (16, 32, 64, 128), head_dim=16, head_width=48)
    return replace(config, backbone=replace(config.backbone, memory=MemoryConfig(timescales="clip"), layer_scale=1.0, noise_floor=1e-2))


def s4d_vit_nano() -> DetectorConfig:
    """`s5-vit-nano` with S4D."""
    return with_memory(s5_vit_nano(), "s4d-vit-nano", "s4d")


def s4_vit_nano() -> DetectorConfig:
    """`s5-vit-nano` with S4."""
    return with_memory(s5_vit_nano(), "s4-vit-nano", "s4")


def gs5_vit_nano() -> DetectorConfig:
    """`s5-vit-nano` with gated S5, ours."""
    return with_memory(s5_vit_nano(), "gs5-vit-nano", "gs5")


def gs5_vit_small() -> DetectorConfig:
    """`gs5-vit-nano` with twice the channels and the same detection head, 4.25 M parameters: what `saccade weights --widen` makes of it."""
    config = gs5_vit_nano()
    return replace(config, name="gs5-vit-small", backbone=replace(config.backbone, dims=(32, 64, 128, 256), head_dim=32))


def rvt_nano() -> DetectorConfig:
    """`s5-vit-nano` with RVT's LSTM."""
    return with_memory(s5_vit_nano(), "rvt-nano", "lstm")


def red_nano() -> DetectorConfig:
    """After RED (Perot et al. 2020): squeeze-and-excitation convolutions, ConvLSTMs at strides 8, 16 and 32, which boxes are found from.

    As in RED, the stage before has no memory, and all after it are of one width (there 256). Ours are the input (stacked histograms), four
    stages instead of a feed-forward part and five levels, and YOLOX's neck and head instead of SSD's: what is compared is the backbone.
    """
    config = _sized("red-nano", (32, 56, 56, 56), head_dim=8, head_width=48)
    return replace(config, backbone=replace(config.backbone, mixing="squeeze", memories=("none", "convlstm", "convlstm", "convlstm")))


def get_nano() -> DetectorConfig:
    """After GET (Peng et al. 2023): attention within and between groups of channels, which have a polarity and a half of the window each.

    The groups are 2 polarities x 2 halves at strides 4 and 8, the polarities at 16, and one at 32; channels, neck and head are those of the
    other nano presets. GET has 12 or 24 groups, of events that it bins by itself. For detection it has a recurrent memory (paper table 1)
    of which we know no more: here it is RVT's LSTM.
    """
    return _with_mixing(rvt_nano(), "get-nano", "grouped")


def _sized(name: str, dims: tuple[int, int, int, int], head_dim: int, head_width: int) -> DetectorConfig:
    return DetectorConfig(name=name, backbone=BackboneConfig(dims=dims, head_dim=head_dim), bottlenecks=1, head_width=head_width)


def with_memory(config: DetectorConfig, name: str, memory: MemoryName) -> DetectorConfig:
    """CONFIG with this memory in every stage.

    An LSTM gets the published noise floor: its gates see what it remembers, so it needs none, and learns less with a higher one.
    """
    floor = config.backbone.noise_floor if memory not in ("lstm", "convlstm") else BackboneConfig.noise_floor
    return replace(config, name=name, backbone=replace(config.backbone, memories=(memory,) * 4, noise_floor=floor))


def _with_mixing(config: DetectorConfig, name: str, mixing: Mixing) -> DetectorConfig:
    return replace(config, name=name, backbone=replace(config.backbone, mixing=mixing))


presets: dict[str, Callable[[], DetectorConfig]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        s5_vit_b, s5_vit_s, s5_vit_t, s4d_vit_b, s4d_vit_s, s4_vit_b, rvt_b, rvt_s, rvt_t, s5_convnext_b, s5_ssm2d_b,
        s5_vit_nano, s4d_vit_nano, s4_vit_nano, gs5_vit_nano, gs5_vit_small, rvt_nano, red_nano, get_nano,
    )
}  # fmt: skip
