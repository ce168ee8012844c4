"""EVALUATION -> rates.png or .svg: mAP and the recall of hidden objects over the rate, a line per series."""

from collections.abc import Sequence
from pathlib import Path

from saccade.evaluation.result import Evaluation
from saccade.evaluation.show.table import described, lines_of
from saccade.files import replacing
from saccade.types import InputError

# Of Okabe and Ito, for the colour blind; dashes and markers tell the lines apart in black and white.
INKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^DvPX"
SUFFIXES = (".png", ".svg")


def plot_rates(evaluation: Evaluation, path: Path, beside: Sequence[Evaluation] = ()) -> None:
    """Write a picture whose caption says weights, data set and protocol."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected {' or '.join(SUFFIXES)}")
    if not evaluation.results:
        raise InputError(f"{path}: an evaluation without results; nothing to plot")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    rates = sorted({result.condition.rate_hz for one in (evaluation, *beside) for result in one.results})
    names = {"mAP": "mAP, %", "recall_still": "Recall of hidden objects, %"}
    for axes, (score, label) in zip(figure.subplots(1, 2), names.items(), strict=True):
        for place, (name, series) in enumerate(lines_of(evaluation, *beside)):
            points = [(result.condition.rate_hz, getattr(result.scores, score)) for result in series.results]
            style = {"color": INKS[place % len(INKS)], "linestyle": DASHES[place % len(DASHES)], "marker": MARKERS[place % len(MARKERS)]}
            axes.plot(*zip(*points, strict=True), label=name, linewidth=2, markersize=6, **style)
        axes.set(xscale="log", xlabel="frames per second")
        axes.set_title(label, loc="left", fontsize=11)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(FixedLocator(rates))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{rate:g}" for rate in rates])
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    # Names are no formulas: a lone $ in a path must not be set as mathematics.
    caption = f"{described(evaluation, *beside)}; hidden: no events for over 0.25 s"
    figure.supxlabel(caption, fontsize=8, color="#555555", parse_math=False, wrap=True)
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "saccade", "svg.fonttype": "none"}):
        kind = path.suffix.lstrip(".").lower()
        figure.savefig(temporary, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)
