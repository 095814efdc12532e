"""Bounds of one problem that are proven as those of another are: its multipliers, functions and cases once more."""

import math
from dataclasses import replace

from planner.certificates.exhaustive_search import proven_s, search_exhaustively
from planner.certificates.multipliers import Bound, Cases
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.few_block_cases import divided_like, has_weights_beside
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.threshold import step_of_block
from planner.solvers.exhaustion import TRIED_WORK
from planner.solvers.lower_bound import TIGHTEN_BLOCKS


def proven_like(fluid: Fluid, bound: Bound) -> Bound:
    """What proves a bound of a problem with the same tables, of this one: its multipliers; and, where they prove less
    here, functions like its own, or the two cases into which it divides the plans, each proven likewise."""
    return raised_like(fluid, multipliers_at(fluid, bound), bound)


def raised_like(fluid: Fluid, best: Bound, bound: Bound) -> Bound:
    """The best bound of a problem, or what proves a higher bound of another with the same tables, beyond its
    multipliers, where that is more."""
    if bound.cases is None or best.seconds >= bound.seconds or has_weights_beside(bound):
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


def strengthened_like(fluid: Fluid, best: Bound, bound: Bound) -> Bound:
    """The best bound of another problem, raised by functions like those of a bound, or by cases with weights beside
    blocks, where that has any and is more."""
    if best.seconds < bound.seconds and has_weights_beside(bound):
        return divided_like(fluid.problem, best, bound)
    if bound.packing is None or best.seconds >= bound.seconds or len(fluid.problem.block_option) > TIGHTEN_BLOCKS:
        return best
    return strengthen(fluid, best, bound.seconds, like=bound.packing)


def tried_like(fluid: Fluid, best: Bound, bound: Bound) -> Bound:
    """The best bound of a problem; or that of another with the same tables of which every plan was tried, where that is
    more, and trying every plan of this one takes no longer and finds none below it either."""
    threshold_s = bound.exhaustive_search_s
    if threshold_s is None or best.seconds >= bound.seconds:
        return best
    weights = bound.multipliers
    tried = search_exhaustively(fluid.problem, threshold_s, weights.weight, weights.byte, TRIED_WORK)
    if tried is None or tried.placement is not None:
        return best
    return replace(best, seconds=proven_s(threshold_s), exhaustive_search_s=threshold_s)


def fluid_of(problem: Problem) -> Fluid:
    """The relaxation of a problem, with what each stage takes in any case."""
    return Fluid(problem, integrality_floors(problem))


def multipliers_at(fluid: Fluid, bound: Bound) -> Bound:
    """What the multipliers of a bound prove of another problem with its ranks and stages, with its threshold or
    without."""
    best = Bound(fluid.bound(bound.multipliers)[0], bound.multipliers, None)
    if bound.threshold_s is not None:
        usable = step_of_block(fluid, bound.multipliers) < bound.threshold_s
        proven = min(fluid.bound(bound.multipliers, usable)[0], bound.threshold_s)
        if proven > best.seconds:
            best = Bound(proven, bound.multipliers, bound.threshold_s)
    return best
