"""VALUES OF PAIRS -> PAIRS: the one-to-one choice with the largest sum (Hungarian method)."""

import numpy as np
from jaxtyping import Float64, Int64

from saccade.machine import compiled
from saccade.types import InputError


def best_pairs(values: Float64[np.ndarray, "rows columns"]) -> Int64[np.ndarray, "rows"]:
    """The column of each row, -1 for none; pairs of value 0 or less are never made.

    Optimal, not greedy: where two objects pass each other, the best single pair may leave the other two with nothing.
    """
    if not np.isfinite(values).all():
        raise InputError("best_pairs: values must be finite")
    gains = np.maximum(values, 0)
    if gains.shape[0] <= gains.shape[1]:
        chosen = _assign(np.ascontiguousarray(-gains))
    else:
        rows = _assign(np.ascontiguousarray(-gains.T))
        chosen = np.full(len(gains), -1, np.int64)
        chosen[rows] = np.arange(len(rows))
    worthless = chosen < 0
    worthless[~worthless] = gains[~worthless, chosen[~worthless]] <= 0
    return np.where(worthless, -1, chosen)


@compiled
def _assign(cost: np.ndarray) -> np.ndarray:
    """Column of each row at the least sum, for no more rows than columns: shortest augmenting paths, with prices that keep slack >= 0."""
    rows, columns = cost.shape
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of = np.zeros(columns + 1, np.int64)  # counted from 1; 0 = free. Column 0 holds the row that looks for a place
    came_from = np.zeros(columns + 1, np.int64)
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        slack, done = np.full(columns + 1, np.inf), np.zeros(columns + 1, np.bool_)
        while row_of[column] != 0:
            done[column] = True
            here, step, following = row_of[column], np.inf, 0
            for j in range(1, columns + 1):
                if done[j]:
                    continue
                reduced = cost[here - 1, j - 1] - row_price[here] - column_price[j]
                if reduced < slack[j]:
                    slack[j], came_from[j] = reduced, column
                if slack[j] < step:
                    step, following = slack[j], j
            for j in range(columns + 1):
                if done[j]:
                    row_price[row_of[j]] += step
                    column_price[j] -= step
                else:
                    slack[j] -= step
            column = following
        while column != 0:
            before = came_from[column]
            row_of[column] = row_of[before]
            column = before
    chosen = np.zeros(rows, np.int64)
    for j in range(1, columns + 1):
        if row_of[j] > 0:
            chosen[row_of[j] - 1] = j - 1
    return chosen
