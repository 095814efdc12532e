"""The search of one problem, pass by pass: each begins with what the ones before found.

Like iterative deepening, a pass goes on from what the shorter ones left, so that the search may end at any time.
"""

from dataclasses import replace

from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.exhaustion import LONGER_TRIES, ExhaustiveSearch
from planner.solvers.improve.local_search import LATER_SQUARINGS, TRIAL_ROUNDS, LocalSearch
from planner.solvers.improve.passes import Passes
from planner.solvers.improve.ruin_and_recreate import may_ruin
from planner.solvers.incumbent import OPTIMAL_GAP, Incumbent, Outcome, Progress, Start, Status
from planner.solvers.integer.uniform_nodes import UniformNodes
from planner.solvers.integer.unlike_nodes import UnlikeNodes
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import LOOSE, BoundRaiser, bound_of, relaxed_optimum
from planner.solvers.overfull_starts import OverfullStarts
from planner.solvers.packed_starts import PackedStarts
from planner.solvers.pattern_plans import PatternPlans
from planner.solvers.start_portfolio import StartPortfolio

GOOD_FIT = 0.02
"""Gap of over-full starts below which no others are tried."""

SHORT_STARTS = 0.02
"""Gap of starts above which a pass goes on from them also where none was asked for, if tables go in and out one by one:
it takes about as long as raising the bound to such plans."""

GOOD_STARTS = 0.1
"""Gap of the start portfolio below which nothing is built up from nothing."""


