"""The cheapest widths that tile a table's columns, against all ways to choose them."""

import itertools

import numpy as np
import pytest

from planner.solvers.construct.tiling import cheapest_tiling


def random_costs(seed: int, ranks: int, units: int) -> np.ndarray:
    """Some widths are impossible on some ranks; no columns cost nothing."""
    random = np.random.default_rng(seed)
    cost = random.random((ranks, units + 1))
    cost[random.random(cost.shape) < 0.3] = np.inf
    cost[:, 0] = 0.0
    return cost


def cheapest_by_hand(cost: np.ndarray) -> float:
    units = cost.shape[1] - 1
    return min(
        sum(cost[rank, width] for rank, width in enumerate(widths))
        for widths in itertools.product(range(units + 1), repeat=len(cost))
        if sum(widths) == units
    )


@pytest.mark.parametrize("ranks", range(1, 8))
@pytest.mark.parametrize("units", range(1, 5))
def test_is_the_cheapest(ranks: int, units: int) -> None:
    """Same cost as the best of all ways, and the widths have that cost and sum to the table."""
    for seed in range(5):
        cost = random_costs(seed, ranks, units)
        tiling, expected = cheapest_tiling(cost), cheapest_by_hand(cost)
        if tiling is None:
            assert np.isinf(expected)
        else:
            assert tiling.cost == pytest.approx(expected)
            assert tiling.widths.sum() == units
            assert cost[np.arange(ranks), tiling.widths].sum() == pytest.approx(expected)


def test_none_where_nothing_tiles() -> None:
    """Widths of two never make three."""
    cost = np.full((4, 4), np.inf)
    cost[:, [0, 2]] = 0.0
    assert cheapest_tiling(cost) is None
