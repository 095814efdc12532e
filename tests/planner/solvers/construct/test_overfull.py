"""Memory at a price: what an over-full placement costs, and that the search fills scarce memory."""

import numpy as np
import pytest

from benchmarks.instances import SHIPPED_CASES, torchrec_cases
from planner.planning import planning as api
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.construct.overfull import MARGIN, ROOM, with_priced_memory
from planner.solvers.improve.improver import Improver
from tests.oracles.instances import tiny_instance


def random_placement(problem: Problem, random: np.random.Generator) -> Placement:
    """A choice for each table, its blocks anywhere, whether they fit or not."""
    items: list[tuple[int, int]] = []
    for table in range(problem.tables):
        choice = int(random.integers(*problem.table_block_start[table : table + 2]))
        for block in problem.blocks_of_choice(choice):
            places = (problem.world, len(problem.node_start) - 1, 1)[problem.block_extent[block]]
            items.append((block, int(random.integers(places)) if problem.block_extent[block] < 2 else -1))
    items.sort()
    return Placement(np.array([block for block, _ in items]), np.array([place for _, place in items]))


def test_the_fullest_pool_makes_the_step_longer() -> None:
    """A tier adds its seconds to the step while all fits, and more by the share that its fullest pool has too much."""
    too_full = 0
    for seed in range(2, 302, 3):
        problem, random = tiny_instance(seed).problem, np.random.default_rng(seed)
        tiers = len(problem.pool_capacity)
        seconds = np.where(random.random(tiers) < 0.7, random.random(tiers), 0.0)
        seconds *= [float(capacity.min() > 0) for capacity in problem.pool_capacity]
        priced = with_priced_memory(problem, seconds)
        placement = random_placement(problem, random)
        state = load_state(problem, placement)
        expected = state.step_s()
        for tier, worth_s in enumerate(seconds.tolist()):
            if worth_s > 0:
                capacity = problem.pool_capacity[tier][problem.pool_of_rank[tier]]
                fullest = float(((capacity - state.free[tier]) / (capacity * (1 - MARGIN))).max())
                expected += worth_s * max(fullest, 1.0)
                too_full += fullest > 1
        assert load_state(priced, placement).step_s() == pytest.approx(expected, rel=1e-9)
    assert too_full >= 10


def test_an_over_full_pool_has_a_limit() -> None:
    """Tiers with a price may be too full by a share of their capacity; the others keep theirs."""
    problem = tiny_instance(1).problem
    seconds = np.zeros(len(problem.pool_capacity))
    seconds[0] = 1.0
    priced = with_priced_memory(problem, seconds)
    np.testing.assert_allclose(priced.pool_capacity[0], problem.pool_capacity[0] * (1 + ROOM))
    for before, after in zip(problem.pool_capacity[1:], priced.pool_capacity[1:], strict=True):
        np.testing.assert_array_equal(before, after)


def test_local_search_lets_an_over_full_placement_fit() -> None:
    """`best_s` is infinite until a placement fits; then it is the step of one that does.

    Most random placements are far from fitting, or choice options that fit nowhere together, which this search keeps:
    of 28, two come to fit.
    """
    came_to_fit = 0
    for seed in range(2, 602, 6):
        problem = tiny_instance(seed).problem
        if problem.grouped.any():
            continue
        placement = random_placement(problem, np.random.default_rng(seed))
        if load_state(problem, placement).overflow_bytes() <= ROUNDING_BYTES:
            continue
        items = np.stack([problem.table_of_block[placement.item_block], placement.item_place])
        if len(np.unique(items, axis=1).T) < len(items.T):  # blocks of a table on one rank are joined, and may fit then
            continue
        improver = Improver(problem, placement, seed)
        assert np.isinf(improver.best_s)
        for number in range(40):
            improver.round(number, 5)
        if np.isfinite(improver.best_s):
            came_to_fit += 1
            state = load_state(problem, improver.best())
            assert state.overflow_bytes() <= 2 * ROUNDING_BYTES
            assert state.step_s() == pytest.approx(improver.best_s, rel=1e-9)
    assert came_to_fit >= 2


@pytest.mark.slow
def test_scarce_memory_is_filled() -> None:
    """400 tables on 16 ranks end near the bound, which fills the memory: hard limits alone leave 0.9 % of it unused."""
    case = next(case for case in torchrec_cases(SHIPPED_CASES) if "n400_w16" in case.name)
    plan = api.plan(case.topology(), case.workload(), cost_model=case.cost_model, effort=1, gap=0.0, simulate=False)
    assert plan.objective is not None
    assert plan.objective.gap <= 0.003
