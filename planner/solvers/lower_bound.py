"""The bound of a search: the relaxation's optimum, raised by thresholds, dual feasible functions and branching.

Thresholds are the dual approximation of Hochbaum and Shmoys (J. ACM 34, 1987): a plan shorter than a threshold holds no
block that alone takes longer, which tightens the relaxation.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.certificates.multipliers import Bound
from planner.certificates.rank_patterns import has_rank_patterns
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.table_classes import are_mostly_alike
from planner.solvers.bound.branching import BranchAndBound, StopRule
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.few_block_cases import FewBlockCases
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.bound.pattern_prices import Work
from planner.solvers.bound.stage_cases import WORTHWHILE, Case, StageCaseSearch
from planner.solvers.bound.threshold import least_of_stages, tighten
from planner.solvers.bound.time_cases import TimeCases
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits, TimeShare

TIGHTEN_BLOCKS = 20_000
"""Block types up to which the bound is tightened where tables are more than ranks: each bisection solves the relaxation
anew, and only where tables are few for the ranks is much won."""
ALIKE_BLOCKS = 100_000
"""The same where most tables are alike: their loads come in steps, however many they are."""
OPTION_CASE_BLOCKS = 300_000
"""Block types up to which plans are divided by the options of a table: two relaxations, 0.25 s each, where one that has
no equals is undecided, and nothing elsewhere."""
EXCESS, LARGE_EXCESS = 1e-3, 0.05
"""Share of the step by which a table's largest block must outlast its stage in the relaxation to be held there as a
whole; in problems of more block types only what shows at once, as each such table costs rounds."""
LOOSE = 0.01
"""Gap above which dual feasible functions and cases are looked for: they gain a few tenths of a per cent."""
FEW_SHARDS = 3
"""Tables for each rank up to which the plans are divided by the times of stages: blocks of more level out, unless most
of them are alike."""
CASE_ATTEMPTS = 6
"""Divisions and searches for functions of cases at most."""
OPTION_ATTEMPTS = 4
"""Divisions by the options of a table at most: two problems are solved for each."""
COMPANY_ATTEMPTS = 4
"""Divisions by a time below which all ranks hold a part of a table, likewise."""
NODES_OF_A_PASS = 100
"""Branch nodes that branching may look at, for each pass of the local search: they take about as long."""
FEWEST_NODES = 20
"""Branch nodes below which branching is not worth a start."""
BRANCH_WORK = 4e6
"""Block types x ranks x nodes that branching may take together."""
REFUTING_WORK = 1e9
"""Work on rank patterns that one threshold of all plans is worth."""


Relaxation = tuple[Fluid, FluidSolution]
"""The relaxation of a problem, and its optimum."""


def relaxed_optimum(fluid: Fluid) -> FluidSolution:
    """Return the fluid optimum that bounds a problem and that starts aim at."""
    is_small = len(fluid.problem.block_option) <= TIGHTEN_BLOCKS
    return solve_relaxation(fluid, excess=EXCESS if is_small else LARGE_EXCESS)


def bound_of(relaxed: FluidSolution) -> Bound:
    """Return what the fluid optimum proves."""
    return Bound(relaxed.bound_s, relaxed.multipliers, None)


def divided_quickly(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
    """Return what cases of options, and of times below which all ranks hold a part of a table, prove up to `step_s`;
    the fluid optimum's bound where the problem is large."""
    cases = StageCaseSearch(fluid, relaxed, bound_of(relaxed))
    if not _is_divided(fluid.problem):
        return cases.whole.bound
    cases.run_options(step_s, OPTION_ATTEMPTS)
    cases.run_company(step_s, COMPANY_ATTEMPTS)
    return cases.whole.proven()


def divided_thoroughly(fluid: Fluid, relaxed: FluidSolution, placement: Placement) -> Bound:
    """Return what dual feasible functions, and all cases, prove up to the step of a placement; the fluid optimum's
    bound where the problem is large."""
    problem, state = fluid.problem, load_state(fluid.problem, placement)
    if not _is_divided(problem):
        return bound_of(relaxed)
    step_s = state.step_s()
    tightened = tighten(fluid, relaxed, step_s, bound_of(relaxed))
    cases = StageCaseSearch(fluid, relaxed, strengthen(fluid, tightened, step_s))
    cases.run_options(step_s, OPTION_ATTEMPTS)
    cases.run_company(step_s, COMPANY_ATTEMPTS)
    cases.run(step_s, state.stage_seconds() - problem.stage_constants, CASE_ATTEMPTS)
    return cases.whole.proven()


def _is_divided(problem: Problem) -> bool:
    """Whether plans are divided at all protocols: ranks hold few tables, and block types are not too many."""
    return len(problem.block_option) <= TIGHTEN_BLOCKS and problem.tables <= FEW_SHARDS * problem.world


