"""Placements that local search begins with, rounds of it, and what every round must keep."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.option_space import FEW_CUTS
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.state import SearchState
from tests.oracles.placements import faults, just_large_enough, random_placement, tiny_placement
from topologies.loading import load_topology

ROUNDS = 48
TIGHT = 4 * ROUNDING_BYTES
"""Bytes by which sums in another order may differ from a full pool."""


@functools.cache
def tiny() -> list[tuple[int, Problem, Placement]]:
    """Return the tiny problems of 160 seeds that a random placement fits, with it."""
    return [(seed, *placed) for seed in range(160) if (placed := tiny_placement(seed)) is not None]


@functools.cache
def middle_model() -> StepModel:
    """Return 200 tables on four nodes of eight ranks."""
    return StepModel(load_topology("zionex", nodes=4), load_workload("synthetic:200@seed=3"))


def run(improver: Improver, rounds: int = ROUNDS) -> int:
    """Make rounds at rising norms; return how many blocks they moved."""
    return sum(improver.round(number, 3 + 4 * number // rounds) for number in range(rounds))


def check_books(state: SearchState) -> None:
    """Compare loads and free memory with those of the placement, which is legal."""
    now = load_state(state.problem, state.placement())
    assert faults(state.problem, state.placement()) == []
    np.testing.assert_allclose(state.loads.load, now.load, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state.loads.free, now.free, rtol=1e-9, atol=1e-2)


def check(problem: Problem, start: Placement, improver: Improver) -> None:
    """All that is promised, after some rounds."""
    best = improver.best()
    assert faults(problem, best) == []
    assert faults(problem, improver.state.placement()) == []
    before, after = load_state(problem, start), load_state(problem, best)
    assert after.step_s() == pytest.approx(improver.best_s, rel=1e-9)
    assert improver.best_s <= before.step_s() * (1 + 1e-9)
    assert after.overflow_bytes() <= TIGHT
    now = load_state(problem, improver.state.placement())
    np.testing.assert_allclose(improver.state.loads.load, now.load, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(improver.state.loads.free, now.free, rtol=1e-9, atol=1e-2)
    assert now.overflow_bytes() <= TIGHT


POLICIES = (
    Policy(),
    Policy(tiers=("hbm",), shardings=("table_wise", "column_wise")),
    Policy(tiers=("ddr",), shardings=("table_wise", "column_wise")),
    Policy(tiers=("hbm",), shardings=("column_wise",)),
    Policy(tiers=("hbm", "ddr"), shardings=("table_row_wise", "grid_shard")),
)


def middling(policy: Policy, *, tight: bool) -> tuple[Problem, Placement]:
    """A random legal placement that fits, with or without memory to spare."""
    problem = build_problem(middle_model(), enumerate_options(middle_model(), policy, cuts=FEW_CUTS))
    placement = random_placement(problem, np.random.default_rng(5), legal=True)
    over = load_state(problem, placement).overflow_bytes()
    problem = replace(problem, pool_capacity=tuple(capacity + over for capacity in problem.pool_capacity))
    return (just_large_enough(problem, placement) if tight else problem), placement


def balance(improver: Improver, rounds: int = ROUNDS) -> None:
    """Balance loads, until no lower aim is reached."""
    for _ in range(rounds):
        if not improver.balance():
            break
