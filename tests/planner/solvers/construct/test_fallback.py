"""The fallback: where memory is scarce, placements that fit are found, and none that does not fit is given."""

import numpy as np

from planner.problem.load_state import load_state
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.limits import Clock, SearchLimits
from tests.oracles.brute_force import optimum
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.placements import faults


def test_what_is_found_is_legal_and_fits_and_mostly_something_is() -> None:
    """Of tight and confined tiny problems: a placement with its step, in most cases where brute force knows one; never
    where there is none."""
    possible = placed = 0
    problems = [tiny_instance(seed).problem for seed in range(2, 62, 6)]
    problems += [confined_instance(seed).problem for seed in range(5, 15)]
    for problem in problems:
        fluid = Fluid(problem)
        if len(np.unique(problem.option_table)) < problem.tables or shortage(fluid) is not None:
            continue
        start = fallback_placement(fluid, solve_relaxation(fluid), Clock(SearchLimits()))
        has_placement = optimum(problem) is not None
        possible += has_placement
        if start is None:
            continue
        placed += 1
        placement, step_s = start
        state = load_state(problem, placement)
        assert has_placement
        assert faults(problem, placement) == []
        assert state.overflow_bytes() == 0
        assert abs(state.step_s() - step_s) <= 1e-9 * step_s
    assert possible >= 8
    assert placed >= 0.9 * possible
