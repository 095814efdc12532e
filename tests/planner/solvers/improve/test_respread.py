"""Tables spread over the world so that stages that are loaded in steps end a step lower."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.load_steps import HEIGHTS
from planner.solvers.construct.greedy import place
from planner.solvers.construct.rounding import round_choices
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.respread import ROOM, _brought_back, _spared_s, _SpreadCandidates, _steps
from tests.oracles.placements import faults
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def start() -> tuple[Problem, Placement]:
    """600 tables on 64 ranks, as the fluid optimum chooses and longest first places them, with memory to spare."""
    model = StepModel(
        load_topology("zionex-16", nodes=8), load_workload("synthetic:600@seed=3", overrides=["software=hugectr"])
    )
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    spare = np.array([200e6, 0.0, 0.0])
    greedy = place(problem, round_choices(fluid, relaxed), relaxed.stage_seconds, spare=spare)
    assert greedy is not None
    return problem, greedy[0]


def test_what_ranks_send_comes_in_steps_and_lookups_do_not(start: tuple[Problem, Placement]) -> None:
    """A step is four columns: every block takes a whole number of them."""
    problem, placement = start
    index = Improver(problem, placement, 0).state.exchange_index
    heights = index.amount
    seconds = index.load[0][problem.block_is_splittable.nonzero()[0]]
    for column in np.flatnonzero(heights).tolist():
        parts = seconds[:, column] / heights[column]
        np.testing.assert_allclose(parts, np.round(parts), atol=1e-3)
    assert 2 <= np.count_nonzero(heights) < np.count_nonzero(seconds.any(axis=0))


def test_spreading_brings_the_mean_below_a_step(start: tuple[Problem, Placement]) -> None:
    """Of every stage that is loaded in steps, though gradients of replicas load all ranks alike; the books stay right,
    and every table has an option that it may have."""
    problem, placement = start
    improver = Improver(problem, placement, 0)
    units = next(units for units in HEIGHTS if _steps(improver.state.exchange_index, improver.state.loads, units))
    before = _steps(improver.state.exchange_index, improver.state.loads, units)
    assert improver.respread()
    after = _steps(improver.state.exchange_index, improver.state.loads, units)
    assert [column for column, _, _ in after] == [column for column, _, _ in before]
    for _, above_s, height_s in after:
        room = 1 - above_s / problem.world / height_s
        assert 0.9 * ROOM <= room <= 0.5
    now = improver.state.placement()
    assert faults(problem, now) == []
    state = load_state(problem, now)
    np.testing.assert_allclose(improver.state.loads.load, state.load, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(improver.state.loads.free, state.free, rtol=1e-9, atol=1e-2)


def test_nothing_is_spread_without_memory_on_every_rank(start: tuple[Problem, Placement]) -> None:
    """A table that is spread takes bytes of all ranks: none is where one rank is full."""
    improver = Improver(*start, 0)
    index, items, state = improver.state.exchange_index, improver.state.items, improver.state.loads
    steps = next(steps for units in HEIGHTS if (steps := _steps(index, state, units)))
    change = _SpreadCandidates(index, items, state).best_spread(steps)
    assert change is not None
    assert len(change.items) == len(change.options) > 0
    state.free[0, 5] = 0.0
    assert _SpreadCandidates(index, items, state).best_spread(steps) is None


def test_tables_come_back_where_the_step_above_is_near(start: tuple[Problem, Placement]) -> None:
    """After many were spread: those whose gradients cost most stand on single ranks again, within memory, the mean is
    still below the step, and the step is shorter were all loads even."""
    problem, placement = start
    improver = Improver(problem, placement, 0)
    index = improver.state.exchange_index
    options, load, _ = index.world_options
    table = problem.option_table[options]
    family = improver.state.items.family
    single = np.flatnonzero(improver.state.items.units == index.whole[family])
    spread = [item for item in single.tolist() if (table == index.table_of_family[family[item]]).any()]
    dear = sorted(spread, key=lambda item: load[table == index.table_of_family[family[item]]].sum())
    moved = dear[-60:]
    numbers = [int(np.flatnonzero(table == index.table_of_family[improver.state.items.family[i]])[0]) for i in moved]
    kept = np.ones(len(improver.state.items.rank), dtype=bool)
    kept[moved] = False
    items = improver.state.items
    blocks = np.concatenate([np.flatnonzero(problem.block_option == options[n]) for n in numbers])
    free = (improver.state.settled, Placement(improver.state.group_block, improver.state.group_site))
    singles = improver.state.block_of[items.family[kept], items.units[kept]]
    block = np.concatenate([part.item_block for part in free] + [singles, blocks])
    place = np.concatenate([part.item_place for part in free] + [items.rank[kept], np.full(len(blocks), -1)])
    order = np.lexsort((place, block))
    improver = Improver(problem, Placement(block[order], place[order]), 0)
    step_s = improver.state.loads.load.mean(axis=1)
    assert improver.respread()
    assert len(improver.state.items.rank) > kept.sum()
    now = improver.state.placement()
    assert faults(problem, now) == []
    np.testing.assert_allclose(improver.state.loads.load, load_state(problem, now).load, rtol=1e-9, atol=1e-12)
    stage = problem.stage_of_column
    longest = [np.bincount(stage, minlength=1) * 0.0 for _ in range(2)]
    for total, mean in zip(longest, (step_s, improver.state.loads.load.mean(axis=1)), strict=True):
        np.maximum.at(total, stage, mean)
    assert longest[1].sum() < longest[0].sum()


def test_tables_come_back_only_for_a_gain(start: tuple[Problem, Placement]) -> None:
    """Wherever the mean is below the step above: none where that leaves no room, else for a gain or not at all."""
    problem, placement = start
    improver = Improver(problem, placement, 0)
    assert improver.respread()
    index, loads = improver.state.exchange_index, improver.state.loads
    spread = problem.block_option[improver.state.settled.item_block]
    units = next(units for units in HEIGHTS if _steps(index, loads, units))
    found = []
    for share in (0.0, 0.3, 0.6, 0.9, 1 - ROOM, 0.97, 0.999):
        steps = [
            (column, share * problem.world * height_s, height_s) for column, _, height_s in _steps(index, loads, units)
        ]
        change = _brought_back(index, loads, steps, spread)
        assert change is None or (share < 1 - ROOM and change.gain_s > 0)
        found.append(change is not None)
    assert any(found)


def test_a_step_of_one_unit_is_all_that_spreading_spares(start: tuple[Problem, Placement]) -> None:
    """Exchanges alone end at the next one above the mean, however high the steps are that most ranks stand on."""
    improver = Improver(*start, 0)
    index, ranks = improver.state.exchange_index, int(start[0].reach.sum())
    column = int(np.flatnonzero(index.amount)[0])
    unit_s = float(index.amount[column])
    for above, spared in ((0.5, 1), (1.5, 2), (3.5, 4)):
        steps = [(column, above * unit_s * ranks, 4 * unit_s)]
        assert _spared_s(index, steps) == pytest.approx((spared - above - 4 * ROOM) * unit_s)


def test_nothing_is_spread_where_tables_may_not_be_spread() -> None:
    """Whole tables on single ranks only: nothing is done, and nothing changes."""
    model = StepModel(load_topology("zionex-16", nodes=2), load_workload("synthetic:60@seed=3"))
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "column_wise"))
    problem = build_problem(model, enumerate_options(model, policy))
    choices = np.array([problem.table_block_start[t + 1] - 1 for t in range(problem.tables)])
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, Placement(choices, np.arange(problem.tables) % 16), 0)
    load = improver.state.loads.load.copy()
    assert not improver.respread()
    assert np.array_equal(improver.state.loads.load, load)
