"""The search: what a plan is found by, and the ways to ask for a part of it."""

from collections.abc import Sequence
from dataclasses import replace

from planner.certificates.multipliers import Bound
from planner.certificates.shortage import Shortage
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools
from planner.problem.placement import Placement
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.deepening import Deepening
from planner.solvers.improve.descent import descended
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Progress
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import Relaxation, bound_of, relaxed_optimum
from planner.solvers.portfolio import Portfolio
from planner.solvers.seeds import FurtherSeeds


def solve(
    problem: Problem,
    limits: SearchLimits,
    progress: Progress | None = None,
    restrictions: Sequence[Bools] = (),
    relaxation: Relaxation | None = None,
    seeds: FurtherSeeds | None = None,
) -> Outcome:
    """Return the best placement found within the limits, from their seed and `seeds` beside it, with a lower bound on
    all placements.

    More passes go on from what fewer have found, and a problem is searched with its `restrictions` to the blocks of a
    mask [B] where these are little or compete (`planner.solvers.portfolio`): as a rule neither ends worse than less.
    Without a pass (effort 0) the search ends in another way, which may come to a better plan than a pass does. No
    single move or swap makes the placement better, unless the gap that was asked was reached, time ran out, or the last
    descent came to the end of its work limit. The `relaxation` of the problem is solved here where nobody has done so.
    """
    tell = progress or (lambda *_: None)
    if seeds is None:
        return _of_one_seed(problem, limits, tell, restrictions, relaxation)
    with seeds.searching(problem, restrictions, limits) as others:
        outcome = _of_one_seed(problem, seeds.of_first(limits), tell, restrictions, relaxation)
        while not outcome.is_within(limits.gap) and (other := next(others, None)) is not None:
            outcome = better(outcome, other)
            tell("other seeds", outcome.step_s, outcome.bound_s)
    return outcome


def _of_one_seed(
    problem: Problem,
    limits: SearchLimits,
    tell: Progress,
    restrictions: Sequence[Bools],
    relaxation: Relaxation | None,
) -> Outcome:
    portfolio = Portfolio(problem, restrictions, limits, tell, relaxation=relaxation)
    portfolio.run()
    return portfolio.outcome()


def resumed(problem: Problem, placement: Placement, limits: SearchLimits, progress: Progress | None = None) -> Outcome:
    """Return the best placement that local search comes to from a known one that fits, with a lower bound on all.

    It begins nowhere else, which is what takes most of the time of `solve`.
    """
    search = Deepening(Fluid(problem, integrality_floors(problem)), limits, progress or (lambda *_: None))
    search.incumbent.offer(placement, load_state(problem, placement).step_s(), "start")
    for number in range(1, 1 + (1 if limits.effort is None else limits.effort)):
        search.run_pass(number)
    best = search.incumbent.best
    if best is not None and not search.incumbent.is_done():
        search.incumbent.offer(*descended(problem, best[0], search.incumbent.clock.is_over), "descent")
    search.raise_bound(limits.effort or 0)
    return search.outcome()


def bounded(problem: Problem, placement: Placement, gap: float) -> Outcome | None:
    """Return a known placement with a bound that takes little time: raised until it is within `gap` of the placement,
    or no further. None where the placement does not fit."""
    state = load_state(problem, placement)
    fluid = Fluid(problem, integrality_floors(problem))
    if (state.free < 0).any() or shortage(fluid) is not None:
        return None
    search = Deepening(fluid, SearchLimits(gap=gap, effort=0), lambda *_: None)
    search.incumbent.offer(placement, state.step_s(), "start")
    search.raiser.raise_quickly()
    return replace(search.outcome(), status="feasible")


def relaxed(problem: Problem) -> Bound | Shortage:
    """Return the bound of the multipliers alone, without a search for a placement; or the proof that there is none."""
    fluid = Fluid(problem, integrality_floors(problem))
    missing = shortage(fluid)
    return bound_of(relaxed_optimum(fluid)) if missing is None else missing


def better(first: Outcome, second: Outcome) -> Outcome:
    """Return the faster plan of two with the higher bound of two; the first where nothing fits."""
    if first.bound is None or second.bound is None:
        return first
    best = second if second.best_s < first.best_s else first
    bound = max((first.bound, second.bound), key=lambda bound: bound.seconds)
    bound = replace(bound, seconds=min(bound.seconds, best.best_s))
    is_optimal = best.best_s <= bound.seconds * (1 + OPTIMAL_GAP)
    status = "optimal" if is_optimal and best.placement is not None else best.status
    ran_out = first.ran_out_of_time or second.ran_out_of_time
    return replace(best, status=status, bound=bound, ran_out_of_time=ran_out)
