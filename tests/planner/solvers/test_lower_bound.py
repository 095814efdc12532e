"""Raising a bound: it only rises, never passes the optimum of brute force, and comes near to it."""

import numpy as np
import pytest

from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import BoundRaiser, Rations, bound_of, relaxed_optimum
from tests.oracles.optima import solvable_problems

ROUNDING = 1e-8


@pytest.mark.parametrize("is_quick", [True, False])
def test_no_bound_passes_the_optimum(is_quick: bool) -> None:
    """After each way to raise it, from any placement: at least the relaxation's, at most the optimum."""
    raised = near = 0
    for problem, best_s in solvable_problems():
        fluid, limits = Fluid(problem), SearchLimits(gap=0.0)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
        start = fallback_placement(fluid, relaxed, incumbent.clock)
        if start is None:
            continue
        incumbent.offer(*start, "start")
        raiser = BoundRaiser(fluid, relaxed, incumbent, ExhaustiveSearch(problem, incumbent), limits)
        if is_quick:
            raiser.raise_quickly()
        else:
            raiser.raise_all(1)
        assert relaxed.bound_s <= incumbent.bound.seconds <= best_s * (1 + ROUNDING)
        assert incumbent.best_s >= best_s * (1 - ROUNDING)
        raised += incumbent.bound.seconds > relaxed.bound_s * (1 + 1e-6)
        near += incumbent.bound.seconds >= best_s * 0.999
    assert raised >= len(solvable_problems()) / 3
    assert is_quick or near >= len(solvable_problems()) * 0.7


def test_without_a_placement_there_is_nothing_to_raise_towards() -> None:
    """The bound stays the relaxation's."""
    problem, _ = solvable_problems()[0]
    fluid, limits = Fluid(problem), SearchLimits(gap=0.0)
    relaxed = relaxed_optimum(fluid)
    incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
    BoundRaiser(fluid, relaxed, incumbent, ExhaustiveSearch(problem, incumbent), limits).raise_quickly()
    assert incumbent.bound.seconds == relaxed.bound_s


def test_an_effort_allows_each_pass_as_much_work_on_patterns() -> None:
    """Whatever the bound and the step did, so that an effort repeats."""
    rations = Rations(SearchLimits(effort=3, pattern_work=8.0))
    assert [rations.allowed(1.0 - 0.1 * passes, 0.5, passes) for passes in (1, 2, 3)] == [8.0, 16.0, 24.0]


def test_without_an_end_work_goes_where_it_gains_more() -> None:
    """Twice as much after the bound rose by more than the step fell, half as much the other way round, within limits;
    and no more for being asked twice in a pass."""
    rations = Rations(SearchLimits(effort=None, pattern_work=16.0))
    assert rations.allowed(1.0, 0.5, 1) == 8.0
    assert rations.allowed(1.0, 0.6, 1) == 8.0
    assert rations.allowed(1.0, 0.6, 2) == 8.0 + 16.0
    assert rations.allowed(0.9, 0.7, 3) == 24.0 + 16.0
    assert rations.allowed(0.8, 0.7, 4) == 40.0 + 8.0
    assert rations.allowed(0.8, 0.7, 5) == 48.0 + 8.0
    allowed = [rations.allowed(0.8 / number, 0.7, number) for number in range(6, 12)]
    assert np.diff(allowed).tolist() == [2.0, 1.0, 1.0, 1.0, 1.0]
