"""An experiment as values: cells to run, and sheets that put their numbers beside the paper's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from experiments.variant import Variant
from experiments.world import World
from saccade.evaluation.run.condition import Condition, EvaluationWindow, Stepping
from saccade.types import Counts

Quantity = Literal["mAP", "recall_still", "steps_per_s", "drop", "gain", "step_ms", "parameters"]
RATES_HZ = (20.0, 40.0, 80.0, 100.0, 200.0)  # the paper's
AT_20_HZ = Condition()  # where every window and every stepping is the same


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A training and the conditions that its weights are scored under; several cells may share a training."""

    name: str
    variant: Variant
    conditions: tuple[Condition, ...] = (AT_20_HZ,)
    timed: bool = False  # also measure one step alone


@dataclass(frozen=True)
class Ours:
    """A number of ours, of one condition; drop: the mean loss of mAP from the first condition to the others, gain: mAP above OVER's."""

    cell: str
    conditions: tuple[Condition, ...] = (AT_20_HZ,)
    what: Quantity = "mAP"
    over: str = ""  # cell


Entry = Ours | float | str | None  # what isn't Ours is the paper's; None = there is no such number


@dataclass(frozen=True)
class Row:
    labels: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    title: str
    labels: tuple[str, ...]  # headings of the rows' labels
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    plot: tuple[str, ...]  # columns to draw
    lines: bool = False  # over the number that a column's name begins with; else as bars


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str
    title: str
    about: str  # what the paper says, and what is run here
    split: str  # that the paper scores
    cells: tuple[Cell, ...]  # the most telling first: they are run in this order
    sheets: tuple[Sheet, ...]


Build = Callable[[World], Experiment]


def sampled(
    window: EvaluationWindow, stepping: Stepping, rates_hz: tuple[float, ...] = RATES_HZ, counts: Counts = "plain"
) -> tuple[Condition, ...]:
    """One condition per rate; at 20 Hz, the rate of training, all ways are one."""
    return tuple(
        AT_20_HZ if rate_hz == AT_20_HZ.rate_hz else Condition(rate_hz=rate_hz, window=window, stepping=stepping, counts=counts)
        for rate_hz in rates_hz
    )


def in_hz(rates_hz: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{rate_hz:g} Hz" for rate_hz in rates_hz)


def unique(*groups: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(dict.fromkeys(condition for group in groups for condition in group))
