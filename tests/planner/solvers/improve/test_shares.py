"""Division of memory: of two tables, sizes as good as a fine grid of all mixtures finds, within the memory."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.shares import MemoryDivision
from tests.oracles.incumbents import whole_tables


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("room", [0.3, 0.7, 1.5])
def test_the_mix_is_the_best_that_fits(seed: int, room: float) -> None:
    """Tables that are faster the larger they are: no mixture on a grid is faster and fits, and the mix itself fits."""
    random = np.random.default_rng(seed)
    problem = whole_tables(2, ranks=2, seed=seed)
    rank = np.array([0, 1]) if seed % 2 else np.array([0, 0])
    seconds = (problem.fixed + problem.by_rows)[0, :2]
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0, :2]
    free = size[:, 0].max() * room
    taken = np.bincount(rank, weights=size[:, 0], minlength=2).max()
    capacity = (np.full(2, problem.base_bytes[0] + taken + free), *problem.pool_capacity[1:])
    problem = replace(problem, pool_capacity=capacity)
    state = load_state(problem, Placement(np.arange(2), rank))
    division = MemoryDivision(problem, state, np.arange(2), rank, seconds, size)
    slower = 1 + random.random(2)
    levels = np.array([1.0, 2.0])
    of_level = np.stack([seconds * slower[:, None] ** (2 - level) * 0.5 for level in levels], axis=1)
    bytes_of_level = np.stack([size * level for level in levels], axis=1)
    mix = division.best_mix(of_level, bytes_of_level)
    assert mix is not None

    def outcome(shares: np.ndarray) -> tuple[float, float]:
        mixed = (shares[:, :, None] * of_level).sum(axis=1), (shares[:, :, None] * bytes_of_level).sum(axis=1)
        after = division.state_with(*mixed)
        return after.step_s(), after.overflow_bytes()

    np.testing.assert_allclose(mix.sum(axis=1), 1.0)
    step_s, overflow = outcome(mix)
    assert overflow <= 1.0
    grid = np.linspace(0.0, 1.0, 21)
    for first in grid:
        for second in grid:
            other_s, over = outcome(np.array([[1 - first, first], [1 - second, second]]))
            assert over > 0 or step_s <= other_s * (1 + 1e-7)


def test_a_state_with_other_sizes_is_summed_anew() -> None:
    """Rank by rank: what the parts ask for more is added where they are."""
    problem = whole_tables(5, seed=2)
    rank = np.array([0, 0, 1, 2, 3])
    placement = Placement(np.arange(5), rank)
    seconds, size = (problem.fixed + problem.by_rows)[0], (problem.bytes_fixed + problem.bytes_by_rows)[0]
    division = MemoryDivision(problem, load_state(problem, placement), np.arange(5), rank, seconds, size)
    after = division.state_with(2 * seconds, 3 * size)
    larger = replace(
        problem,
        fixed=2 * problem.fixed,
        by_rows=2 * problem.by_rows,
        bytes_fixed=3 * problem.bytes_fixed,
        bytes_by_rows=3 * problem.bytes_by_rows,
    )
    expected = load_state(larger, placement)
    np.testing.assert_allclose(after.load, expected.load, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(after.free, expected.free, rtol=1e-9)
