"""Shares of memory pools that blocks take: what placing them on empty ranks shows."""

import numpy as np
import pytest

from cost_models.shards import WORLD
from planner.problem.arrays import Problem
from planner.problem.block_sizes import block_shares, choice_shares, smallest_shares
from planner.problem.load_state import LoadState, place_block
from tests.oracles.instances import tiny_instance
from tests.oracles.node_places import places


def _share(problem: Problem, block: int, place: int) -> float:
    """Return the largest share of a pool's free bytes that a block takes at a place."""
    before, after = LoadState(problem), LoadState(problem)
    place_block(problem, after, block, place)
    taken = before.free - after.free
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(before.free > 0, taken / before.free, np.where(taken > 0, np.inf, 0.0))
    return float(share.max())


@pytest.mark.parametrize("seed", range(24))
def test_a_block_takes_the_share_that_its_placing_shows(seed: int) -> None:
    """The least over its places; infinite where it has none. World-wide ones count as if all ranks held full parts."""
    problem = tiny_instance(seed).problem
    shares = block_shares(problem)
    for block in range(len(shares)):
        expected = min((_share(problem, block, place) for place in places(problem, block)), default=np.inf)
        parts = problem.world**2 / int(problem.table_rows[problem.table_of_block[block]])
        short = parts if problem.block_extent[block] == WORLD and np.isfinite(expected) else 0.0
        assert expected * (1 - 1e-9) <= shares[block] <= expected * (1 + short + 1e-9), block


@pytest.mark.parametrize("seed", range(24))
def test_the_largest_block_of_an_option_counts(seed: int) -> None:
    """Of the least demanding option of each table; a splittable option is as large as the block that names it."""
    problem = tiny_instance(seed).problem
    shares = block_shares(problem)
    named = choice_shares(problem, shares)
    least = np.full(problem.tables, np.inf)
    for option in range(len(problem.option_table)):
        blocks = list(range(*problem.block_start[option : option + 2]))
        table = problem.option_table[option]
        if problem.option_units[option]:
            assert named[blocks].tolist() == shares[blocks].tolist()
            largest = min(shares[blocks])
        else:
            largest = max(shares[blocks])
            assert named[blocks[0]] == largest
            assert np.isinf(named[blocks[1:]]).all()
        least[table] = min(least[table], largest)
    assert smallest_shares(problem, shares).tolist() == least.tolist()
