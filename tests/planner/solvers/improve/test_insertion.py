"""Insertion: what an offer costs, that it is the best of all places, and that charging it twice undoes it."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.load_state import LoadState, place_block
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.insertion import Insertion
from planner.solvers.improve.target import Target
from tests.oracles.incumbents import whole_tables
from tests.oracles.instances import tiny_instance


def _has_options(seed: int) -> bool:
    """Whether every table of the tiny instance fits somewhere."""
    fluid = Fluid(tiny_instance(seed).problem)
    return bool(np.isfinite(fluid.price(fluid.no_multipliers())[0]).all())


@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_an_offer_costs_what_it_says(seed: int) -> None:
    """The value grows as offered where a table's blocks share no resource, and by at least its least and what its
    blocks cost above that."""
    if not _has_options(seed):
        return
    problem = tiny_instance(seed).problem
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    target = Target(problem, relaxed.multipliers, relaxed.stage_seconds)
    insertion = Insertion(problem, target, np.ones(len(problem.block_option), dtype=bool))
    state = LoadState(problem)
    for table in range(problem.tables):
        before, offer = target.value(state), insertion.best(state, table)
        if offer is None:
            continue
        insertion.charge(state, offer.blocks, 1.0)
        grown = target.value(state) - before
        apart = len(offer.blocks) == 1 or problem.extremes.sharing.max() == 1
        has_everywhere = problem.everywhere[:, [block for block, _ in offer.blocks]].any()
        if apart and not has_everywhere:
            assert grown == pytest.approx(offer.growth, rel=1e-6, abs=1e-12 + 1e-9 * abs(before))
        least, excess = insertion.least(table), insertion.excess(table, offer.blocks)
        assert excess >= 0
        assert offer.growth >= (least + excess) * (1 - 1e-9) - 1e-12


def test_a_whole_table_goes_where_the_value_grows_least() -> None:
    """Tables of one block, put in one after the other: no rank grows the value less, as trying each shows."""
    for seed in range(5):
        problem = whole_tables(10, seed=seed)
        relaxed = solve_relaxation(Fluid(problem))
        target = Target(problem, relaxed.multipliers, relaxed.stage_seconds)
        insertion = Insertion(problem, target, np.ones(10, dtype=bool))
        state = LoadState(problem)
        for table in range(10):
            before, values = target.value(state), []
            for rank in range(problem.world):
                tried = state.copy()
                place_block(problem, tried, table, rank)
                tried.add_everywhere(problem.everywhere[:, table])
                values.append(target.value(tried) - before)
            offer = insertion.best(state, table)
            assert offer is not None
            assert values[offer.blocks[0][1]] <= min(values) + 1e-9 * abs(before)
            insertion.charge(state, offer.blocks, 1.0)


def test_what_is_taken_out_leaves_nothing() -> None:
    """In and out again: loads and free memory are those before, for options of every sort."""
    tried = 0
    for seed in range(60):
        problem = tiny_instance(seed).problem
        fluid = Fluid(problem)
        if not np.isfinite(fluid.price(fluid.no_multipliers())[0]).all():
            continue
        relaxed = solve_relaxation(fluid)
        target = Target(problem, relaxed.multipliers, relaxed.stage_seconds)
        insertion = Insertion(problem, target, np.ones(len(problem.block_option), dtype=bool))
        state, empty = LoadState(problem), LoadState(problem)
        for table in range(problem.tables):
            offer = insertion.best(state, table)
            if offer is not None:
                tried += any(problem.block_extent[block] != RANK for block, _ in offer.blocks)
                insertion.charge(state, offer.blocks, 1.0)
                insertion.charge(state, offer.blocks, -1.0)
                np.testing.assert_allclose(state.load, empty.load, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(state.free, empty.free, rtol=1e-9, atol=1e-2)
    assert tried >= 5
