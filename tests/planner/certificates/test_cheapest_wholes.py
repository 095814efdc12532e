"""The cheapest way to hold a table in whole blocks, and how often it takes each block: all ways, counted one by one."""

import itertools

import numpy as np
import pytest

from planner.certificates.dual_feasible import cheapest_wholes, taken_blocks
from planner.certificates.tilings import option_tilings
from planner.problem.arrays import Problem
from tests.oracles.instances import tiny_instance


def ways(problem: Problem, option: int) -> list[list[int]]:
    """Every list of blocks that an option may be held in: those of a fixed one, or all tilings of its columns."""
    own = list(range(int(problem.block_start[option]), int(problem.block_start[option + 1])))
    units = int(problem.option_units[option])
    if not units:
        return [[block for block in own for _ in range(int(problem.block_count[block]))]]
    most = units // min(int(problem.block_units[block]) for block in own)
    lists = (list(of) for n in range(1, most + 1) for of in itertools.combinations_with_replacement(own, n))
    return [of for of in lists if problem.block_units[of].sum() == units]


@pytest.mark.parametrize("seed", range(25))
def test_no_way_is_cheaper_and_the_blocks_are_those_of_the_cheapest(seed: int) -> None:
    """The value of each table is the least over its options; the blocks that are taken are worth just that."""
    problem = tiny_instance(seed).problem
    values = np.random.default_rng(seed).uniform(1.0, 2.0, len(problem.block_option))
    widths = option_tilings(problem)
    cheapest, chosen, tilings = cheapest_wholes(problem, values, widths)
    taken = taken_blocks(problem, chosen, widths, tilings)
    for table in range(problem.tables):
        options = np.flatnonzero(problem.option_table == table)
        least = {int(option): min(values[of].sum() for of in ways(problem, int(option))) for option in options}
        assert cheapest[table] == pytest.approx(min(least.values()), rel=1e-12)
        assert least[int(chosen[table])] == min(least.values())
        own = problem.option_table[problem.block_option] == table
        assert set(problem.block_option[own & (taken > 0)].tolist()) == {int(chosen[table])}
        assert (taken * values)[own].sum() == pytest.approx(cheapest[table], rel=1e-12)
