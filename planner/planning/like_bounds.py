"""Bounds of one problem that are proven as those of another are: its multipliers, functions and cases once more."""

import math
from dataclasses import replace

from planner.certificates.multipliers import Bound, Cases
from planner.planning.cache_division import fluid_of, multipliers_at, strengthened_like
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage


def proven_like(fluid: Fluid, bound: Bound) -> Bound:
    """What proves a bound of a problem with the same blocks, of this one: its multipliers; and, where they prove less
    here, functions like its own, or the two cases into which it divides the plans, each proven likewise."""
    best = multipliers_at(fluid, bound)
    if best.seconds >= bound.seconds or bound.cases is None:
        return strengthened_like(fluid, best, bound)
    pairs = zip(bound.cases.division.parts(fluid.problem), (bound.cases.first, bound.cases.second), strict=True)
    first, second = (_case_like(fluid_of(part), case) for part, case in pairs)
    least_s = min(first.seconds, second.seconds)
    if least_s <= best.seconds:
        return best
    return replace(best, seconds=least_s, cases=Cases(bound.cases.division, first, second))


def _case_like(fluid: Fluid, case: Bound) -> Bound:
    """The same of one of two cases, of which there may be no plan."""
    if math.isinf(case.seconds):
        return case if shortage(fluid) is not None else multipliers_at(fluid, replace(case, seconds=0.0))
    return proven_like(fluid, case)
