"""Loads in whole multiples: no plan has a stage below the floor that follows, and floors raise bounds."""

import pytest

from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placements

SEEDS = range(120)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each.problem for each in map(tiny_instance, SEEDS) if len(each.options.table)]


def test_no_stage_is_shorter_than_its_grain(problems: list[Problem]) -> None:
    """Of any placement, in every stage; and a grain exists in some problems."""
    found = [integrality_floors(problem) for problem in problems]
    for problem, least in zip(problems, found, strict=True):
        for placement in random_placements(problem):
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
