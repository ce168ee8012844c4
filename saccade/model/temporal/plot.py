"""A look into a trained memory: how long its states remember, and which frequencies it answers to."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from saccade.model.temporal.s4d import S4D
from saccade.model.temporal.s5 import S5
from saccade.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@torch.no_grad()
def plot_memory(layer: torch.nn.Module, points: int = 400) -> "Figure":
    """Time constants against frequencies of all states, those behind the mask hollow, and the response of the whole layer.

    `layer` is an S5 or S4D, or the block around one. Units are training steps; 0.5 turns per step is Nyquist of the training rate.
    """
    from matplotlib.figure import Figure

    memory = getattr(layer, "memory", layer)
    if not isinstance(memory, S5 | S4D):
        raise InputError(f"plot_memory: {type(layer).__name__} has no spectrum; expected S5, S4D or a block around one")
    system = memory.transfer()
    time_constant = (-1 / system.eigenvalues[0]).flatten().cpu().numpy()
    turns = (system.eigenvalues[1].abs() / (2 * math.pi)).flatten().cpu().numpy()
    band = memory.band()
    passes = np.ones_like(turns) if band is None else band.flatten().cpu().numpy()
    frequency = np.geomspace(1e-4, max(1.0, float(turns.max())), points)
    response = system.response(torch.tensor(2 * math.pi * frequency)).square().reshape(-1, points).sum(0).sqrt().cpu().numpy()

    figure = Figure(figsize=(10, 4), layout="constrained")
    states, answer = figure.subplots(1, 2)
    states.scatter(
        turns, time_constant, s=18, facecolors=np.where(passes[:, None] > 0, [[0.12, 0.47, 0.71, 1]], [[1.0, 1, 1, 0]]), edgecolors="C0"
    )
    states.set(yscale="log", xlabel="turns per training step", ylabel="time constant, training steps", title="states")
    states.set_xscale("symlog", linthresh=1e-3)  # states that don't turn have their place too
    states.set_xlim(left=0)
    answer.plot(frequency, response)
    answer.set(xscale="log", yscale="log", xlabel="turns per training step", ylabel="|G|", title="frequency response")
    for axes in (states, answer):
        axes.axvline(0.5, color="0.6", linestyle=":", label="Nyquist of training")
        if memory.bandlimit:
            axes.axvline(memory.bandlimit / 2, color="C3", linestyle="--", label=f"band limit {memory.bandlimit:g}")
        axes.legend(loc="lower left")
    return figure
