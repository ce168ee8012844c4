"""SETTINGS -> DETECTOR to train: a preset with fresh weights, or that of a weights file."""

import logging
from dataclasses import replace

import torch
from torch import Tensor

from saccade.config import DetectorConfig, presets
from saccade.datasets.classes import places_of
from saccade.datasets.recording import Dataset, Halve
from saccade.machine import killing_signal
from saccade.model.detector import Detector
from saccade.training.settings import MemoryChanges, TrainingSettings
from saccade.types import InputError
from saccade.weights.load import Weights, find_weights, read_weights

log = logging.getLogger("saccade")


def build_detector(settings: TrainingSettings, dataset: Dataset, config: DetectorConfig | None = None) -> Detector:
    """For the classes of the data set; the seed decides fresh weights, whatever torch's generator did before.

    CONFIG, if given, is the detector to start from fresh weights: one that no preset names. `settings.model` is then only its name.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if config is not None or settings.model in presets:
            config = config or presets[settings.model]()
            backbone = replace(config.backbone, split=settings.split, memory=settings.memory.of(config.backbone.memory))
            classes, halved, histogram = tuple(dataset.classes), settings.halved, settings.histogram
            known = {"backbone": backbone, "classes": classes, "halved": halved, "histogram": histogram, "trained_size": _size(dataset)}
            return Detector(replace(config, **known)).train()  # type: ignore[arg-type]
        if settings.memory != MemoryChanges():
            raise InputError(
                f"training: model={settings.model} keeps the memory it was trained with; leave --memory away, or take a preset"
            )
        weights = _read(settings.model)
        detector = Detector(replace(weights.config, classes=tuple(dataset.classes), trained_size=_size(dataset)))
    detector.load_state_dict(weights.tensors | _class_outputs(weights, detector, settings.model))
    return detector.train()


def _class_outputs(weights: Weights, detector: Detector, name: str) -> dict[str, Tensor]:
    """Outputs of the classes: those of known names keep their weights, the others are those of the fresh DETECTOR."""
    known, wanted = weights.config.classes, detector.config.classes
    if known == wanted:
        return {}
    places = places_of(wanted, known)
    kept = [f"{one} from {known[place]}" if one != known[place] else one for one, place in zip(wanted, places, strict=True) if place >= 0]
    anew = [one for one, place in zip(wanted, places, strict=True) if place < 0]
    left = [one for number, one in enumerate(known) if number not in places]
    parts = {"keeps its outputs for": kept, "starts anew for": anew, "gives up": left}
    log.warning("%s %s", name, "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names))
    outputs = {key: value.clone() for key, value in detector.state_dict().items() if key.startswith("head.") and ".classes." in key}
    rows = [row for row, place in enumerate(places) if place >= 0]
    for key, value in outputs.items():
        value[rows] = weights.tensors[key][[places[row] for row in rows]].to(value.dtype)
    return outputs


def halving_of(settings: TrainingSettings) -> Halve:
    """How the frames to train on are to be halved: as the weights file that training starts from says, else as the settings say."""
    return settings.halved if settings.model in presets else _read(settings.model).config.halved


def _read(model: str) -> Weights:
    try:
        path = find_weights(model)
    except InputError as error:
        raise InputError(f"training: model={model!r} is neither a weights file nor one of {', '.join(presets)}: {error}") from error
    return read_weights(path)


def _size(dataset: Dataset) -> tuple[int, int] | None:
    if not dataset.recordings:
        return None
    return max(recording.width for recording in dataset.recordings), max(recording.height for recording in dataset.recordings)


def choose_tf32(settings: TrainingSettings, config: DetectorConfig, device: torch.device) -> None:
    """Let products on a GPU be computed in TF32, or not, for this process.

    S4 and S4D advance their state by products with decays near 1, which TF32 rounds to multiples of 5e-4: at 200 Hz (dt = 0.1) a time
    constant of 100 windows, a decay of 0.9990, would be half or twice as long. S5, gated S5 and the LSTM multiply element by element.
    """
    if device.type != "cuda":
        return
    multiplied = {"s4", "s4d"} & {*config.backbone.memories}
    allowed = settings.tf32 == "on" or (settings.tf32 == "auto" and not multiplied)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def check_half_precision(device: torch.device) -> None:
    """Try bfloat16 in a subprocess: some virtual machines offer its instructions and then end the process with SIGILL."""
    if device.type != "cpu":
        return
    code = "import torch\nwith torch.autocast('cpu', torch.bfloat16): torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64))"
    number = killing_signal(code)
    if number is not None:
        raise InputError(
            f"training: precision=bf16 ends a process on this machine with signal {number}; use precision=fp32, or set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before the start"
        )
