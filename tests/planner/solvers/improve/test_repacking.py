"""Tables over nodes packed anew: what comes of it is whole, fits, and is faster than a level plan in one cut."""

import itertools

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.repacking import Repacking, _patterns
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.placements import faults
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def asked() -> tuple[Problem, Fluid, FluidSolution]:
    """20 tables on 16 nodes; the relaxation has six of them over nodes, all others on all ranks."""
    model = StepModel(load_topology("zionex-16"), load_workload("fbgemm-003"))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    fluid = Fluid(problem, integrality_floors(problem))
    return problem, fluid, relaxed_optimum(fluid)


def level_plan(problem: Problem, relaxed: FluidSolution) -> Placement:
    """The tables that the relaxation has over nodes in eight blocks each, three of all on each node; the others as it
    has them."""
    blocks, places, taken = list[int](), list[int](), 0
    for table in range(problem.tables):
        options = np.arange(*problem.option_start[table : table + 2])
        first = problem.block_start[options]
        if problem.is_world_wide[relaxed.choices[0, table]]:
            blocks.append(int(relaxed.choices[0, table]))
            places.append(-1)
            continue
        alone = np.diff(problem.block_start)[options] == 1
        eighths = first[alone & problem.is_on_group[first] & (problem.block_count[first] == 8)]
        for block in np.repeat(eighths[:1], 8).tolist():
            blocks.append(block)
            places.append(taken % 16)
            taken += 1
    assert taken == 48
    order = np.lexsort((places, blocks))
    return Placement(np.array(blocks)[order], np.array(places)[order])


def test_four_blocks_of_some_tables_beside_eight_of_others_are_faster(
    asked: tuple[Problem, Fluid, FluidSolution],
) -> None:
    """Each node has three eighths of a table either way, so that the exchange lasts as long; lookups of wider blocks
    take less. No change of one table leads there."""
    problem, fluid, relaxed = asked
    start = level_plan(problem, relaxed)
    assert not faults(problem, start)
    before = load_state(problem, start)
    repacking = Repacking(problem, start.option_of_table(problem))
    cost = fluid.block_values(relaxed.multipliers)
    found = list(repacking.plans(before.stage_seconds(), relaxed.bound_s, cost))
    steps = [before.step_s(), *(step_s for _, step_s in found)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < steps[0] * 0.995
    for placement, step_s in found:
        assert not faults(problem, placement)
        assert load_state(problem, placement).step_s() == step_s
    again = Repacking(problem, start.option_of_table(problem)).plans(before.stage_seconds(), relaxed.bound_s, cost)
    assert [step_s for _, step_s in again] == steps[1:]


def test_tables_on_single_ranks_are_left_alone(asked: tuple[Problem, Fluid, FluidSolution]) -> None:
    """One table of the level plan whole on a rank: nothing is packed anew."""
    problem, _, relaxed = asked
    options = level_plan(problem, relaxed).option_of_table(problem)
    on_rank = problem.is_on_rank[problem.block_start[:-1]] & (problem.option_table == 2)
    assert Repacking(problem, options).is_possible
    options[2] = int(np.flatnonzero(on_rank)[0])
    assert not Repacking(problem, options).is_possible


@pytest.mark.parametrize("seed", range(5))
def test_patterns_are_all_that_nothing_can_be_added_to(seed: int) -> None:
    """As found by trying every number of every type."""
    random = np.random.default_rng(seed)
    asks, count = random.uniform(0.1, 0.6, (4, 2)), random.integers(1, 4, 4)
    rooms = np.array([1.0, 1.2])
    fitting = {
        held
        for held in itertools.product(*(range(most + 1) for most in count.tolist()))
        if (np.array(held) @ asks <= rooms).all()
    }
    steps = [tuple(int(other == number) for other in range(4)) for number in range(4)]
    fullest = {
        held for held in fitting if not any(tuple(map(sum, zip(held, step, strict=True))) in fitting for step in steps)
    }
    patterns = _patterns(asks, rooms, count)
    assert patterns is not None
    assert {tuple(row) for row in patterns.tolist()} == fullest
    assert len(patterns) == len(fullest)
