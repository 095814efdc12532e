"""Plans from rank patterns: better than where they begin, never better than the optimum, the same again."""

import pytest

from planner.problem.load_state import load_state
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.bound.pattern_prices import Work
from planner.solvers.bound.presolve import presolve
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.improve.local_search import LocalSearch
from planner.solvers.improve.passes import Passes
from planner.solvers.incumbent import Incumbent, Start
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.solvers.pattern_plans import PatternPlans, van_der_corput
from tests.oracles.packings import Known
from tests.oracles.patterns import known_patterns

ROUNDING = 1e-8


def _searched(known: Known) -> tuple[Start, Start] | None:
    """The first plan there is, and the best one that patterns come to; None where nothing is found at first."""
    fluid = Fluid(presolve(known.instance.problem).problem)
    relaxed, limits = relaxed_optimum(fluid), SearchLimits(gap=0.0, effort=1)
    incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
    first = fallback_placement(fluid, relaxed, incumbent.clock)
    if first is None:
        return None
    incumbent.offer(*first, "start")
    patterns = PatternBranching(fluid, incumbent.bound)
    patterns.run(first[1], Work(1e7), incumbent.clock)
    passes = Passes(fluid, relaxed, incumbent, LocalSearch(fluid, relaxed.multipliers, incumbent), 0)
    PatternPlans(incumbent, passes, limits).run(patterns, 1)
    assert incumbent.best is not None
    assert load_state(fluid.problem, incumbent.best[0]).free.min() >= -1.0
    return first, incumbent.best


def test_patterns_come_from_any_plan_to_the_optimum() -> None:
    """Mostly, and never below it, memory included."""
    worse_first, optimal = 0, 0
    for known in known_patterns(0, 8):
        found = _searched(known)
        if found is None:
            continue
        (_, first_s), (_, best_s) = found
        assert known.best.step_s * (1 - ROUNDING) <= best_s <= first_s, known.instance.description
        if first_s > known.best.step_s * 1.02:
            worse_first += 1
            optimal += best_s < known.best.step_s * 1.001
    assert worse_first >= 2
    assert optimal >= 0.7 * worse_first


def test_the_same_question_has_the_same_plan() -> None:
    """Block by block, place by place."""
    found, again = (_searched(known_patterns(0, 8)[-1]) for _ in range(2))
    assert found is not None
    assert again is not None
    assert found[1][0].item_block.tolist() == again[1][0].item_block.tolist()
    assert found[1][0].item_place.tolist() == again[1][0].item_place.tolist()


def test_steps_in_view_are_spread_evenly() -> None:
    """A half first, then halves of what is left, from below."""
    assert [van_der_corput(number) for number in range(1, 6)] == pytest.approx([0.5, 0.25, 0.75, 0.125, 0.625])
