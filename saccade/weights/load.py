"""WEIGHTS FILE <-> DETECTOR: our files hold their model's configuration; published checkpoints load as downloaded; none can run code."""

import json
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from saccade.arrays import check_archive
from saccade.config import DetectorConfig, presets
from saccade.files import check_readable, replacing
from saccade.machine import device_named
from saccade.model.detector import Detector
from saccade.s3 import located
from saccade.samples import shipped_weights
from saccade.types import InputError
from saccade.weights.published import from_published, infer_config, is_published

FORMAT = "1"
LARGEST_PICKLE = 4 << 20  # bytes; of published checkpoints with their optimiser less than 1 MB
# Classes that Lightning pickles beside the weights: read as inert placeholders. Any other class is refused.
_HARMLESS = re.compile(
    r"(omegaconf|lightning|pytorch_lightning|lightning_fabric|pathlib|typing|collections|argparse)\..*|"
    r"builtins\.(int|float|bool|str|bytes|list|tuple|dict|set|object)"
)


@dataclass(frozen=True)
class Weights:
    """What a weights file holds."""

    kind: Literal["saccade", "published"]
    config: DetectorConfig
    tensors: dict[str, Tensor]  # under our names
    training: dict[str, Any]  # data, steps and scores, as the training wrote them


def save_detector(detector: Detector, path: Path | str, *, training: Mapping[str, Any] | None = None, half: bool = False) -> None:
    """Write a safetensors file from which the model can be built: tensors, configuration, and notes about the training.

    half: matrices in half precision, for half the size; time constants, norms and biases stay as they are, and so does all computing.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in detector.state_dict().items()}
    if half:
        tensors = {name: value.half() if value.is_floating_point() and value.ndim > 1 else value for name, value in tensors.items()}
    metadata = {"saccade": FORMAT, "config": detector.config.to_json(), "training": json.dumps(dict(training or {}))}
    with replacing(located(path)) as temporary:
        save_file(tensors, temporary, metadata)


def find_weights(path_or_name: Path | str) -> Path:
    """A readable file: the one of this path, or else the weights of this name that come with saccade. A folder of that name is ignored."""
    path, name, shipped = located(path_or_name), str(path_or_name), shipped_weights()
    if name in shipped and not path.is_file():
        return shipped[name]
    if path.name == name and not path.suffix and not os.path.exists(path):
        names = f"shipped: {', '.join(shipped) or 'none'}"
        if name in presets:
            raise InputError(
                f"{name}: is a preset, and no trained weights of that name come with saccade ({names}); give a weights file, or build an "
                f"untrained one with Detector(saccade.config.presets[{name!r}]())"
            )
        raise InputError(f"{name}: no such file, and no weights of that name come with saccade ({names}); give a weights file")
    check_readable(path)
    return path


def load_detector(path_or_name: Path | str, device: str | torch.device = "cpu") -> Detector:
    """The detector of a weights file (ours or a published checkpoint) or of a name that comes with saccade, ready to detect.

    Call `.train()` to train it further.
    """
    place = torch.device(device_named(str(device)))
    weights = read_weights(path_or_name)
    detector = Detector(weights.config)
    detector.load_state_dict(weights.tensors)
    return detector.to(place).eval()


def read_weights(path_or_name: Path | str) -> Weights:
    """Everything in a weights file, checked: the tensors are those of the model that the configuration describes."""
    path = find_weights(path_or_name)
    with path.open("rb") as file:
        start = file.read(9)
    if len(start) == 9 and start[8:] == b"{" and struct.unpack("<Q", start[:8])[0] < 1 << 30:
        weights = _read_own(path)
    elif start[:2] == b"PK":
        weights = _read_checkpoint(path)
    else:
        raise InputError(f"{path}: neither a safetensors file of saccade nor a checkpoint of S5-ViT or RVT (begins with {start!r})")
    _check_tensors(path, weights)
    return weights


def _read_own(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "config" not in metadata:
                raise InputError(f"{path}: a safetensors file without saccade's configuration; expected one that `save_detector` wrote")
            if metadata.get("saccade") != FORMAT:
                raise InputError(f"{path}: written in format {metadata.get('saccade')}, this saccade reads {FORMAT}; update saccade")
            config = DetectorConfig.from_json(metadata["config"])
            training = json.loads(metadata.get("training", "{}"))
            return Weights("saccade", config, {name: file.get_tensor(name) for name in file.keys()}, training)  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: damaged or cut off ({error}); download or copy it again") from error
    except InputError as error:
        raise error if str(error).startswith(str(path)) else InputError(f"{path}: {error}") from error


def _read_checkpoint(path: Path) -> Weights:
    content = _load_safely(path)
    if isinstance(content, dict) and {"detector", "average", "binding"} <= content.keys():
        return _of_training(path, content)
    tensors = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(tensors, dict) or not tensors or not all(isinstance(key, str) for key in tensors):
        raise InputError(f"{path}: no `state_dict` inside; expected a checkpoint of S5-ViT or RVT as downloaded")
    if not is_published(tensors):
        raise InputError(
            f"{path}: of another architecture (first key {next(iter(tensors))!r}); expected `mdl.backbone...` of S5-ViT or RVT"
        )
    _check_plain(path, tensors)
    try:
        return Weights("published", infer_config(tensors), from_published(tensors), {})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _of_training(path: Path, content: dict[str, Any]) -> Weights:
    """The weights so far of a training of ours, averaged if it averages: its `last.pt` is as good as its final.safetensors will be."""
    tensors = content["detector"] if content["average"] is None else content["average"]
    try:
        binding = json.loads(content["binding"])
        config = DetectorConfig.from_json(json.dumps(binding.pop("config")))
        step = int(content["step"])
    except (InputError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: a checkpoint of a training without its settings ({error}); it is damaged") from error
    if not isinstance(tensors, dict):
        raise InputError(f"{path}: a checkpoint of a training without weights; it is damaged")
    _check_plain(path, tensors)
    return Weights("saccade", config, dict(tensors), {"steps": step, "settings": binding})


def _check_plain(path: Path, tensors: dict[Any, Any]) -> None:
    strange = [
        key for key, value in tensors.items() if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized
    ]
    if strange:
        raise InputError(f"{path}: {strange[0]} is no plain tensor; the checkpoint is damaged")
    if sum(value.numel() * value.element_size() for value in tensors.values()) > path.stat().st_size:
        raise InputError(f"{path}: its tensors state more numbers than it holds; it is damaged or was made to harm")


def _load_safely(path: Path) -> Any:
    """`torch.load` that builds tensors and plain containers only. Any other class that the pickle names is refused and never run."""
    try:
        check_checkpoint(path)
        asked = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        refused = [name for name in asked if not _HARMLESS.fullmatch(name)]
        if not refused:
            with torch.serialization.safe_globals([(_Placeholder, name) for name in asked]):
                return torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        if lines[0].startswith("Weights only load failed"):  # torch then advises to load it unsafely; the reason is on the next line
            reason = lines[1].split("WeightsUnpickler error:")[-1].strip() if len(lines) > 1 else "no plain tensors"
            raise InputError(f"{path}: holds more than weights ({reason:.150}); nothing of it was run") from error
        raise InputError(f"{path}: damaged or cut off ({lines[0]:.150}); download it again") from error
    raise InputError(f"{path}: asks for code that weights don't need ({', '.join(refused[:3])}); nothing of it was run")


def check_checkpoint(path: Path) -> None:
    """InputError unless it is a zip as torch writes it, without compression: unpacked, a few MB of pickle could be gigabytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path, methods=(zipfile.ZIP_STORED,))
            pickled = sum(member.file_size for member in archive.infolist() if member.filename.endswith(".pkl"))
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: damaged or cut off ({error}); download it again") from error
    if pickled > LARGEST_PICKLE:
        raise InputError(f"{path}: {pickled >> 20} MB beside its tensors; weights have less than one, so it isn't one of ours")


