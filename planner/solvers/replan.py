"""Re-planning: the search for a plan that follows another, for better placements that move few bytes.

It begins with the incumbent placement; what no longer fits, and what is new, is placed where it costs least
(`carry_over`). Then comes a plan that knows of no other. From every placement the tables return, one after the other,
to where they were (`path_relinking`), and all placements on these paths make up the Pareto front of step against moved
bytes (`front`). Then, for budgets of ever more bytes, the best placement of the front within the budget is improved by
local search: the tables that have moved are free to go elsewhere, and of the others as many as the budget pays for are
*released*, those first that weigh most on the step for their bytes. The tables return again, and so on.

What is met depends neither on the limit nor on the cost of moves: these only choose from the front. So, where
effort ends the search, a larger limit never gives a slower plan, and one that the plan without limit keeps to gives its
step, to what counts as even (`front`).
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from planner.certificates.multipliers import Bound
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.threshold import tighten
from planner.solvers.carry_over import CarryOver
from planner.solvers.front import Front, FrontPoint, MoveTerms
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.local_search import IDLE_ROUNDS, SQUARINGS
from planner.solvers.improve.path_relinking import PathRelinking, part_of
from planner.solvers.improve.ruin_and_recreate import TEMPERATURES, Ruin, may_ruin, ruin_steps
from planner.solvers.improve.target import target_seconds
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Progress, Status
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import TIGHTEN_BLOCKS
from planner.solvers.search import solve

BUDGETS = (0.0, 1 / 512, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""Shares of all bytes that may move beyond what must, one after the other."""
ROUNDS, FREE_ROUNDS = (6, 6, 6, 8, 12, 20), 6
"""Rounds of local search at each norm, for each budget; and without regard to it."""
WALK_ROUNDS, NOTABLE = 6, 0.03
"""Rounds at each norm of the walk from the old placement, and the share of the step that is worth a halt on it."""
NEW_PLAN_SHARE = 0.5
"""Share of the time that is left which a plan that knows of no other may take."""


@dataclass(frozen=True)
class Replanned:
    """What the search found."""

    outcome: Outcome
    least_bytes: float
    """No placement moves less."""
    found_bytes: float | None
    """The fewest moved bytes of any placement found; None where there is none."""
    best_step_s: float | None = None
    """The step of the placement that costs least, before any of it is given up to move less."""


def replan(
    problem: Problem,
    incumbent: IncumbentPlacement,
    terms: MoveTerms,
    limits: SearchLimits,
    progress: Progress | None = None,
) -> Replanned:
    """Return the best placement found that follows the incumbent on these terms, with a bound on all placements.

    The bound holds for placements that move any number of bytes. Where none within the limit is found, the outcome's
    status is "timeout"; where there is none, "infeasible", and `least_bytes` is above the limit or the outcome has a
    shortage of memory.
    """
    fluid = Fluid(problem)
    least = incumbent.least_moved_bytes(problem)
    missing = shortage(fluid)
    if missing is not None:
        return Replanned(Outcome("infeasible", None, None, None, missing), least, None)
    if terms.limit_bytes is not None and least > terms.limit_bytes + 1:
        return Replanned(Outcome("infeasible", None, None, None, None), least, None)
    search = _Replan(fluid, incumbent, terms, limits, progress or (lambda *_: None))
    search.run(least)
    return Replanned(search.outcome(), least, search.front.fewest_bytes, search.best_step_s)


