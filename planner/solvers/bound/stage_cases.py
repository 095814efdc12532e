"""A tighter bound by cases: the plans divided by a stage's time or a table's options, again where the bound is least.

It is branch and bound (Land & Doig, Econometrica 28, 1960) on stage times. The fluid optimum mixes options so that a
stage ends between the times that whole blocks can make of it. Below such a time large blocks are barred, and dual
feasible functions have less room; above it the stage lasts as long, and other options pay. It also mixes options that
reach differently far or are in different memories, of a table that no plan may hold in both ways.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.certificates.multipliers import Bound, Cases
from planner.problem.arrays import Problem
from planner.problem.case_divisions import (
    Division,
    MemoryDivision,
    ReachDivision,
    StageDivision,
    has_reach,
    takes_memory,
)
from planner.problem.company import roofs_of_company
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.sites import Reach
from planner.problem.table_classes import table_classes
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.load_steps import amount_of
from planner.solvers.bound.threshold import tighten

WORTHWHILE = 2e-4
"""Share of the bound by which a stage must end above the fluid optimum's time for a division to be tried; and by which
the bound must rise for others to follow it."""
PATIENCE = 2
"""Attempts, each a division or a search for functions, after which the bound must have risen."""
BELOW = 1e-6
"""Share by which the time that divides is below what blocks make of a stage, so that these are surely not shorter."""
BEYOND = 2.0
"""How far above the fluid optimum's time one that divides is tried, as a multiple of where the plan is."""
PEAKS = 12
"""Peaks of blocks of each stage that are tried as the time that divides."""
UNDECIDED = 0.02
"""Share of a table above which some of its options count, and the rest of them, for the table to be undecided. It is
divided by the number of tables that are alike: what the optimum mixes of many, a plan may have of some each."""
REACHES: tuple[Reach, ...] = ("rank", "group", "world")


@dataclass
class Case:
    """The plans whose stages keep to some limits."""

    fluid: Fluid
    relaxed: FluidSolution | None
    """None where no plan is of the case."""
    bound: Bound
    is_strengthened: bool
    """Whether dual feasible functions were looked for."""
    parts: tuple[Division, "Case", "Case"] | None = None
    """What divides it, and its two parts."""

    def leaves(self) -> "Iterator[Case]":
        """Yield the cases that are not divided."""
        if self.parts is None:
            yield self
        else:
            yield from self.parts[1].leaves()
            yield from self.parts[2].leaves()

    def proven(self) -> Bound:
        """Return the bound of the case, with those of its parts where they prove more."""
        if self.parts is None:
            return self.bound
        division, *parts = self.parts
        first, second = (part.proven() for part in parts)
        least_s = min(first.seconds, second.seconds)
        if least_s <= self.bound.seconds:
            return self.bound
        return replace(self.bound, seconds=least_s, cases=Cases(division, first, second))


