"""Cases of large problems whose nodes hold few blocks: divided by how far a table reaches or by a stage's time.

Branch and bound (Land & Doig, Econometrica 28, 1960), always where the bound is least, by what changes the stages most.
One table's largest block, and all that every rank has beside it, decide a stage there. The fluid optimum mixes options
of such a table that are over a node and over all ranks, and has half of the block and half of what all ranks hold.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.certificates.lagrangian import lagrangian_s
from planner.certificates.multipliers import Bound, Cases, Multipliers
from planner.problem.arrays import Problem
from planner.problem.case_divisions import ReachDivision, StageDivision, has_reach
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.largest_blocks import fullest_instances
from planner.solvers.bound.stage_cases import REACHES, UNDECIDED, WORTHWHILE, Case, stage_division

KEPT = 0.01
"""Weight on the instance of a table's largest block below which parts of a case begin without it."""
ATTEMPTS = 40
"""Divisions at most: a proof may have fifty within each other."""


class FewBlockCases:
    """Divides the plans of one problem, of ranks of one kind, as long as that raises the bound towards a plan."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, step_s: float) -> None:
        """`relaxed` is the fluid optimum, and some plan takes `step_s`.

        The whole keeps the multipliers of that: what they say of options is what is explained of a plan.
        """
        self._step_s = step_s
        bound = Bound(relaxed.bound_s, relaxed.multipliers, None)
        for _ in range(2):
            relaxed = _beside(fluid, relaxed)
        self.whole = Case(fluid, relaxed, bound, is_strengthened=True)

    def run(self, stage_seconds: Floats, enough_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Divide where the bound is least, until that is `enough_s` or nothing promises more.

        `stage_seconds` [S] are those of the plan, constants aside.
        """
        for _ in range(ATTEMPTS):
            case = min(self.whole.leaves(), key=lambda each: each.bound.seconds)
            at = None if case.bound.seconds >= enough_s or is_over() else _division(case, stage_seconds)
            if at is None:
                break
            first, second = (self._part(problem, case) for problem in at.parts(case.fluid.problem))
            case.parts = at, first, second

    def _part(self, problem: Problem, whole: Case) -> Case:
        """Return a part of a case, with what its own fluid optimum proves."""
        fluid = whole.fluid.of_part(problem, integrality_floors(problem))
        if np.isinf(fluid.price(fluid.no_multipliers())[0]).any():
            return Case(fluid, None, Bound(np.inf, fluid.no_multipliers(), None), is_strengthened=True)
        assert whole.relaxed is not None
        relaxed = solve_relaxation(fluid, lone=whole.relaxed.lone, beside=whole.relaxed.beside)
        if relaxed.bound_s < self._step_s:
            relaxed = _beside(fluid, relaxed)
        bound = Bound(relaxed.bound_s, relaxed.multipliers, None)
        return Case(fluid, relaxed, max(bound, whole.bound, key=lambda each: each.seconds), is_strengthened=True)


def has_weights_beside(bound: Bound) -> bool:
    """Whether a bound is proven by cases, some of them by weights on what is beside tables' largest blocks."""
    parts = () if bound.cases is None else (bound.cases.first, bound.cases.second)
    return bool(bound.multipliers.beside) or any(has_weights_beside(each) for each in parts)


def divided_like(problem: Problem, best: Bound, like: Bound) -> Bound:
    """Return the best bound of another problem with the same tables and columns; or what the cases and multipliers of a
    bound prove of it, if that is more."""
    found = _proven_like(problem, like, like.multipliers)
    return replace(best, seconds=found.seconds, cases=found.cases) if found.seconds > best.seconds else best


