"""The arithmetic of the objective: states that grow block by block equal states summed from scratch."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, spread
from planner.problem.placement import Placement
from planner.problem.row_shares import row_shares
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placement

SEEDS = range(24)


def loads_by_rank(problem: Problem, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    """[C, W] and [M, W]: what each rank brings, before it is summed over the ranks that share."""
    load = problem.base_loads[problem.kind_of_rank].T.copy()
    size = np.tile(problem.base_bytes[:, None], problem.world)
    for block, place in zip(placement.item_block, placement.item_place, strict=True):
        load += problem.everywhere[problem.kind_of_rank, block].T
        extent = problem.block_extent[block]
        ranks = np.array([place]) if extent == RANK else np.flatnonzero((problem.node_of_rank == place) | (place == -1))
        rows = int(problem.table_rows[problem.option_table[problem.block_option[block]]])
        share = np.ones(len(ranks)) if problem.block_replicated[block] else row_shares(rows, len(ranks))
        more_load, more_size = spread(problem, block, share, problem.kind_of_rank[ranks])
        load[:, ranks] += more_load
        size[:, ranks] += more_size
    return load, size


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shared_instance_carries_what_all_its_ranks_bring(seed: int) -> None:
    """At each rank stands the load of the whole instance, and what is free of the whole pool."""
    problem = tiny_instance(seed).problem
    placement = random_placement(problem, np.random.default_rng(seed))
    state = load_state(problem, placement)
    load, size = loads_by_rank(problem, placement)
    for c, instance in enumerate(problem.resource_of_rank):
        expected = [load[c, instance == own].sum() for own in instance]
        assert state.load[c] == pytest.approx(expected, rel=1e-12)
    for m, pool in enumerate(problem.pool_of_rank):
        expected = [problem.pool_capacity[m][own] - size[m, pool == own].sum() for own in pool]
        assert state.free[m] == pytest.approx(expected, rel=1e-9, abs=1e-3)
    overflow = max(0.0, -float(state.free.min()))
    assert state.overflow_bytes() == pytest.approx(overflow)


@pytest.mark.parametrize("seed", SEEDS)
def test_taking_a_block_away_undoes_its_placing(seed: int) -> None:
    """Add on one rank and subtract again: the state is what it was."""
    problem = tiny_instance(seed).problem
    random = np.random.default_rng(seed)
    state = load_state(problem, random_placement(problem, random))
    load, free = state.load.copy(), state.free.copy()
    seconds, size = random.random(len(state.load)), random.random(len(state.free)) * 1e6
    rank = int(random.integers(problem.world))
    state.add_on_rank(seconds, size, rank)
    assert (state.load >= load).all()
    assert (state.load[:, rank] > load[:, rank]).all()
    assert (state.free[:, rank] < free[:, rank]).all()
    state.add_on_rank(-seconds, -size, rank)
    assert state.load == pytest.approx(load, rel=1e-12)
    assert state.free == pytest.approx(free, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_rank_is_charged_alike_alone_and_as_a_slice(seed: int) -> None:
    """`add_on_rank` and `add` over one rank are the same thing, and `add` over two is both."""
    problem = tiny_instance(seed).problem
    random = np.random.default_rng(seed)
    seconds, size = (
        random.random((len(problem.resource_of_rank), 2)),
        random.random((len(problem.pool_of_rank), 2)) * 1e6,
    )
    together, apart = LoadState(problem), LoadState(problem)
    first = int(random.integers(problem.world - 1))
    together.add(seconds, size, slice(first, first + 2))
    apart.add_on_rank(seconds[:, 0], size[:, 0], first)
    apart.add(seconds[:, 1:], size[:, 1:], slice(first + 1, first + 2))
    assert together.load == pytest.approx(apart.load, rel=1e-12)
    assert together.free == pytest.approx(apart.free, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_placing_does_not_matter(seed: int) -> None:
    """Blocks placed in any order give the same step."""
    problem = tiny_instance(seed).problem
    random = np.random.default_rng(seed)
    placement = random_placement(problem, random)
    order = random.permutation(len(placement.item_block))
    shuffled = Placement(placement.item_block[order], placement.item_place[order])
    assert load_state(problem, shuffled).step_s() == pytest.approx(load_state(problem, placement).step_s(), rel=1e-12)


def test_the_step_sums_the_longest_load_of_each_stage() -> None:
    """Constants included; a stage without columns takes its constant."""
    problem = tiny_instance(0).problem
    state = load_state(problem, random_placement(problem, np.random.default_rng(0)))
    expected = problem.stage_constants.copy()
    for stage in range(len(expected)):
        columns = problem.stage_of_column == stage
        expected[stage] += state.load[columns].max() if columns.any() else 0.0
    assert state.stage_seconds() == pytest.approx(expected)
    assert state.step_s() == pytest.approx(expected.sum())
    assert (problem.stage_constants > 0).any()
