"""Local search of one placement: never worse, near the optimum of brute force, and the incumbent hears of it."""

import numpy as np

from planner.problem.load_state import load_state
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.improve.local_search import LATER_SQUARINGS, SQUARINGS, LocalSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from tests.oracles.optima import solvable_problems
from tests.oracles.placements import faults


def test_placements_become_better_and_stay_legal() -> None:
    """The step that is returned is the placement's, at most the start's and at least the optimum; most get near it."""
    near = 0
    for problem, best_s in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
        if start is None:
            continue
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        placement, step_s = LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 0, SQUARINGS)
        state = load_state(problem, placement)
        assert faults(problem, placement) == []
        assert state.overflow_bytes() <= 1e-3
        assert abs(state.step_s() - step_s) <= 1e-9 * step_s
        assert best_s * (1 - 1e-9) <= step_s <= start[1] * (1 + 1e-9)
        assert incumbent.best_s == step_s
        near += step_s <= best_s * 1.2
    assert near >= len(solvable_problems()) / 2


def test_the_same_seed_ends_in_the_same_placement() -> None:
    """To the last bit."""
    problem, _ = solvable_problems()[3]
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
    assert start is not None
    ends = []
    for _ in range(2):
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        ends.append(LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 5, LATER_SQUARINGS))
    assert ends[0][1] == ends[1][1]
    assert np.array_equal(ends[0][0].item_place, ends[1][0].item_place)
    assert np.array_equal(ends[0][0].item_block, ends[1][0].item_block)


def test_a_search_that_is_over_returns_what_it_was_given() -> None:
    """Told to stop, it makes no more than one round."""
    problem, _ = solvable_problems()[3]
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    start = fallback_placement(fluid, relaxed, Clock(SearchLimits()))
    assert start is not None
    limits = SearchLimits(gap=0.0, stop=lambda: True)
    incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
    _, step_s = LocalSearch(fluid, relaxed.multipliers, incumbent).improve(start[0], 0, ())
    assert step_s == start[1]