class BoundRaiser:
    """Raises the bound of an incumbent as long as its placement is too far away."""

    def __init__(
        self,
        fluid: Fluid,
        relaxed: FluidSolution,
        incumbent: Incumbent,
        exhaustive_search: ExhaustiveSearch,
        limits: SearchLimits,
    ) -> None:
        self._fluid, self._relaxed, self._incumbent, self._exhaustive_search = (
            fluid,
            relaxed,
            incumbent,
            exhaustive_search,
        )
        self._limits = limits
        self._tightened_s: float | None = None
        self._is_strengthened = False
        self._time_cases: TimeCases | None = None
        self._is_divided_more = False
        self._cases: StageCaseSearch | None = None
        self.patterns: PatternBranching | None = None
        """What proves the bound by prices of rank patterns; None where nothing does."""
        self._pattern_work, self._pattern_time = 0.0, TimeShare(limits.pattern_share, limits.clock)
        self._branches: BranchAndBound | None = None
        self._branched: tuple[float, int, float] | None = None

    @cached_property
    def _are_alike(self) -> bool:
        """Whether most tables are alike, and block types not too many."""
        problem = self._fluid.problem
        return len(problem.block_option) <= ALIKE_BLOCKS and are_mostly_alike(problem)

    @property
    def _is_small(self) -> bool:
        return len(self._fluid.problem.block_option) <= TIGHTEN_BLOCKS or self._are_alike

    @property
    def _has_few_shards(self) -> bool:
        """Whether ranks hold few tables, and block types are not too many."""
        problem = self._fluid.problem
        return self._is_small and problem.tables <= FEW_SHARDS * problem.world

    def raise_quickly(self) -> None:
        """Raise the bound by what takes little time."""
        for raise_it in (self.tighten, self.strengthen):
            if not self._incumbent.is_done():
                raise_it()

    def raise_all(self, passes: int) -> None:
        """Raise the bound by a threshold, by trying plans and by branching, as hard as is fit after so many passes of
        the local search; what these find may be a better plan."""
        if not self._incumbent.is_done():
            self.tighten()
            self.strengthen()
            self.divide()
            self.divide_more()
            self._exhaustive_search.below_best()
            self.price_patterns(passes)
            self.branch(passes)
            self._exhaustive_search.below_best()

    def tighten(self) -> None:
        """Raise the bound by a threshold below the best plan, unless tables are many."""
        problem, incumbent = self._fluid.problem, self._incumbent
        worth_it = problem.tables <= problem.world or self._is_small
        if incumbent.clock.is_over():
            return
        if incumbent.best is not None and worth_it and incumbent.best_s != self._tightened_s:
            self._tightened_s = incumbent.best_s
            incumbent.raise_to(tighten(self._fluid, self._relaxed, incumbent.best_s, incumbent.bound))

    def strengthen(self) -> None:
        """Raise the bound by dual feasible functions, where it is loose and the problem not too large; once."""
        incumbent = self._incumbent
        if self._is_strengthened or not self._is_small or incumbent.best is None or incumbent.is_within(LOOSE):
            return
        self._is_strengthened = True
        incumbent.raise_to(strengthen(self._fluid, incumbent.bound, incumbent.best_s, incumbent.clock.is_over))

    def divide(self) -> Case | None:
        """Raise the bound by cases of what options tables take and how long stages last, where it is loose and the
        problem not too large, the latter where ranks hold few tables or most are alike; once. Return the case with the
        least bound, at which plans may aim; None where those of stages prove no more."""
        problem, incumbent = self._fluid.problem, self._incumbent
        if self._cases is not None or incumbent.best is None or incumbent.is_done() or incumbent.is_within(LOOSE):
            return None
        if len(problem.block_option) > OPTION_CASE_BLOCKS or incumbent.bound.seconds >= self._limits.useful_bound_s:
            return None
        self._cases = StageCaseSearch(self._fluid, self._relaxed, incumbent.bound, strengthens=self._is_small)
        self._cases.run_options(incumbent.best_s, OPTION_ATTEMPTS, incumbent.clock.is_over)
        self._cases.run_company(incumbent.best_s, COMPANY_ATTEMPTS, incumbent.clock.is_over)
        of_options_s = self._cases.whole.proven().seconds
        if self._is_small and (problem.tables <= FEW_SHARDS * problem.world or self._are_alike):
            stage_seconds = load_state(problem, incumbent.best[0]).stage_seconds() - problem.stage_constants
            self._cases.run(incumbent.best_s, stage_seconds, CASE_ATTEMPTS, incumbent.clock.is_over)
        incumbent.raise_to(self._cases.whole.proven())
        return self._cases.weakest() if incumbent.bound.seconds > of_options_s * (1 + WORTHWHILE) else None

    def divide_by_time(self) -> None:
        """Raise the bound by three cases of one stage's time, where block types are too many for others; once."""
        problem, incumbent = self._fluid.problem, self._incumbent
        if len(problem.block_option) <= OPTION_CASE_BLOCKS or problem.kinds > 1:
            return
        if self._time_cases or incumbent.is_done() or incumbent.bound.seconds >= self._limits.useful_bound_s:
            return
        self._time_cases = TimeCases(self._fluid, self._relaxed)
        incumbent.raise_to(self._time_cases.raised(incumbent.bound))

    def divide_more(self) -> None:
        """Raise the bound by more cases of that stage's time; once."""
        incumbent = self._incumbent
        if self._time_cases is None or self._is_divided_more or incumbent.is_done():
            return
        self._is_divided_more = True
        incumbent.raise_to(self._time_cases.divided_more(incumbent.bound))

    def weakest(self) -> Case | None:
        """Return the case with the least bound, once plans are divided."""
        return None if self._cases is None else self._cases.weakest()

    def divide_few_blocks(self) -> None:
        """Raise the bound of a large problem of few blocks on each node by cases, as near to the best plan as is
        asked."""
        incumbent = self._incumbent
        if incumbent.best is None or incumbent.is_done():
            return
        problem, enough_s = self._fluid.problem, incumbent.best_s / (1 + self._limits.gap)
        stage_seconds = load_state(problem, incumbent.best[0]).stage_seconds() - problem.stage_constants
        cases = FewBlockCases(self._fluid, self._relaxed, incumbent.best_s)
        cases.run(stage_seconds, enough_s, incumbent.clock.is_over)
        incumbent.raise_to(cases.whole.proven())

    def price_patterns(self, passes: int) -> None:
        """Raise the bound by prices of rank patterns, where it is loose and ranks hold few tables; anew where a pass of
        the local search allows more work."""
        problem, incumbent, limits = self._fluid.problem, self._incumbent, self._limits
        if not self._has_few_shards or incumbent.best is None:
            return
        if incumbent.is_within(LOOSE) or incumbent.is_done() or incumbent.bound.seconds >= limits.useful_bound_s:
            return
        if not passes or not limits.pattern_work or not has_rank_patterns(problem):
            return
        if self.patterns is None:
            self.patterns = PatternBranching(self._fluid, incumbent.bound)
        if limits.effort is None:
            self._price_in_time(self.patterns)
            return
        work = Work(limits.pattern_work * passes - self._pattern_work)
        if work.left > 0:
            self._pattern_work += work.left
            incumbent.raise_to(self.patterns.run(incumbent.best_s, work, incumbent.clock))
            self._pattern_work -= work.left

    def _price_in_time(self, patterns: PatternBranching) -> None:
        """Raise the bound by prices of rank patterns as long as these have not had their share of the time so far."""
        incumbent = self._incumbent
        with self._pattern_time.limited(incumbent.clock) as clock:
            incumbent.raise_to(patterns.run(incumbent.best_s, Work(np.inf), clock))

    def refute(self, threshold_s: float) -> None:
        """Raise the bound to a threshold at once, where ranks hold few tables and prices of rank patterns do so."""
        problem, incumbent = self._fluid.problem, self._incumbent
        if incumbent.bound.seconds >= threshold_s or not self._has_few_shards or not has_rank_patterns(problem):
            return
        branching = PatternBranching(self._fluid, incumbent.bound)
        incumbent.raise_to(branching.refute(threshold_s, Work(REFUTING_WORK), incumbent.clock))

    def branch(self, passes: int) -> None:
        """Raise the bound by branching, where the problem is small enough; that may find a better plan, too."""
        problem, incumbent, limits = self._fluid.problem, self._incumbent, self._limits
        nodes = min(limits.branch_nodes, int(BRANCH_WORK / (len(problem.block_option) * problem.world)))
        nodes, patience = min(nodes, NODES_OF_A_PASS * max(passes, 1)), passes * passes / 2 if passes else 1.0
        if incumbent.best is None or nodes < FEWEST_NODES or incumbent.bound.seconds >= limits.useful_bound_s:
            return
        if self._branched == (incumbent.best_s, nodes, patience) or incumbent.is_done():
            return
        if self._branches is None:
            least = least_of_stages(self._fluid, incumbent.bound.multipliers)
            self._branches = BranchAndBound(problem, incumbent.bound.multipliers, least, incumbent.best_s)
        self._branches.lower(incumbent.best_s)
        self._branches.run(StopRule(nodes, incumbent.clock.is_over, limits.gap, patience, limits.useful_bound_s))
        branching = self._branches.result()
        if branching.placement is not None:
            incumbent.offer(branching.placement, branching.step_s, "branching")
        self._branched = incumbent.best_s, nodes, patience
        incumbent.raise_to(
            replace(
                incumbent.bound,
                seconds=branching.bound_s,
                packing=None,
                tree=branching.tree,
                exhaustive_search_s=None,
                patterns=None,
                cases=None,
            )
        )