def _proven_like(problem: Problem, like: Bound, around: Multipliers) -> Bound:
    """What is proven of a case of another problem by its multipliers, or by those of the case around it."""
    floors, usable = integrality_floors(problem), np.asarray(problem.allowed.any(axis=0))
    tried = [Bound(lagrangian_s(problem, each, usable, floors), each, None) for each in (like.multipliers, around)]
    best = max(tried, key=lambda each: each.seconds)
    if like.cases is None or np.isinf(best.seconds):
        return best
    parts = zip(like.cases.division.parts(problem), (like.cases.first, like.cases.second), strict=True)
    first, second = (_proven_like(part, each, best.multipliers) for part, each in parts)
    least_s = min(first.seconds, second.seconds)
    cases = Cases(like.cases.division, first, second)
    return best if least_s <= best.seconds else replace(best, seconds=least_s, cases=cases)


def _beside(fluid: Fluid, relaxed: FluidSolution) -> FluidSolution:
    """Return the fluid optimum with weights on what is beside more of the largest blocks."""
    more = fullest_instances(fluid, relaxed)
    if not more:
        return relaxed
    found = solve_relaxation(fluid, lone=relaxed.lone, beside=[*relaxed.beside, *more])
    beside = tuple(pair for pair, share in found.multipliers.beside.items() if share >= KEPT)
    return replace(found, beside=beside)


def _division(case: Case, stage_seconds: Floats) -> ReachDivision | StageDivision | None:
    """Return what divides a case best: by seconds that the stages change by, or that a stage is raised by."""
    by_reach, by_stage = _reach_division(case), stage_division(case, stage_seconds)
    if by_reach is None or (by_stage is not None and by_stage[0] > by_reach[0]):
        return None if by_stage is None else by_stage[1]
    return by_reach[1]


def _reach_division(case: Case) -> tuple[float, ReachDivision] | None:
    """Return the table and the reach whose two sorts of options, which the optimum mixes, load stages by most different
    seconds, times the lesser share, with these seconds; None where they hardly differ."""
    relaxed = case.relaxed
    if relaxed is None:
        return None
    options, held = case.fluid.problem.block_option[relaxed.choices], _weight_of_blocks(case.fluid.problem, relaxed)
    best_s, found = WORTHWHILE * case.bound.seconds, None
    for reach in REACHES:
        is_inside = has_reach(case.fluid.problem, reach)[options]
        share = relaxed.shares @ is_inside
        lesser = np.minimum(share, 1 - share)
        for table in np.flatnonzero(lesser > UNDECIDED).tolist():
            seconds = float(lesser[table]) * _difference_s(case, table, is_inside[:, table], held[table])
            if seconds > best_s:
                best_s, found = seconds, ReachDivision(table, reach)
    return None if found is None else (best_s, found)


def _weight_of_blocks(problem: Problem, relaxed: FluidSolution) -> Floats:
    """[T, S] the weights on tables' largest blocks, by themselves or with what is beside them."""
    multipliers = relaxed.multipliers
    held = np.zeros((problem.tables, len(problem.stage_constants)))
    for (table, stage), share in multipliers.of_table.items():
        held[table, stage] += share
    for (table, column), share in multipliers.beside.items():
        held[table, problem.stage_of_column[column]] += share
    return held


def _difference_s(case: Case, table: int, is_inside: Bools, held: Floats) -> float:
    """Seconds by which the options of a table inside, and those outside, of the optimum's proposals [P] make the stages
    differ: as the mean of all ranks, and as the largest block by the weights [S] that it is held with."""
    fluid, relaxed = case.fluid, case.relaxed
    assert relaxed is not None
    problem, share = fluid.problem, relaxed.shares
    signed = np.where(is_inside, share / share[is_inside].sum(), -share / share[~is_inside].sum())
    choices, which = np.unique(relaxed.choices[:, table], return_inverse=True)
    signed = np.bincount(which, weights=signed)
    columns = len(problem.stage_of_column)
    total = fluid.choice_totals(choices, relaxed.multipliers)[:, :columns] / np.maximum(fluid.instances[0], 1.0)
    mean = np.zeros(len(held))
    np.maximum.at(mean, problem.stage_of_column, np.abs(signed @ total))
    return float((mean + np.abs(signed @ fluid.peaks_of(choices)) * held).sum())
