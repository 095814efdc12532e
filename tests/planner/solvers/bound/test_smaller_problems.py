"""What the search makes of a problem first: stages in whole multiples, joint blocks, no idle columns."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.column_reduction import reduce_columns, with_options
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.presolve import presolve
from planner.solvers.improve.smoothing import Smoothing
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placement

SEEDS = range(120)
PLACEMENTS = 5


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each.problem for each in map(tiny_instance, SEEDS) if len(each.options.table)]


def random_ones(problem: Problem) -> list[Placement]:
    """Some placements, whether or not they fit."""
    random = np.random.default_rng(problem.tables)
    return [random_placement(problem, random) for _ in range(PLACEMENTS)]


def with_dear_width(problem: Problem) -> Problem:
    """Twice the columns ask for more than twice as much of everything, ids among it."""
    dear = np.maximum(problem.block_units, 1)[:, None] ** 1.4
    names = ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows")
    return replace(problem, **{name: getattr(problem, name) * dear for name in names})


def test_no_stage_is_shorter_than_its_grain(problems: list[Problem]) -> None:
    """Of any placement, in every stage; and a grain exists in some problems."""
    found = [integrality_floors(problem) for problem in problems]
    for problem, least in zip(problems, found, strict=True):
        for placement in random_ones(problem):
            seconds = load_state(problem, placement).stage_seconds() - problem.stage_constants
            assert (seconds >= least - 1e-15).all()
    assert sum(bool(least.any()) for least in found) > 4


def test_grains_raise_a_bound(problems: list[Problem]) -> None:
    """Never lower it, and by more than a hair in some problems."""
    raised = []
    for problem in problems:
        if shortage(Fluid(problem)) is None:
            plain = solve_relaxation(Fluid(problem)).bound_s
            raised.append(solve_relaxation(Fluid(problem, integrality_floors(problem))).bound_s / plain - 1)
    assert min(raised) > -2e-5
    assert max(raised) > 1e-3


def test_joint_blocks_cost_what_their_parts_do(problems: list[Problem]) -> None:
    """Taken apart, a placement takes the seconds and bytes it promised: never more than the blocks as they were."""
    changed = 0
    for problem in map(with_dear_width, problems):
        joint = presolve(problem)
        for placement in random_ones(problem):
            promised, before = load_state(joint.problem, placement), load_state(problem, placement)
            apart = joint.postsolved(placement)
            held = load_state(problem, apart)
            assert held.step_s() == pytest.approx(promised.step_s(), rel=1e-12)
            assert held.free == pytest.approx(promised.free, rel=1e-9, abs=1e-3)
            assert held.step_s() <= before.step_s() * (1 + 1e-12)
            assert (held.free >= before.free - 1e-3).all()
            changed += len(apart.item_block) > len(placement.item_block)
    assert changed > 1


def test_idle_columns_do_not_count(problems: list[Problem]) -> None:
    """A slim problem has the same step and the same overflow for every placement."""
    slimmer = 0
    for problem in problems:
        slim = reduce_columns(problem).problem
        slimmer += slim.fixed.shape[2] < problem.fixed.shape[2]
        for placement in random_ones(problem):
            whole, less = load_state(problem, placement), load_state(slim, placement)
            assert less.stage_seconds() == pytest.approx(whole.stage_seconds(), rel=1e-12)
            assert less.overflow_bytes() == pytest.approx(whole.overflow_bytes(), rel=1e-12)
    assert slimmer > 10


def test_a_problem_of_some_options_has_the_same_plans_of_these(problems: list[Problem]) -> None:
    """Placements of kept options have the same step and overflow inside, come back unchanged; others are not held."""
    left_out = 0
    for problem in problems:
        placements = random_ones(problem)
        kept = np.zeros(len(problem.option_table), dtype=bool)
        kept[problem.block_option[placements[0].item_block]] = True
        slim = with_options(problem, kept)
        assert slim.holds(placements[0])
        inside = slim.inside(placements[0])
        whole, less = load_state(problem, placements[0]), load_state(slim.problem, inside)
        assert less.step_s() == pytest.approx(whole.step_s(), rel=1e-12)
        assert less.overflow_bytes() == pytest.approx(whole.overflow_bytes(), abs=1e-3)
        back = slim.outside(inside)
        assert np.array_equal(back.item_block, placements[0].item_block)
        assert np.array_equal(back.item_place, placements[0].item_place)
        for other in placements[1:]:
            held = bool(kept[problem.block_option[other.item_block]].all())
            assert slim.holds(other) == held
            left_out += not held
    assert left_out > 10


def test_loads_below_a_stage_s_floor_count_alike(problems: list[Problem]) -> None:
    """What no block of a rank or node loads is a floor; the others are smoothed, and no rank below it counts more."""
    floors = 0
    for problem in problems:
        for placement in random_ones(problem)[:1]:
            smoothing = Smoothing(problem, load_state(problem, placement), 4)
            assert problem.moved_columns[smoothing.columns].all()
            low = np.repeat(smoothing.floor[None], problem.world, axis=0)
            assert smoothing.value_of(low * 0.5) == pytest.approx(smoothing.value_of(low), rel=1e-12)
            floors += bool((smoothing.floor > 0).any())
    assert floors > 3
