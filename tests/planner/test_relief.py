"""Tables spread over the world so that stages that are loaded in steps end a step lower."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.options import build_problem, enumerate_options
from planner.policy import Policy
from planner.problem import Placement, Problem, load_state
from planner.solvers.fluid import Fluid
from planner.solvers.greedy import place
from planner.solvers.improve import Improver
from planner.solvers.relief import ROOM, _steps
from planner.solvers.rounding import round_picks
from planner.solvers.steps import HEIGHTS
from tests.oracles.placements import faults
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def start() -> tuple[Problem, Placement]:
    """600 tables on 64 ranks, as the fluid optimum chooses and longest first places them, with memory to spare."""
    model = StepModel(load_topology("zionex-16", nodes=8), load_workload("synthetic:600@seed=3"))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    fluid = Fluid(problem)
    relaxed = fluid.solve()
    spare = np.array([200e6, 0.0, 0.0])
    found = place(problem, round_picks(fluid, relaxed), relaxed.stage_seconds, spare=spare)
    assert found is not None
    return problem, found[0]


def test_what_ranks_send_comes_in_steps_and_lookups_do_not(start: tuple[Problem, Placement]) -> None:
    """A step is four columns: every block takes a whole number of them."""
    problem, placement = start
    goods = Improver(problem, placement, 0)._goods
    heights = goods.amount
    seconds = goods.load[0][problem.block_is_free.nonzero()[0]]
    for column in np.flatnonzero(heights).tolist():
        parts = seconds[:, column] / heights[column]
        np.testing.assert_allclose(parts, np.round(parts), atol=1e-3)
    assert 2 <= np.count_nonzero(heights) < np.count_nonzero(seconds.any(axis=0))


def test_relief_brings_the_mean_below_a_step(start: tuple[Problem, Placement]) -> None:
    """Of every stage that is loaded in steps, though gradients of replicas load all ranks alike; the books stay right,
    and every table has an option that it may have."""
    problem, placement = start
    improver = Improver(problem, placement, 0)
    units = next(units for units in HEIGHTS if _steps(improver._goods, improver._state, units))
    before = _steps(improver._goods, improver._state, units)
    assert improver.relieve()
    after = _steps(improver._goods, improver._state, units)
    assert [column for column, _, _ in after] == [column for column, _, _ in before]
    for _, above_s, height_s in after:
        room = 1 - above_s / problem.world / height_s
        assert 0.9 * ROOM <= room <= 0.5
    now = improver._placement()
    assert faults(problem, now) == []
    state = load_state(problem, now)
    np.testing.assert_allclose(improver._state.load, state.load, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(improver._state.free, state.free, rtol=1e-9, atol=1e-2)


def test_no_relief_without_memory_on_every_rank(start: tuple[Problem, Placement]) -> None:
    """A table that is spread takes bytes of all ranks: none is where one rank is full."""
    improver = Improver(*start, 0)
    improver._state.free[0, 5] = 0.0
    assert not improver.relieve()


def test_no_relief_where_tables_may_not_be_spread() -> None:
    """Whole tables on single ranks only: nothing is done, and nothing changes."""
    model = StepModel(load_topology("zionex-16", nodes=2), load_workload("synthetic:60@seed=3"))
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"))
    problem = build_problem(model, enumerate_options(model, policy))
    picks = np.array([problem.table_block_start[t + 1] - 1 for t in range(problem.tables)])
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, Placement(picks, np.arange(problem.tables) % 16), 0)
    load = improver._state.load.copy()
    assert not improver.relieve()
    assert np.array_equal(improver._state.load, load)
