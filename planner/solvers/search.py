"""The search: the bound, trials of all plans, the starts, then passes of local search, and the bound once more."""

from dataclasses import replace

from planner.grains import grain_seconds
from planner.problem import Placement, Problem, load_state
from planner.solvers.bounding import BoundRaiser, bound_of, relaxed_optimum
from planner.solvers.composing import composed
from planner.solvers.fluid import Fluid
from planner.solvers.incumbent import OPTIMAL_GAP, Incumbent, Outcome, Progress, Start, Status
from planner.solvers.infeasible import Shortage, shortage
from planner.solvers.ladder import Ladder
from planner.solvers.last_resort import last_resort
from planner.solvers.limits import Limits
from planner.solvers.local_search import LocalSearch
from planner.solvers.overfull_starts import OverfullStarts
from planner.solvers.passes import Passes
from planner.solvers.prices import Bound
from planner.solvers.trials import Trials

GOOD_FIT = 0.02
"""Gap of over-full starts below which no others are tried."""


def solve(problem: Problem, limits: Limits, progress: Progress | None = None) -> Outcome:
    """The best placement found within the limits, with a lower bound on all placements."""
    found = composed(problem)
    outcome = _solved(found.problem, limits, progress)
    if outcome.placement is None:
        return outcome
    return replace(outcome, placement=found.taken_apart(outcome.placement))


def bounded(problem: Problem, placement: Placement, gap: float) -> Outcome | None:
    """A placement that is known, with a bound that takes little time: raised until it is within `gap` of the placement,
    or no further. None where the placement does not fit."""
    state = load_state(problem, placement)
    fluid = Fluid(problem, grain_seconds(problem))
    if (state.free < 0).any() or shortage(fluid) is not None:
        return None
    search = _Search(fluid, Limits(gap=gap, effort=0), lambda *_: None)
    search.incumbent.offer(placement, state.step_s(), "start")
    search.raiser.raise_quickly()
    return replace(search.outcome(), status="feasible")


def relaxed(problem: Problem) -> Bound | Shortage:
    """The bound of the prices alone, without a search for a placement; or the proof that there is none."""
    fluid = Fluid(problem, grain_seconds(problem))
    missing = shortage(fluid)
    return bound_of(relaxed_optimum(fluid)) if missing is None else missing


def better(one: Outcome, other: Outcome) -> Outcome:
    """The faster plan of two with the higher bound of two; the first one where it has no plan."""
    if one.step_s is None or other.step_s is None or one.bound is None or other.bound is None:
        return one
    best = one if one.step_s <= other.step_s else other
    bound = max((one.bound, other.bound), key=lambda bound: bound.seconds)
    return replace(best, bound=replace(bound, seconds=min(bound.seconds, best.step_s or bound.seconds)))


def _solved(problem: Problem, limits: Limits, progress: Progress | None) -> Outcome:
    fluid = Fluid(problem, grain_seconds(problem))
    missing = shortage(fluid)
    if missing is not None:
        return Outcome("infeasible", None, None, None, missing)
    search = _Search(fluid, limits, progress or (lambda *_: None))
    search.run()
    return search.outcome()


class _Search:
    """The order of things in one run."""

    def __init__(self, fluid: Fluid, limits: Limits, tell: Progress) -> None:
        optimum = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(optimum), limits, tell)
        self._fluid, self._relaxed, self._effort, self.incumbent = fluid, optimum, limits.effort, incumbent
        self._trials = Trials(fluid.problem, incumbent, limits.effort)
        self.raiser = BoundRaiser(fluid, optimum, incumbent, self._trials, limits)
        self._ladder = Ladder(fluid, optimum, incumbent)
        self._local = LocalSearch(fluid, optimum.prices, incumbent)
        self._passes = Passes(fluid, optimum, incumbent, self._local, limits.seed)
        self._overfull = OverfullStarts(fluid, optimum, self._ladder.tight, incumbent, self._local, limits.seed)
        self._nothing_fits = False

    def run(self) -> None:
        """Starts, the bound once more, then passes of local search: from the best starts, then from the best plan.

        The bound is raised after the first pass, the second, the fourth, …, with more patience each time, and at last.
        The smallest problems need none of it.
        """
        incumbent, patience = self.incumbent, 1.0
        self._trials.from_below()
        if incumbent.best is not None and incumbent.is_done():
            return
        starts = _distinct(sorted(self._starts(), key=lambda start: start[1]))
        self._trials.below_best()
        queue = self._passes.finalists(starts, self._ladder.most_starts) if self._effort != 0 else []
        done = 0
        while incumbent.best is not None and not incumbent.is_done() and done != self._effort:
            self._passes.run(queue, done)
            done += 1
            if done & (done - 1) == 0:
                patience = done * done / 2
                self.raiser.raise_all(patience)
        self.raiser.raise_all(patience)

    def outcome(self) -> Outcome:
        """What there is now."""
        incumbent = self.incumbent
        if incumbent.best is None:
            status: Status = "infeasible" if self._nothing_fits else "timeout"
            return Outcome(status, None, None, incumbent.bound, None, self._nothing_fits)
        placement, step_s = incumbent.best
        bound = replace(incumbent.bound, seconds=min(incumbent.bound.seconds, step_s))
        status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
        return Outcome(status, placement, step_s, bound, None)

    def _starts(self) -> list[Start]:
        """Placements to begin with; the bound is tightened by the first ones, at which others aim."""
        incumbent, ladder = self.incumbent, self._ladder
        may_overfill = ladder.is_scarce and not self._local.is_large
        found = ladder.first() if may_overfill else self._ladder_or_last_resort()
        self.raiser.tighten()
        found += self._passes.built()
        if may_overfill:
            is_easy = bool(found)
            found += self._overfull.starts([usable for _, usable in ladder.allowed[: ladder.most_starts]])
            if not found or (is_easy and not (incumbent.is_done() or incumbent.is_within(GOOD_FIT))):
                found += self._ladder_or_last_resort()
        return found

    def _ladder_or_last_resort(self) -> list[Start]:
        """The starts of the ladder; where there is none, a placement that fits, if one is found."""
        problem, found = self._fluid.problem, self._ladder.starts()
        if found:
            return found
        fits = self._trials.whatever_fits()
        self._nothing_fits = fits is not None and fits.placement is None
        last: Start | None = None
        if fits is not None and fits.placement is not None:
            last = fits.placement, load_state(problem, fits.placement).step_s()
        elif not self._nothing_fits:
            last = last_resort(self._fluid, self._relaxed, self.incumbent.clock)
        if last is None:
            return []
        self.incumbent.offer(*last, "start")
        return [last]


def _distinct(starts: list[Start]) -> list[Start]:
    """Without those that are as long as the one before, which are the same plan."""
    return [start for i, start in enumerate(starts) if not i or start[1] != starts[i - 1][1]]
