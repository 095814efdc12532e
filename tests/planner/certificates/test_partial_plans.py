"""Bounds of partial plans: what grows into a plan below the target is never pruned."""

import numpy as np
import pytest

from planner.certificates.partial_plans import PartialPlanBounds
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from planner.problem.numbers import Floats
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import tiny_instance
from tests.properties.test_tiny_instances import random_prices


def _rows(problem: Problem, bounds: PartialPlanBounds, best: Optimum, tables: int) -> Floats:
    """Return the rows [R, W] of the best plan's first tables."""
    state = LoadState(problem)
    for _, placed in best.choices[:tables]:
        for block, place in placed:
            place_block(problem, state, block, place)
            state.add_everywhere(problem.everywhere[:, block])
    capacity = [pools[of] for pools, of in zip(problem.pool_capacity, problem.pool_of_rank, strict=True)]
    marks = np.zeros((len(bounds.groups), problem.world))
    return np.concatenate([state.load, np.array(capacity) - state.free, marks])


@pytest.mark.parametrize("seed", range(40))
def test_the_best_plan_is_reached(seed: int) -> None:
    """Its parts may grow below a target just above it, at any multipliers; below one under it the plan is pruned."""
    problem = tiny_instance(seed).problem
    best = optimum(problem)
    if best is None:
        return
    multipliers = random_prices(problem, np.random.default_rng(seed), best.step_s)
    bounds = PartialPlanBounds(problem, best.step_s * (1 + 1e-6), multipliers.weight, multipliers.byte)
    plans = np.stack([_rows(problem, bounds, best, tables) for tables in range(problem.tables + 1)])
    assert plans[0] == pytest.approx(bounds.base)
    linear = bounds.linear(plans)
    bounds.allow_for_rounding([linear[-1] - linear[0]])
    assert bounds.is_possible(plans, linear).all()
    assert bounds.is_possible(plans, np.tile(linear[-1], (len(plans), 1))).all()
    assert bounds.may_grow(linear[-1]).all()
    assert bounds.least_step(plans, np.zeros_like(linear))[-1] == pytest.approx(best.step_s, rel=1e-9)
    bounds.target_s = best.step_s * (1 - 1e-6)
    assert not bounds.is_possible(plans[-1:], linear[-1:]).any()


def test_memory_that_is_too_small_is_seen() -> None:
    """A plan that takes a part more than all of a pool is pruned, however long the target."""
    problem = tiny_instance(0).problem
    bounds = PartialPlanBounds(problem, 1e9, None, None)
    full = bounds.base[None].copy()
    assert bounds.is_possible(full, bounds.linear(full)).all()
    capacity = problem.pool_capacity[0][problem.pool_of_rank[0]]
    full[0, bounds.columns] = capacity
    assert bounds.is_possible(full, bounds.linear(full)).all()
    full[0, bounds.columns] = capacity * (1 + 1e-6) + 1.0
    assert not bounds.is_possible(full, bounds.linear(full)).any()
