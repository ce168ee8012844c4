"""COLUMNS -> SCORES OF PARTS: by how long the object has stood still, by its speed; and precision over recall."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import numpy as np
from jaxtyping import Float64

from saccade.evaluation.result import Part
from saccade.evaluation.score.average_precision import percent
from saccade.evaluation.score.columns import Columns
from saccade.evaluation.score.tally import found, tally
from saccade.types import InputError

STILL_EDGES_S = (0.0, 0.05, 0.25, 0.5, 1.0, 2.0, inf)
SPEED_EDGES_PX_S = (0.0, 1.0, 10.0, 25.0, 50.0, 100.0, inf)


def parts_by_still(columns: Columns, edges_s: Sequence[float] = STILL_EDGES_S) -> tuple[Part, ...]:
    """By the seconds since the object last made events of its own; none if no label knows them."""
    return parts(columns, columns.still_us / 1e6, edges_s)


def parts_by_speed(columns: Columns, edges_px_s: Sequence[float] = SPEED_EDGES_PX_S) -> tuple[Part, ...]:
    """By the object's own speed in pixels per second; none if no label knows it."""
    return parts(columns, columns.speed_px_s, edges_px_s)


def parts(columns: Columns, values: Float64[np.ndarray, "labels"], edges: Sequence[float]) -> tuple[Part, ...]:
    """The labels whose value lies in [low, high), for every two neighbouring edges.

    AP ignores all other labels: a detection that finds one of them is neither right nor wrong, and one that finds none is wrong in every
    part. Recall is the share of the part in what is found of all labels together, so the parts' recalls add up to the whole one's.
    """
    if len(edges) < 2 or not (np.diff(edges) > 0).all():
        raise InputError(f"parts: edges {tuple(edges)} must rise, and be two at least")
    counted = ~columns.ignored
    if np.isnan(values[counted]).all():
        return ()
    hit, judged = found(columns), ~columns.uncertain
    result = []
    for low, high in pairwise(edges):
        own = counted & (values >= low) & (values < high)
        result.append(Part(low, high, percent(tally(columns, own, judged).precision), percent(hit[own]), int(own.sum())))
    return tuple(result)


def curves(columns: Columns, classes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """For every class that has labels the best precision (0 to 1) at recall 0, 0.01 ... 1 or above, at an overlap of one half."""
    precision = tally(columns, ~columns.ignored, ~columns.uncertain).precision[0]
    return {name: tuple(precision[:, index].tolist()) for index, name in enumerate(classes) if not np.isnan(precision[0, index])}
