"""One search, pass by pass: it ends at the optimum of brute force, and later passes are never worse."""

import itertools

import numpy as np

from planner.problem.load_state import load_state
from planner.solvers.bound.fluid import Fluid
from planner.solvers.deepening import Deepening
from planner.solvers.incumbent import OPTIMAL_GAP
from planner.solvers.limits import SearchLimits
from tests.oracles.optima import tiny_optima
from tests.oracles.placements import faults


def test_passes_end_at_the_optimum() -> None:
    """The step never rises and the bound never falls; a plan that is called optimal is, and most are."""
    optimal, optima = 0, tiny_optima(0, 45)[::2]
    for problem, best_s in optima:
        search, steps, bounds = Deepening(Fluid(problem), SearchLimits(gap=0.0), lambda *_: None), [], []
        search.begin()
        for number in (1, 2):
            search.run_pass(number)
            search.raise_bound(number)
            steps.append(search.incumbent.best_s)
            bounds.append(search.incumbent.bound.seconds)
        outcome = search.outcome()
        assert all(later <= earlier for earlier, later in itertools.pairwise(steps))
        assert all(later >= earlier for earlier, later in itertools.pairwise(bounds))
        assert (outcome.status == "infeasible") == np.isinf(best_s)
        if outcome.placement is None or outcome.step_s is None or outcome.bound_s is None:
            continue
        assert faults(problem, outcome.placement) == []
        assert load_state(problem, outcome.placement).overflow_bytes() <= 1e-3
        assert best_s * (1 - 1e-8) <= outcome.step_s
        assert outcome.bound_s <= best_s * (1 + 1e-8)
        if outcome.status == "optimal":
            assert outcome.step_s <= best_s * (1 + 2 * OPTIMAL_GAP)
            optimal += 1
    assert optimal >= 0.9 * sum(np.isfinite(best_s) for _, best_s in optima)


def test_what_is_within_a_mask_is_what_the_relaxation_takes() -> None:
    """All blocks together hold it; without one that the relaxation takes they do not."""
    for problem, _ in tiny_optima(0, 45)[:12]:
        search = Deepening(Fluid(problem), SearchLimits(), lambda *_: None)
        everything = np.ones(len(problem.block_option), dtype=bool)
        assert search.relaxed_within(everything)
        for choice in np.unique(search.relaxed.choices).tolist():
            without = everything.copy()
            without[choice] = False
            assert not search.relaxed_within(without)