class _Placeholder:
    """Inert placeholder for pickled classes we don't need: accepts any arguments and state, and keeps nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _check_tensors(path: Path, weights: Weights) -> None:
    """What decides the size of the model first, then the rest by a model without memory: a wrong configuration could ask for any amount."""
    numbers = sum(value.numel() for value in weights.tensors.values())
    if weights.config.bottlenecks > len(weights.tensors) or any(dim * dim > numbers for dim in weights.config.backbone.dims):
        config = f"{weights.config.bottlenecks} bottlenecks, {weights.config.backbone.dims} channels"
        raise InputError(f"{path}: its configuration ({config}) asks for more than its {len(weights.tensors)} tensors hold; it is damaged")
    for index, dim in enumerate(weights.config.backbone.dims):
        first = weights.tensors.get(f"backbone.stages.{index}.downsample.weight")
        if first is None or first.ndim != 4 or first.shape[0] != dim:
            raise InputError(f"{path}: stage {index} should have {dim} channels, but {'has no weights' if first is None else first.shape}")
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in Detector(weights.config).state_dict().items()}
    missing, unexpected = sorted(set(expected) - set(weights.tensors)), sorted(set(weights.tensors) - set(expected))
    if missing or unexpected:
        raise InputError(
            f"{path}: not the weights of {weights.config.name}: {len(missing)} missing ({', '.join(missing[:3]) or '-'}), "
            f"{len(unexpected)} unexpected ({', '.join(unexpected[:3]) or '-'})"
        )
    for name, shape in expected.items():
        if tuple(weights.tensors[name].shape) != shape:
            raise InputError(f"{path}: {name} has shape {tuple(weights.tensors[name].shape)}, expected {shape}")
        if not torch.isfinite(weights.tensors[name]).all():
            raise InputError(f"{path}: {name} holds NaN or infinity; the training that wrote it went wrong")
