"""One-to-one matching: the sum is that of scipy's assignment over all pairs, and that of trying every choice."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from saccade.detection.matching import best_pairs
from saccade.types import InputError


def worth(values: np.ndarray, chosen: np.ndarray) -> float:
    return float(sum(values[row, column] for row, column in enumerate(chosen) if column >= 0))


@pytest.mark.parametrize("seed", range(60))
def test_the_sum_is_scipys(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.random(generator.integers(0, 30, 2))
    if seed % 3 == 1:
        values = np.where(values > 0.8, values, 0)  # few pairs are allowed, as of boxes
    if seed % 3 == 2:
        values = np.ceil(values * 3)  # ties
    chosen = best_pairs(values)
    taken = chosen[chosen >= 0]
    assert len(set(taken.tolist())) == len(taken)
    assert all(values[row, column] > 0 for row, column in enumerate(chosen) if column >= 0)
    rows, columns = linear_sum_assignment(values, maximize=True)
    np.testing.assert_allclose(worth(values, chosen), values[rows, columns].sum())


def test_every_choice_of_small_tables() -> None:
    generator = np.random.default_rng(1)
    for _ in range(30):
        values = generator.integers(-2, 4, (3, 4)).astype(np.float64)
        best = max(
            sum(max(values[row, column], 0) for row, column in enumerate(columns)) for columns in itertools.permutations(range(4), 3)
        )
        assert worth(values, best_pairs(values)) == best


def test_the_best_pair_gives_way_to_two_good_ones() -> None:
    assert best_pairs(np.array([[0.9, 0.8], [0.8, 0.0]])).tolist() == [1, 0]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_empty_tables(shape: tuple[int, int]) -> None:
    assert best_pairs(np.zeros(shape)).tolist() == [-1] * shape[0]


def test_values_must_be_finite() -> None:
    with pytest.raises(InputError, match="finite"):
        best_pairs(np.array([[np.nan]]))
