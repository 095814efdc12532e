"""Trying every plan: what is found is the optimum of brute force, and what is proven is no more than that."""

import numpy as np
import pytest

from planner.certificates.multipliers import Bound
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers import exhaustion
from planner.solvers.bound.fluid import Fluid
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from tests.oracles.optima import tiny_optima

ROUNDING = 1e-8
BOUND_ROUNDING = 1e-6
"""Relative, by which a bound is rounded down."""


def incumbent_of(fluid: Fluid) -> Incumbent:
    """Return the bound of the relaxation, without a placement."""
    return Incumbent(bound_of(relaxed_optimum(fluid)), SearchLimits(gap=0.0), lambda *_: None)


def test_from_below_the_first_plan_is_the_optimum() -> None:
    """Where a plan is found it is as fast as the best of brute force; the bound never passes that."""
    solved = 0
    for problem, best_s in tiny_optima(0, 45):
        incumbent = incumbent_of(Fluid(problem))
        ExhaustiveSearch(problem, incumbent).from_below()
        assert incumbent.bound.seconds <= best_s * (1 + ROUNDING)
        if incumbent.best is not None:
            solved += 1
            assert abs(incumbent.best_s / best_s - 1) <= ROUNDING
            assert incumbent.bound.seconds >= best_s * (1 - BOUND_ROUNDING)
    assert solved >= 10


def test_below_a_plan_all_faster_ones_are_tried() -> None:
    """From any plan that fits: the optimum is found and proven, or the work gives out."""
    proven = 0
    for problem, best_s in tiny_optima(0, 45):
        if np.isinf(best_s):
            continue
        incumbent = incumbent_of(Fluid(problem))
        search = ExhaustiveSearch(problem, incumbent)
        tried = search.whatever_fits()
        if tried is None or tried.placement is None:
            continue
        start_s = load_state(problem, tried.placement).step_s()
        incumbent.offer(tried.placement, start_s, "start")
        search.renew(20)
        search.below_best()
        assert incumbent.best_s >= best_s * (1 - ROUNDING)
        assert incumbent.bound.seconds <= best_s * (1 + ROUNDING)
        proven += incumbent.best_s <= incumbent.bound.seconds * (1 + 1e-5)
    assert proven >= 10


def test_whether_anything_fits_is_known() -> None:
    """With enough work: a placement that fits where brute force has one, and proof of none where it has none."""
    answered = 0
    for problem, best_s in tiny_optima(0, 45)[::2]:
        incumbent = Incumbent(Bound(0.0, Fluid(problem).no_multipliers(), None), SearchLimits(), lambda *_: None)
        search = ExhaustiveSearch(problem, incumbent)
        search.renew(2)
        tried = search.whatever_fits()
        if tried is None:
            continue
        answered += 1
        assert (tried.placement is None) == np.isinf(best_s)
        if tried.placement is not None:
            assert load_state(problem, tried.placement).overflow_bytes() == 0
    assert answered >= 8


def test_what_took_too_much_work_is_tried_again_once_the_threshold_is_much_nearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan a little faster changes nothing; one near the bound does."""
    problem = next(problem for problem, best_s in tiny_optima(0, 45) if np.isfinite(best_s))
    incumbent, thresholds = incumbent_of(Fluid(problem)), list[float]()
    monkeypatch.setattr(exhaustion, "search_exhaustively", lambda _, threshold_s, *__: thresholds.append(threshold_s))
    nothing = np.zeros(0, dtype=np.int64)
    search, placement = ExhaustiveSearch(problem, incumbent), Placement(nothing, nothing)
    for excess, tries in ((1.0, 1), (0.95, 1), (0.95, 1), (0.1, 2), (0.09, 2), (0.001, 3)):
        incumbent.offer(placement, incumbent.bound.seconds * (1 + excess), "start")
        search.below_best()
        assert len(thresholds) == tries
    assert thresholds == sorted(thresholds, reverse=True)