class StageCaseSearch:
    """Divides the plans of one problem as long as that raises the bound towards the step of a plan."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, bound: Bound, *, strengthens: bool = True) -> None:
        """Cases are given dual feasible functions of their own where it `strengthens` them."""
        self.whole = Case(fluid, relaxed, bound, is_strengthened=True)
        self._strengthens = strengthens

    @cached_property
    def _alike(self) -> Ints:
        """[T] how many tables nothing tells apart from each, itself among them."""
        of_table = table_classes(self.whole.fluid.problem)
        return np.bincount(of_table)[of_table]

    def weakest(self) -> Case:
        """Return the case with the least bound."""
        return min(self.whole.leaves(), key=lambda case: case.bound.seconds)

    def run(
        self,
        step_s: float,
        stage_seconds: Floats,
        attempts: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make as many attempts to raise the bound, or fewer where some in a row do not, or where it reaches `step_s`.

        `stage_seconds` [S] are those of the plan that takes so long, constants aside: where they are near the fluid
        optimum's, nothing is to be won.
        """
        best_s, idle = self.whole.proven().seconds, 0
        for _ in range(attempts):
            case = self.weakest()
            if case.bound.seconds >= step_s or is_over() or not self._raised(case, step_s, stage_seconds, is_over):
                break
            now_s = self.whole.proven().seconds
            idle = 0 if now_s > best_s * (1 + WORTHWHILE) else idle + 1
            if idle >= PATIENCE:
                break
            best_s = max(best_s, now_s)

    def run_options(self, step_s: float, attempts: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Divide the weakest case by the options of a table so often at most, as long as it mixes some that reach
        differently far or are in different memories."""
        for _ in range(attempts):
            case = self.weakest()
            at = _option_division(case, self._alike)
            if at is None or case.bound.seconds >= step_s or is_over():
                break
            self._divide(case, at)

    def run_company(self, step_s: float, attempts: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Divide the weakest case so often at most by a time below which each rank holds a part of a table, as long as
        that proves more of the plans below it."""
        for _ in range(attempts):
            case = self.weakest()
            at = _company_division(case)
            if at is None or case.bound.seconds >= step_s or is_over():
                break
            before_s = case.bound.seconds
            self._divide(case, at)
            assert case.parts is not None
            if case.parts[1].bound.seconds <= before_s * (1 + WORTHWHILE):
                break

    def _raised(self, case: Case, step_s: float, stage_seconds: Floats, is_over: Callable[[], bool]) -> bool:
        """Make one attempt on a case; False where there is none left."""
        if not case.is_strengthened:
            assert case.relaxed is not None
            case.is_strengthened = True
            tightened = tighten(case.fluid, case.relaxed, step_s, case.bound)
            case.bound = strengthen(case.fluid, tightened, step_s, is_over)
            return True
        at = stage_division(case, stage_seconds)
        if at is not None:
            self._divide(case, at[1])
        return at is not None

    def _divide(self, case: Case, at: Division) -> None:
        table = None if isinstance(at, StageDivision) else at.table
        first, second = (self._case(part, case, table) for part in at.parts(case.fluid.problem))
        case.parts = at, first, second

    def _case(self, problem: Problem, whole: Case, table: int | None) -> Case:
        """Return a case of a whole, with what its own fluid optimum proves. Where it is by the options of a table, its
        stages are held to last as long as the largest block of that."""
        fluid = Fluid(problem, integrality_floors(problem))
        if np.isinf(fluid.price(fluid.no_multipliers())[0]).any():
            return Case(fluid, None, Bound(np.inf, fluid.no_multipliers(), None), is_strengthened=True)
        assert whole.relaxed is not None
        lone, excess = whole.relaxed.lone, None if table is None else WORTHWHILE
        relaxed = solve_relaxation(fluid, lone=lone, excess=excess, among=table)
        bound = Bound(relaxed.bound_s, relaxed.multipliers, None)
        return Case(fluid, relaxed, max(bound, whole.bound, key=lambda each: each.seconds), not self._strengthens)


def _option_division(case: Case, alike: Ints) -> ReachDivision | MemoryDivision | None:
    """Return the table and the reach, or the memory, that the optimum of a case is least decided about; None where all
    are decided. Of each table [T] so many are alike."""
    if case.relaxed is None:
        return None
    problem, relaxed = case.fluid.problem, case.relaxed
    options = problem.block_option[relaxed.choices]

    def undecided(is_inside: Bools) -> tuple[float, int]:
        """How undecided the optimum is about options [O], of the table about which it is most, and that table."""
        share = relaxed.shares @ is_inside[options]
        of_table = np.minimum(share, 1 - share) / alike
        return float(of_table.max()), int(of_table.argmax())

    least = UNDECIDED
    found: ReachDivision | MemoryDivision | None = None
    for memory in range(len(problem.pool_capacity)):
        most, table = undecided(takes_memory(problem, memory))
        if most > least:
            least, found = most, MemoryDivision(table, memory)
    for reach in REACHES:
        most, table = undecided(has_reach(problem, reach))
        if most > least:
            least, found = most, ReachDivision(table, reach)
    return found


def _company_division(case: Case) -> StageDivision | None:
    """Return the stage and the time below which each rank holds a part of some table, of those above the optimum's the
    one that is furthest above it; None where there is none."""
    problem, relaxed = case.fluid.problem, case.relaxed
    if relaxed is None or problem.kinds > 1:
        return None
    fluid_s = np.maximum(relaxed.stage_seconds - problem.stage_constants, 0.0)
    roofs = roofs_of_company(problem) * (1 - BELOW)
    most = np.inf if problem.stage_limits is None else problem.stage_limits.roofs
    rise = np.where(roofs < most, roofs - fluid_s, 0.0)
    table, stage = (int(each) for each in np.unravel_index(int(rise.argmax()), rise.shape))
    if rise[table, stage] <= WORTHWHILE * case.bound.seconds:
        return None
    return StageDivision(stage, float(roofs[table, stage]))


def stage_division(case: Case, stage_seconds: Floats) -> tuple[float, StageDivision] | None:
    """Return the stage and the time that divide a case best, with seconds by which the bound may rise; None where
    nothing is to be won.

    As long as all that is shorter is proven to take longer, the bound rises by what the time is above the fluid
    optimum's, at most by what the plan's `stage_seconds` [S] are above it.
    """
    if case.relaxed is None:
        return None
    problem, relaxed = case.fluid.problem, case.relaxed
    fluid_s = np.maximum(relaxed.stage_seconds - problem.stage_constants, 0.0)
    most = np.maximum(stage_seconds - fluid_s, 0.0)
    tried = []
    for stage in np.argsort(-most, kind="stable").tolist():
        for seconds, rise_s in _times(case, stage, float(fluid_s[stage]), float(stage_seconds[stage])):
            tried.append((min(rise_s, float(most[stage])), -stage, seconds))
    best = max(tried, default=(0.0, 0, 0.0))
    return None if best[0] <= WORTHWHILE * case.bound.seconds else (best[0], StageDivision(-best[1], best[2]))


def _times(case: Case, stage: int, fluid_s: float, plan_s: float) -> Iterator[tuple[float, float]]:
    """Yield times that may divide the plans at a stage, each with seconds by which the bound may rise.

    The next whole multiple of what all blocks of single ranks load the stage by; peaks of blocks, below which the
    options that the optimum takes are barred.
    """
    problem, limits = case.fluid.problem, case.fluid.problem.stage_limits
    roof_s = np.inf if limits is None else float(limits.roofs[stage])
    weight = case.bound.multipliers.weight.max(axis=0)
    columns = np.flatnonzero((problem.stage_of_column == stage) & (weight > 0))
    for column in columns.tolist():
        amount = amount_of(problem, column)
        base_s = float(problem.extremes.base_of_instance[:, column].min())
        if amount > 0:
            seconds = base_s + float(np.ceil((fluid_s - base_s) / amount * (1 + 1e-6))) * amount
            if fluid_s < seconds < roof_s:
                yield seconds * (1 - BELOW), seconds - fluid_s
    peaks, multipliers = problem.extremes.stage_peaks[:, stage], case.bound.multipliers
    unbarred_s = case.fluid.bound(multipliers)[0]
    least_s, most_s = fluid_s * (1 + WORTHWHILE), min(roof_s, fluid_s + BEYOND * (plan_s - fluid_s))
    above = np.unique(peaks[(peaks > least_s) & (peaks < most_s)])
    for seconds in above[np.unique(np.linspace(0, len(above) - 1, min(PEAKS, len(above))).astype(int))].tolist():
        barred_s = case.fluid.bound(multipliers, peaks < seconds)[0]
        yield seconds * (1 - BELOW), min(seconds - fluid_s, barred_s - unbarred_s)
