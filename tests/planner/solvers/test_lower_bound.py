"""Raising a bound: it only rises, never passes the optimum of brute force, and comes near to it."""

import pytest

from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import BoundRaiser, bound_of, relaxed_optimum
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