class Deepening:
    """The order of things in one run."""

    def __init__(
        self, fluid: Fluid, limits: SearchLimits, tell: Progress, relaxed: FluidSolution | None = None
    ) -> None:
        """`relaxed` is the optimum of the relaxation, where it is known."""
        self.relaxed = relaxed_optimum(fluid) if relaxed is None else relaxed
        incumbent = Incumbent(bound_of(self.relaxed), limits, tell)
        self.fluid, self._effort, self._seed, self.incumbent = fluid, limits.effort, limits.seed, incumbent
        self._exhaustive_search = ExhaustiveSearch(fluid.problem, incumbent)
        self.raiser = BoundRaiser(fluid, self.relaxed, incumbent, self._exhaustive_search, limits)
        self._start_portfolio = StartPortfolio(fluid, self.relaxed, incumbent)
        self._local = LocalSearch(fluid, self.relaxed.multipliers, incumbent)
        self._passes = Passes(fluid, self.relaxed, incumbent, self._local, limits.seed)
        self._pattern_plans = PatternPlans(incumbent, self._passes, limits)
        self._overfull = OverfullStarts(
            fluid, self.relaxed, self._start_portfolio.tight, incumbent, self._local, limits.seed
        )
        self._nothing_fits = False
        self._first: list[Start] | None = None
        self._queue: list[Start] = []

    def open(self) -> None:
        """Try all plans where these are few, and make the starts that cost least."""
        if self._first is not None:
            return
        self._first = []
        self._exhaustive_search.from_below()
        if self.incumbent.best is None or not self.incumbent.is_done():
            self._first = self._start_portfolio.first() if self._may_overfill else self._starts_or_fallback()
            self._first += self._uniform()
            self.raiser.tighten()

    def begin(self) -> None:
        """Make all other starts. The smallest problems need none."""
        self.open()
        incumbent = self.incumbent
        if incumbent.best is not None and incumbent.is_done():
            return
        starts = _distinct(sorted(self._starts(), key=lambda start: start[1]))
        self._exhaustive_search.below_best()
        if starts:
            self.raiser.divide_by_time()
        if self._effort != 0:
            self._queue = self._passes.finalists(starts, self._start_portfolio.most_starts)
        self._aim()
        if self._effort == 0 and self._falls_short():
            self._queue = self._passes.finalists(starts, self._start_portfolio.most_starts)

    def run_pass(self, number: int) -> None:
        """Run the local search's pass of that number, from 1: from one of the best starts, then from the best plan."""
        self._exhaustive_search.renew(number)
        if self.incumbent.best is not None and not self.incumbent.is_done():
            self._passes.run(self._queue, number - 1)

    @property
    def asks_for_pass(self) -> bool:
        """Whether starts wait for a pass."""
        return bool(self._queue) and not self.incumbent.is_done()

    def ruin_longer(self, number: int) -> None:
        """Go on after the pass of that number where it was short for the few tables that there are, once the bound is
        raised: to a better plan it might be raised less."""
        self._passes.ruin_longer(number - 1)

    def refine(self, number: int) -> None:
        """Search locally from the best plan, which comes from elsewhere."""
        if self.incumbent.best is not None and not self.incumbent.is_done():
            self._local.improve(self.incumbent.best[0], self._seed + number, LATER_SQUARINGS)

    @property
    def is_large(self) -> bool:
        """Whether local search leaves expensive options out."""
        return self._local.is_large

    def repack(self) -> None:
        """Pack the tables of the best plan over nodes anew."""
        self._passes.repack()

    def relaxed_within(self, mask: Bools) -> bool:
        """Whether the relaxation takes none but blocks of the mask [B]: the search looks at these first anyway."""
        return bool(mask[self.relaxed.choices].all())

    def raise_bound(self, passes: int) -> None:
        """Raise the bound as hard as is fit after so many passes, and round what it is proven by; again from the better
        plan that this may find."""
        for _ in range(2):
            self.raiser.raise_all(passes)
            self._pattern_plans.run(self.raiser.patterns, passes)

    def outcome(self) -> Outcome:
        """Return what there is now."""
        incumbent = self.incumbent
        ran_out = incumbent.clock.ran_out
        if incumbent.best is None:
            status: Status = "infeasible" if self._nothing_fits else "timeout"
            return Outcome(status, None, None, incumbent.bound, None, self._nothing_fits, ran_out)
        placement, step_s = incumbent.best
        bound = replace(incumbent.bound, seconds=min(incumbent.bound.seconds, step_s))
        status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
        return Outcome(status, placement, step_s, bound, None, ran_out_of_time=ran_out)

    def _falls_short(self) -> bool:
        """Whether starts of a problem in which tables go in and out one by one are far above the bound."""
        incumbent = self.incumbent
        is_near = incumbent.best is None or incumbent.is_within(SHORT_STARTS) or incumbent.is_done()
        return not is_near and may_ruin(self.fluid.problem)

    def _aim(self) -> None:
        """Divide the plans into cases by the times of stages, where the bound is loose, and begin with a plan that aims
        at the case with the least bound, if that is better than all others."""
        before_s, case = self.incumbent.best_s, self.raiser.divide()
        if self._aim_packed():
            return
        if case is None or case.relaxed is None:
            return
        portfolio = StartPortfolio(case.fluid, case.relaxed, self.incumbent)
        starts = _distinct(sorted(portfolio.starts(), key=lambda start: start[1]))
        if self._effort != 0:
            better = [start for start in self._passes.finalists(starts, portfolio.most_starts) if start[1] < before_s]
            self._queue[:0] = better[:1]

    def _aim_packed(self) -> bool:
        """Where there are few blocks on each of many sites, pack them as level as can be, by the case with the least
        bound, begin with the best such plan, and divide the plans up to it; return whether there is one."""
        case, portfolio = self.raiser.weakest(), self._start_portfolio
        if case is None or case.relaxed is None or portfolio.most_starts > 1 or portfolio.is_scarce:
            return False
        packing = PackedStarts(case.fluid, case.relaxed, self.incumbent, self._seed)
        if not packing.are_possible:
            return False
        starts = sorted(packing.starts(), key=lambda start: start[1])
        if starts:
            self.raiser.divide_few_blocks()
        if starts and self._effort != 0:
            self._queue = starts[:1]
        return bool(starts)

    def _uniform(self) -> list[Start]:
        """Return the plans whose nodes all hold the same, or are of two sorts, where most tables are alike and these
        are better than all starts that are there."""
        incumbent, relaxed = self.incumbent, self.relaxed
        nodes = UniformNodes(self.fluid.problem)
        if incumbent.is_within(LOOSE) or incumbent.is_done() or not nodes.is_possible:
            return []
        value = self.fluid.choice_values(relaxed.multipliers)
        start = nodes.plan(value, incumbent.best_s - relaxed.bound_s, incumbent.best_s, incumbent.clock)
        starts = [] if start is None else [start]
        if start is not None:
            incumbent.offer(*start, "uniform nodes")
        if not incumbent.is_within(LOOSE) and not incumbent.is_done():
            starts += self._unlike(nodes, value)
        return starts

    def _unlike(self, nodes: UniformNodes, value: Floats) -> list[Start]:
        """Return the best plan of two sorts of nodes, after a little local search, if it is better than all
        others."""
        incumbent, relaxed = self.incumbent, self.relaxed
        slack_s = incumbent.best_s - relaxed.bound_s
        stage_seconds, clock = relaxed.stage_seconds, incumbent.clock
        unlike = UnlikeNodes(self.fluid.problem, nodes.tables, value, slack_s, stage_seconds, clock, self._seed)
        best: Start | None = None
        for start in unlike.plans(incumbent.best_s):
            best = start
            incumbent.offer(*start, "unlike nodes")
            if incumbent.is_done():
                break
        if best is None:
            return []
        return [self._local.improve(best[0], self._seed, LATER_SQUARINGS, TRIAL_ROUNDS, TRIAL_ROUNDS)]

    def _starts(self) -> list[Start]:
        """Return placements to begin with: the first ones, and others, which aim at the bound that those have
        tightened."""
        incumbent, portfolio = self.incumbent, self._start_portfolio
        starts = list(self._first or [])
        if not incumbent.is_within(GOOD_STARTS):
            starts += self._passes.built()
        if self._may_overfill:
            is_easy = bool(starts)
            starts += self._overfull.starts([usable for _, usable in portfolio.allowed[: portfolio.most_starts]])
            if not incumbent.is_within(GOOD_STARTS) and not incumbent.is_done():
                starts += self._overfull.packed()
            if not starts or (is_easy and not (incumbent.is_within(GOOD_FIT) or incumbent.is_done())):
                starts += self._starts_or_fallback()
        return starts

    @property
    def _may_overfill(self) -> bool:
        """Whether memory is scarce and the problem is small enough for starts that are over-full at first."""
        return self._start_portfolio.is_scarce and not self._local.is_large

    def _starts_or_fallback(self) -> list[Start]:
        """Return the starts of the portfolio; where there is none, a placement that fits, if one is found."""
        starts = self._start_portfolio.starts()
        if starts:
            return starts
        last = self._tried()
        if last is None and not self._nothing_fits:
            last = fallback_placement(self.fluid, self.relaxed, self.incumbent.clock)
        more = LONGER_TRIES if self._effort is None else self._effort
        if last is None and not self._nothing_fits and more > 1:
            self._exhaustive_search.renew(more)
            last = self._tried()
        if last is None:
            return []
        self.incumbent.offer(*last, "start")
        return [last]

    def _tried(self) -> Start | None:
        """Return a placement that fits, or none, by trying them all as far as the work suffices."""
        fits = self._exhaustive_search.whatever_fits()
        self._nothing_fits = fits is not None and fits.placement is None
        if fits is None or fits.placement is None:
            return None
        return fits.placement, load_state(self.fluid.problem, fits.placement).step_s()


def _distinct(starts: list[Start]) -> list[Start]:
    """Return the starts without those that are as long as the one before, which are the same plan."""
    return [start for i, start in enumerate(starts) if not i or start[1] != starts[i - 1][1]]
