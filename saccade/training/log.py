"""STEPS -> metrics.jsonl, TensorBoard, W&B, progress bar, loss.png: each step once, also after a crash."""

import json
import logging
import resource
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from saccade.files import replacing
from saccade.training.settings import TrainingSettings
from saccade.types import InputError

METRICS = "metrics.jsonl"
TERMS = ("total", "iou", "objectness", "class", "l1", "h2")  # of the loss, in the plot
log = logging.getLogger("saccade")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line that a crash cut off is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


class Log:
    """Writes the metrics of a training from step FIRST on; what an interrupted run wrote about later steps is removed."""

    def __init__(self, out: Path, settings: TrainingSettings, first: int, *, name: str = "") -> None:
        kept = [row for row in read_metrics(out / METRICS) if row["step"] <= first]
        with replacing(out / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in kept))
        self._file = (out / METRICS).open("a")
        self._tensorboard = _tensorboard(out / "tensorboard", first) if "tensorboard" in settings.log else None
        self._wandb = _wandb(out, settings, name) if "wandb" in settings.log else None
        self._bar = tqdm(total=settings.steps, initial=first, unit="step", desc="training", disable=None, dynamic_ncols=True)

    def step(self, step: int, values: dict[str, Any]) -> None:
        self._write("train", step, values)
        shown = {name: values[name] for name in ("total", "iou", "objectness", "class") if name in values}
        self._bar.set_postfix_str(
            " ".join(f"{name} {value:.3f}" for name, value in shown.items())
            + f", {values['frames_per_s']:.0f} frames/s, {values['memory_mb']:.0f} MB",
            refresh=False,
        )
        self._bar.update()

    def validation(self, step: int, values: dict[str, Any]) -> None:
        self._write("validation", step, values)
        said = ", ".join(f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items())
        self._bar.clear()
        log.warning("step %d: %s", step, said)

    def _write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        known = {name: None if value != value else value for name, value in values.items()}  # JSON has no NaN
        self._file.write(json.dumps({"kind": kind, "step": step, **known}) + "\n")
        self._file.flush()
        numbers = {f"{kind}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
        if self._tensorboard is not None:
            for name, value in numbers.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.close()
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=int(kind is not None))


def memory_mb(device: torch.device) -> float:
    """Peak memory of this process: of the GPU, or of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.warning("tensorboard isn't installed: only %s is written; `pip install tensorboard` adds it", METRICS)
        return None
    return SummaryWriter(str(folder), purge_step=first + 1)


def _wandb(out: Path, settings: TrainingSettings, name: str) -> Any:
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError(
            "--log wandb: the package isn't installed; `pip install saccade-events[wandb]`, or leave the option out"
        ) from error
    # WANDB_MODE=offline keeps everything in OUT; nothing else here needs a network.
    return wandb.init(project="saccade", name=name or out.name, id=out.name, resume="allow", dir=str(out), config=settings.binding())


def plot_losses(metrics: Path, path: Path) -> None:
    """The terms of the loss and the validation's mAP over the steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = read_metrics(metrics)
    training, validation = ([row for row in rows if row["kind"] == kind] for kind in ("train", "validation"))
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for term in TERMS:
        points = [(row["step"], row[term]) for row in training if term in row and row["positives"]]
        if points:
            steps, values = np.array(points).T
            axes.plot(steps, _smooth(values), label=term, linewidth=2 if term == "total" else 1)
    axes.set(xlabel="step", ylabel="loss per positive, smoothed", ylim=(0, None))
    validation = [row for row in validation if row["mAP"] is not None]
    if validation:
        right = axes.twinx()
        right.plot([row["step"] for row in validation], [row["mAP"] for row in validation], "k.--", label="mAP")
        right.set(ylabel="mAP (validation)", ylim=(0, 100))
    axes.legend(loc="upper right")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _smooth(values: np.ndarray) -> np.ndarray:
    """Running mean over a fiftieth of the curve."""
    width = max(1, len(values) // 50)
    total = np.cumsum(np.concatenate([[0.0], values]))
    first = np.maximum(np.arange(1, len(values) + 1) - width, 0)
    return (total[1:] - total[first]) / (np.arange(1, len(values) + 1) - first)
