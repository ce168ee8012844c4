"""metrics.jsonl -> loss.png: the terms of the loss and the validation's mAP over the steps."""

from pathlib import Path

import numpy as np

from saccade.files import replacing
from saccade.training.log import read_metrics

TERMS = ("total", "iou", "objectness", "class", "l1", "h2")


def plot_losses(metrics: Path, path: Path) -> None:
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