class _Replan:
    def __init__(
        self, fluid: Fluid, incumbent: IncumbentPlacement, terms: MoveTerms, limits: SearchLimits, tell: Progress
    ) -> None:
        self._fluid, self._problem, self._incumbent = fluid, fluid.problem, incumbent
        self._terms, self._limits, self._tell = terms, limits, tell
        self._clock = Clock(limits)
        self._relaxed: FluidSolution = solve_relaxation(fluid)
        self._bound = Bound(self._relaxed.bound_s, self._relaxed.multipliers, None)
        self.front = Front()
        self._fresh_ran_out = False
        self._table_of_block: Ints = self._problem.table_of_block
        self._carry_over = CarryOver(fluid, self._relaxed, incumbent)
        tell("bound", None, self._bound.seconds)

    @property
    def best_step_s(self) -> float | None:
        """The step of the placement that costs least on the terms."""
        cheapest = self.front.best(self._terms, even=0.0)
        return None if cheapest is None else cheapest.step_s

    def outcome(self) -> Outcome:
        """Return what was found within the terms: the placement that moves least of those that cost nearly the
        least."""
        cheapest, ran_out = self.front.best(self._terms), self._clock.ran_out or self._fresh_ran_out
        if cheapest is None:
            return Outcome("timeout", None, None, self._bound, None, ran_out_of_time=ran_out)
        self._tighten(cheapest.step_s)
        bound = replace(self._bound, seconds=min(self._bound.seconds, cheapest.step_s))
        status: Status = "optimal" if cheapest.step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
        return Outcome(status, cheapest.placement(), cheapest.step_s, bound, None, ran_out_of_time=ran_out)

    def run(self, least_bytes: float) -> None:
        """Search: the incumbent placement, unless it will do a plan that knows of no other, and the budgets; each with
        the path back.

        The old placement will do where it is near enough to the bound, and nothing can move less.
        """
        start = self._carry_over.start(self._clock.is_over)
        self._path_relinking = PathRelinking(self._problem, self._incumbent, start)
        if start is not None:
            self._offer(start, "old placement")
            first = self.front.within(least_bytes + 1)
            if first is not None:
                self._tighten(first.step_s)
                if self._is_good(first):
                    return
        if self._clock.is_over() and start is not None:
            return
        if start is not None:
            self._walk(start)
        self._plan_anew()
        for done in itertools.count():
            if done == self._limits.effort or self._is_over():
                return
            self._improve_all(done)

    def _plan_anew(self) -> None:
        left_s = NEW_PLAN_SHARE * self._clock.left_s()
        fresh = solve(self._problem, replace(self._limits, time_limit_s=left_s), lambda *_: self._say())
        self._fresh_ran_out = fresh.ran_out_of_time
        if fresh.bound is not None and fresh.bound.seconds > self._bound.seconds:
            self._bound = fresh.bound
        if fresh.placement is not None:
            self._offer(fresh.placement, "new plan")

    def _walk(self, placement: Placement) -> None:
        """Search from a placement; each that is notably better than the one before is kept, and the path back from
        the last one."""
        improver, number = Improver(self._problem, placement, self._limits.seed), 0
        said_s = improver.best_s
        for squarings in SQUARINGS:
            for _ in range(WALK_ROUNDS):
                improver.round(number, squarings)
                number += 1
                if improver.best_s < said_s * (1 - NOTABLE):
                    said_s = improver.best_s
                    self.front.add(self._path_relinking.stay(improver.best()))
                if self._clock.is_over():
                    break
        self._offer(improver.best(), "local search")

    def _improve_all(self, done: int) -> None:
        """Improve, for each budget, the best placement of the front within it: the tables that it pays for, and all."""
        total, fewest = float(self._table_bytes.sum()), self.front.fewest_bytes or 0.0
        every, tried = np.ones(self._problem.tables, dtype=bool), set[float]()
        for number, (share, rounds) in enumerate(zip(BUDGETS, ROUNDS, strict=True)):
            budget, seed = fewest + share * total, self._limits.seed + number + len(BUDGETS) * done
            point = self.front.within(budget)
            if point is None or self._is_good(point):
                continue
            placement = point.placement()
            released = self._released(placement, budget)
            if released.any():
                self._offer(self._improved(placement, point.step_s, released, rounds, seed), "local search")
            if point.step_s not in tried and not released.all() and not self._clock.is_over():
                self._offer(self._improved(placement, point.step_s, every, FREE_ROUNDS, seed), "local search")
            tried.add(point.step_s)
            if self._clock.is_over():
                return

    def _say(self) -> None:
        """Tell that the search goes on."""
        cheapest = self.front.best(self._terms)
        self._tell("local search", None if cheapest is None else cheapest.step_s, self._bound.seconds)

    def _is_over(self) -> bool:
        """Whether time is up; without an effort also whether the plan is good, for then nothing else ends it."""
        cheapest = self.front.best(self._terms) if self._limits.effort is None else None
        return self._clock.is_over() or (cheapest is not None and self._is_good(cheapest))

    def _is_good(self, point: FrontPoint) -> bool:
        return point.step_s <= max(self._bound.seconds, self._terms.least_step_s) * (1 + self._limits.gap)

    def _tighten(self, step_s: float) -> None:
        if len(self._problem.block_option) <= TIGHTEN_BLOCKS:
            bound = tighten(self._fluid, self._relaxed, step_s)
            if bound.seconds > self._bound.seconds:
                self._bound = bound

    def _offer(self, placement: Placement, source: str) -> None:
        """Keep a placement and those on its way back that nothing beats."""
        before = self.front.best(self._terms)
        self.front.add(self._path_relinking.path_from(placement, self._clock))
        after = self.front.best(self._terms)
        if after is not None and (before is None or after.step_s < before.step_s):
            self._tell(source, after.step_s, self._bound.seconds)

    # -- budgets -----------------------------------------------------------------------------------------------

    @property
    def _table_bytes(self) -> Floats:
        """The most bytes [T] that a table can move while it has one copy."""
        largest = np.zeros(self._problem.tables)
        whole = self._incumbent.whole_bytes(self._problem)
        np.maximum.at(largest, self._table_of_block, whole)
        return np.where(self._incumbent.rows_before > 0, largest, 0.0)

    def _released(self, placement: Placement, budget_bytes: float) -> Bools:
        """Return which tables [T] may all move anywhere within the budget, those first that weigh most on the step for
        the bytes that they have yet to move."""
        problem, block = self._problem, placement.item_block
        load = problem.fixed[:, block] + problem.by_rows[:, block]
        weight = np.einsum("kbc,kc->kb", load, self._relaxed.multipliers.weight).max(axis=0)
        value = np.bincount(self._table_of_block[block], weights=weight, minlength=problem.tables)
        moved = self._path_relinking.moved_bytes(placement)
        more = np.maximum(self._table_bytes - moved, 0.0)
        released: Bools = np.equal(more, 0)
        left = budget_bytes - float(moved.sum())
        for table in np.argsort(-value / np.maximum(more, 1.0), kind="stable").tolist():
            if not released[table] and more[table] <= left:
                released[table] = True
                left -= more[table]
        return released

    def _improved(self, placement: Placement, step_s: float, released: Bools, rounds: int, seed: int) -> Placement:
        """Search locally on the released tables: from where they are, or taken out and placed anew in other options."""
        problem = self._problem
        if not released.all():
            kept = part_of(placement, ~released[self._table_of_block[placement.item_block]])
            completed = self._carry_over.completed(kept, np.zeros(0, dtype=np.int64))
            if completed is not None and completed[1] < step_s:
                placement = completed[0]
        if may_ruin(problem):
            every_pick = np.ones(len(problem.block_option), dtype=bool)
            aim = target_seconds(self._fluid, self._relaxed, step_s)
            ruin = Ruin(problem, self._relaxed.multipliers, every_pick, aim, seed, released)
            ruin.start_from(placement)
            ruin.run(ruin_steps(problem, 0), TEMPERATURES[0], self._clock.is_over)
            placement = ruin.best() or placement
        improver, number = Improver(problem, placement, seed, released), 0
        for squarings in SQUARINGS:
            idle = 0
            for _ in range(rounds):
                idle = 0 if improver.round(number, squarings) else idle + 1
                number += 1
                if idle >= IDLE_ROUNDS or improver.best_s <= self._bound.seconds * (1 + self._limits.gap):
                    break
                if self._clock.is_over():
                    return improver.best()
        return improver.best()
