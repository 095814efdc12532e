"""The search: the fluid bound, then a ladder of granularities, each chosen by prices, rounded and placed."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from planner.enumeration import Tried, proven_s, try_all
from planner.grains import grain_seconds
from planner.problem import WORLD, Bools, Floats, Ints, LoadState, Placement, Problem, load_state
from planner.solvers.branching import Branches, Stop
from planner.solvers.choices import cheapest_first
from planner.solvers.composing import composed
from planner.solvers.fluid import Fluid, FluidSolution
from planner.solvers.greedy import place
from planner.solvers.improve import AMPLE, SPARE, TURNS, Improver
from planner.solvers.infeasible import Shortage, shortage
from planner.solvers.overfull import with_priced_memory
from planner.solvers.packing import pack
from planner.solvers.prices import Bound, Prices
from planner.solvers.repartition import ROUNDING_BYTES
from planner.solvers.rounding import fill, round_picks
from planner.solvers.ruin import Ruin
from planner.solvers.sharpening import sharpen
from planner.solvers.slimming import Slim, slimmed, with_options
from planner.solvers.steps import blocks_in_steps
from planner.solvers.threshold import least_of_stages, step_of_block, tighten

OPTIMAL_GAP = 1e-6
"""A plan this near to its bound is called optimal: the bound is rounded down by 1e-9 and solved to 1e-5 at worst."""
STAGE_CAPS: tuple[float, ...] = (0.45, 0.6, 0.3, 0.8, 0.5, 0.25, 1.0, 2.0, 8.0)
"""Caps on one block's share of a stage's time, the most promising first: small blocks pack well, but cost more."""
MANY_STAGE_CAPS: tuple[float, ...] = (0.6, 0.45, *STAGE_CAPS[2:])
"""The same where tables are many for the ranks, so that they pack well anyway."""
OFF_STEP = 0.75
"""A block that keeps ranks off the steps that others' loads come in counts as if it were this share of a stage."""
FEW_TABLES = 200
"""Up to so many, or one for each rank, starts are compared whatever their steps."""
LEAST_ROOM = 0.1
"""Share of a stage that a block is measured by at least, where the base takes almost all of it."""
BLOCKS_AT_ONCE = 20_000
"""Block types whose loads on all columns are held at once."""
FULL = 0.5
"""Share of a memory tier that tables take, above which it is filled evenly: the last ones must find room."""
POOL_CAPS = (0.9, 0.6, 0.25, 0.12, 0.05)
"""Caps on one block's share of a memory pool, where memory is scarce; elsewhere the first is enough. A block that
leaves no memory for another one leaves its rank idle."""
SCARCE_STAGE_CAPS = 5
"""So many of the caps on stages are tried where memory is scarce."""
LADDER_WORK = 1.5e7
"""Tables x ranks that the starts may take together: large problems get by with one."""
GOOD_START = 0.2
"""Gap below which no start with less memory is tried."""
HEADROOMS = (1.0, 0.998, 0.995, 0.98, 0.96, 0.92, 0.85, 0.75)
"""Shares of the memory that the choice of options may use; less leaves room for placing whole blocks."""
OVERFULL_HEADROOMS = (0.9998, 0.9994, 0.998, 0.99)
"""Shares of the memory for starts that may be over-full at first."""
BYTE_PRICE, DEAR_BYTE_PRICE, REPAIR_ROUNDS = 2.0, 8.0, 16
"""The price of bytes until they are levelled, as a multiple of the bound's; the one while most of what is too much
leaves; and the rounds at each norm in which the placement must come to fit."""
LOST_IN_REPAIR = 0.005
"""Share of the step that limits may cost a start at last; where it is more, less of the memory is tried, too."""
GOOD_FIT = 0.02
"""Gap below which no other starts are tried beside those."""
FINALISTS = 3
"""Starts, the best of the ladder, that local search works on; one where the ladder has no more than these."""
SQUARINGS = (3, 4, 5, 6, 7)
"""The local search's norm is 2 to these powers, one after the other."""
LATER_SQUARINGS = (5, 6, 7)
"""Those of a pass that goes on from the best plan."""
ROUNDS, LARGE_ROUNDS = 40, 20
"""Rounds at each norm; in large problems levelling gains more in the same time."""
TRIAL_ROUNDS = 4
"""Rounds at each norm to compare starts by."""
LEVEL_ROUNDS = 60
"""Rounds towards a target after them."""
RUIN_WORK = 150_000
"""Tables x ranks x columns up to which a pass takes tables out and puts them back in another way."""
RUIN_PRICED, FEWEST_STEPS, MOST_STEPS = 30_000, 50, 1_500
"""Columns of options that are priced in one pass, and limits on how often tables are taken out in it."""
STEPS_PER_TABLE = 5
"""Another such limit."""
BUILD_TABLES = 200
"""Tables up to which such problems are also built up from nothing."""
BUILD_MARGINS = (1.01, 1.03)
"""The targets of these, over the bound."""
WORTH_LEVELLING = 1e-4
"""A state that tables in and out end in is levelled, too, where evenly loaded it would be faster by this share."""
LONGER_PASSES = 3
"""How often a pass may take twice the steps of the one before; four times as many, where tables are few."""
TEMPERATURES = (1e-3, 1e-4, 1e-2)
"""Of these passes, in turn."""
TIGHTEN_BLOCKS = 20_000
"""Block types up to which the bound is tightened where tables are more than ranks: each bisection solves the relaxation
anew, and only where tables are few for the ranks is much won."""
EXCESS, LARGE_EXCESS = 1e-3, 0.05
"""Share of the step by which a table's largest block must outlast its stage in the relaxation to be held there as a
whole; in problems of more block types only what shows at once, as each such table costs rounds."""
LOOSE = 0.01
"""Gap above which dual feasible functions are looked for: they gain a few tenths of a per cent."""
TRIED_WORK = 6e6
"""Numbers that trying every plan may work on with each pass, and with none: about 2e7 take a second."""
FIRST_TRIES, FIRST_WORK = (0.01, 0.03, 0.1, 0.25, 0.6, 1.5), 0.2
"""Distances from the bound below which all plans are tried before anything else, and the share of the work for each."""
LONGER_TRIES = 100
"""How much more of that where neither a number of passes is given nor anything fits."""
TRIES, LAST_TRY = 3, 0.01
"""All plans are tried below a threshold that is higher every time: the lower, the fewer there are. It is one of so many
steps, equal in proportion, from the bound to the best plan; the best plan's own where that is as near as the latter."""
SLIM_BLOCKS, WORTH_A_LOOK = 100_000, 2.0
"""Block types above which local search leaves out options that cost, at the bound's prices, more than so many times
what their table's cheapest one costs."""
CASES_OF_A_PASS = 100
"""Cases that branching may look at, for each pass of the local search: they take about as long."""
FEWEST_CASES = 20
"""Cases below which branching is not worth a start."""
BRANCH_WORK = 4e6
"""Block types x ranks x cases that branching may take together."""
IDLE_ROUNDS = 16
"""Rounds without a better plan after which a norm, or levelling, is done; where ranks are fewer, as many as
these, or one of each kind of round."""
LAST_RESORT_TABLES, LAST_RESORT_CHOICES = 40, 2000
"""Where the ladder places nothing: how many choices of options are tried, and up to which number of tables."""
CONFINED_TRIES = 20
"""Of so many tries, where ranks are forbidden or tables grouped, all but one place at random."""

Status = Literal["optimal", "feasible", "infeasible", "timeout"]
Progress = Callable[[str, float | None, float | None], None]
"""Called with (step of the search, best step so far in seconds, bound in seconds)."""


@dataclass(frozen=True)
class Limits:
    """When to stop, and the seed of every random choice.

    The search ends within `gap` of the bound (step / bound - 1), after `effort` passes of the local search (None: no
    end), after `time_limit_s`, or when `stop` says so. Where neither time nor `stop` ends it, the outcome follows from
    the problem and the seed alone.
    """

    time_limit_s: float = 60.0
    gap: float = 0.01
    effort: int | None = 1
    seed: int = 0
    stop: Callable[[], bool] | None = None
    clock: Callable[[], float] = time.monotonic
    """Seconds that time is measured in: those of the wall, or of the process."""
    cases: int = 400
    """That branching looks at, at most; fewer where the problem is large."""


@dataclass(frozen=True)
class Outcome:
    """What the search found. The bound holds for every placement; a shortage proves that there is none."""

    status: Status
    placement: Placement | None
    step_s: float | None
    bound: Bound | None
    shortage: Shortage | None
    tried: bool = False
    """Whether every placement was tried, and none fits."""

    @property
    def bound_s(self) -> float | None:
        """The bound's seconds."""
        return None if self.bound is None else self.bound.seconds


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
    bound = search.bound_of(placement, state.step_s())
    return Outcome(
        "feasible", placement, state.step_s(), replace(bound, seconds=min(bound.seconds, state.step_s())), None
    )


def relaxed(problem: Problem) -> Bound | Shortage:
    """The bound of the prices alone, without a search for a placement; or the proof that there is none."""
    fluid = Fluid(problem, grain_seconds(problem))
    missing = shortage(fluid)
    return _bound(_relaxation(fluid)) if missing is None else missing


def _relaxation(fluid: Fluid) -> FluidSolution:
    few = len(fluid.problem.block_option) <= TIGHTEN_BLOCKS
    return fluid.solve(excess=EXCESS if few else LARGE_EXCESS)


def _bound(solution: FluidSolution) -> Bound:
    return Bound(solution.bound_s, solution.prices, None)


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
    if search.best is None:
        status: Status = "infeasible" if search.nothing_fits else "timeout"
        return Outcome(status, None, None, search.bound, None, search.nothing_fits)
    search.raise_bound()
    placement, step_s = search.best
    bound = replace(search.bound, seconds=min(search.bound.seconds, step_s))
    status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
    return Outcome(status, placement, step_s, bound, None)


class _Search:
    """One run: the bound, the starts of the ladder, local search on the best of them."""

    def __init__(self, fluid: Fluid, limits: Limits, tell: Progress) -> None:
        self._fluid, self._limits, self._tell = fluid, limits, tell
        self._slimmest: Slim | None = None
        self._stuck_s = np.inf
        """Step of a plan that more levelling does not help."""
        self._clock = Clock(limits)
        self.best: tuple[Placement, float] | None = None
        self._branches: Branches | None = None
        self._branched: tuple[float, float] | None = None
        self._patience = 1.0
        self._gave_up: tuple[float, float] | None = None
        effort = limits.effort or (0 if limits.effort == 0 else LONGER_TRIES)
        self._work = TRIED_WORK * max(effort, 1)
        self.nothing_fits = False
        self._tightened_s: float | None = None
        self._is_sharp = False
        self.relaxed: FluidSolution = _relaxation(fluid)
        self.bound = _bound(self.relaxed)
        tell("bound", None, self.bound.seconds)

    def bound_of(self, placement: Placement, step_s: float) -> Bound:
        """The bound for a placement that is known, raised by what takes little time as long as it is too far away."""
        self._offer(placement, step_s, "start")
        for raise_it in (self.tighten, self.sharpen):
            if not self._is_done():
                raise_it()
        return self.bound

    def raise_bound(self) -> None:
        """By a threshold, by trying plans and by cases; what these find may be a better plan, too."""
        if not self._is_done():
            self.tighten()
            self.sharpen()
            self.try_all()
            self.branch()
            self.try_all()

    def tighten(self) -> None:
        """Raise the bound by a threshold below the best plan, unless tables are many."""
        problem = self._fluid.problem
        worth_it = problem.tables <= problem.world or len(problem.block_option) <= TIGHTEN_BLOCKS
        if self._clock.is_over():
            return
        if self.best is not None and worth_it and self.best[1] != self._tightened_s:
            self._tightened_s = self.best[1]
            found = tighten(self._fluid, self.relaxed, self.best[1], self.bound)
            if found.seconds > self.bound.seconds:
                self.bound = found
                self._tell("bound", self.best[1], self.bound.seconds)

    def sharpen(self) -> None:
        """Raise the bound by dual feasible functions, where it is loose and the problem not too large; once."""
        few = len(self._fluid.problem.block_option) <= TIGHTEN_BLOCKS
        if self._is_sharp or not few or self.best is None or self.best[1] <= self.bound.seconds * (1 + LOOSE):
            return
        self._is_sharp = True
        found = sharpen(self._fluid, self.bound, self.best[1], self._clock.is_over)
        if found.seconds > self.bound.seconds:
            self.bound = found
            self._tell("bound", self.best[1], self.bound.seconds)

    def try_all(self) -> None:
        """Try every plan below the best one, where these are few: below the bound and a little more first."""
        while self.best is not None and not self._is_done() and self._work > 0:
            low, high = self.bound.seconds, self.best[1]
            if self._gave_up is not None and low <= self._gave_up[0] and high >= self._gave_up[1]:
                return
            is_last = low <= 0 or high <= low * (1 + LAST_TRY)
            threshold = high if is_last else low * (high / low) ** (1 / TRIES)
            found = self._tried(self._fluid.problem, threshold, self.bound.prices)
            if found is None:
                self._gave_up = low, high
                return
            if found.placement is not None:
                self._offer(found.placement, found.step_s, "all plans tried")
                threshold = found.step_s
            proven = proven_s(threshold)
            if proven <= self.bound.seconds:
                return
            self.bound = replace(self.bound, seconds=proven, packed=None, tree=None, tried_s=threshold)
            self._tell("bound", self.best[1], self.bound.seconds)

    def _try_from_below(self) -> None:
        """Try every plan a little above the bound, where these are few; the first threshold with a plan is enough."""
        low = self.bound.seconds
        for share in FIRST_TRIES if low > 0 else ():
            threshold = low * (1 + share)
            found = self._tried(self._fluid.problem, threshold, self.bound.prices, FIRST_WORK)
            if found is None:
                return
            if found.placement is not None:
                self._offer(found.placement, found.step_s, "all plans tried")
                threshold = found.step_s
            self.bound = replace(self.bound, seconds=proven_s(threshold), tried_s=threshold)
            self._tell("bound", found.step_s if found.placement is not None else None, self.bound.seconds)
            if found.placement is not None:
                return

    def _tried(self, problem: Problem, threshold_s: float, prices: Prices | None, part: float = 1.0) -> Tried | None:
        weight, byte = (None, None) if prices is None else (prices.weight, prices.byte)
        allowed = self._work * part
        found = try_all(problem, threshold_s, weight, byte, allowed, self._clock.is_over)
        self._work -= allowed / 2 if found is None else found.work
        return found

    def branch(self) -> None:
        """Raise the bound case by case, where the problem is small enough; that may find a better plan, too."""
        problem = self._fluid.problem
        cases = min(self._limits.cases, int(BRANCH_WORK / (len(problem.block_option) * problem.world)))
        if self._limits.effort is not None:
            cases = min(cases, CASES_OF_A_PASS * max(self._limits.effort, 1))
        if self.best is None or cases < FEWEST_CASES:
            return
        if self._branched == (self.best[1], self._patience) or self._is_done():
            return
        if self._branches is None:
            least = least_of_stages(self._fluid, self.bound.prices)
            self._branches = Branches(problem, self.bound.prices, least, self.best[1])
        self._branches.lower(self.best[1])
        self._branches.run(Stop(cases, self._clock.is_over, self._limits.gap, self._patience))
        found = self._branches.result()
        if found.placement is not None:
            self._offer(found.placement, found.step_s, "branching")
        self._branched = self.best[1], self._patience
        if found.bound_s > self.bound.seconds:
            self.bound = replace(self.bound, seconds=found.bound_s, packed=None, tree=found.tree, tried_s=None)
            self._tell("bound", self.best[1], self.bound.seconds)

    def run(self) -> None:
        """Starts, the bound once more, then passes of local search: from the best starts, then from the best plan.

        The bound is raised after the first pass, the second, the fourth, …, with more patience each time.
        The smallest problems need none of it.
        """
        self._try_from_below()
        if self.best is not None and self._is_done():
            return
        queue = self._first_start() if self._may_overfill else self._starts()
        self.tighten()
        if self._may_build:
            queue += self._built()
        if self._may_overfill:
            queue += self._overfull_starts()
            if not (queue and (self._is_done() or self._is_good_fit())):
                queue += self._starts()
        queue = sorted(queue, key=lambda item: item[1])
        self.try_all()
        queue = self._finalists(_distinct(queue)) if self._limits.effort != 0 else []
        done = 0
        while self.best is not None and not self._is_done() and done != self._limits.effort:
            from_start = bool(queue)
            placement, _ = queue.pop(0) if queue else self.best
            if from_start or not self._levelled_more(done):
                self._pass(placement, done, SQUARINGS if from_start else LATER_SQUARINGS)
            done += 1
            if done & (done - 1) == 0:
                self._patience = done * done / 2
                self.raise_bound()

    def _levelled_more(self, number: int) -> bool:
        """Whether levelling the best plan of a large problem once more made it noticeably better."""
        assert self.best is not None
        placement, step_s = self.best
        if may_ruin(self._fluid.problem) or self._stuck_s == step_s:
            return False
        self._improve(placement, self._limits.seed + number, ())
        if self.best[1] < step_s * (1 - WORTH_LEVELLING):
            return True
        self._stuck_s = self.best[1]
        return self._is_done()

    def _finalists(self, starts: list[tuple[Placement, float]]) -> list[tuple[Placement, float]]:
        """The starts that are best after a little local search: what they cost before says little."""
        if self._most_starts <= FINALISTS or len(starts) < 2 or self._is_done():
            return starts[:1]
        tried = [(self._improve(start[0], self._limits.seed, SQUARINGS, TRIAL_ROUNDS, 0)[1], start) for start in starts]
        return [start for _, start in sorted(tried, key=lambda item: item[0])][:FINALISTS]

    @property
    def _may_build(self) -> bool:
        problem = self._fluid.problem
        return may_ruin(problem) and problem.tables <= BUILD_TABLES and not problem.is_confined

    def _pass(self, placement: Placement, number: int, squarings: tuple[int, ...]) -> None:
        """Blocks dealt and moved; then, if the problem is not too large, tables in and out, and blocks once more."""
        seed = self._limits.seed + number
        placement, step_s = self._improve(placement, seed, squarings)
        if not may_ruin(self._fluid.problem) or self._is_done():
            return
        ruin = self._ruin(step_s, seed)
        ruin.start_from(placement)
        steps = ruin_steps(self._fluid.problem, number)
        ruin.run(steps, TEMPERATURES[number % len(TEMPERATURES)], self._clock.is_over)
        found = []
        best, other = ruin.best(), ruin.promising()
        if best is not None and ruin.best_s < step_s:
            self._offer(best, ruin.best_s, "tables in and out")
            found.append(best)
        if other is not None and other[1] < min(ruin.best_s, step_s) * (1 - WORTH_LEVELLING):
            found.append(other[0])
        for each in found:
            if not self._is_done():
                self._improve(each, seed, LATER_SQUARINGS)

    def _ruin(self, target_s: float, seed: int) -> Ruin:
        """Tables in and out, for a step below the target: no block that alone makes the step longer is used."""
        usable = step_of_block(self._fluid, self.relaxed.prices) < target_s
        usable &= self._improving_picks(target_s)
        seconds = target_seconds(self._fluid, self.relaxed, target_s)
        return Ruin(self._slim.problem, self._slim.prices(self.bound.prices), usable, seconds, seed)

    def _built(self) -> list[tuple[Placement, float]]:
        """Placements built up table by table for targets a little above the bound; those that fit."""
        found = []
        for number, margin in enumerate(BUILD_MARGINS):
            if self._is_done():
                break
            ruin = self._ruin(self.bound.seconds * margin, self._limits.seed + number)
            ruin.build()
            placement = ruin.best()
            if placement is not None:
                found.append((placement, ruin.best_s))
                self._offer(placement, ruin.best_s, "start")
        return found

    def _starts(self) -> list[tuple[Placement, float]]:
        """Placements of the ladder, best first: all caps, with ever less memory until something fits.

        Where memory is scarce, less of it makes better starts for a while: it goes on as long as that is so. Where it
        is not, less of it is tried once more, and only if no start is good.
        """
        problem, scarce = self._fluid.problem, self._is_scarce
        found: list[tuple[Placement, float]] = []
        left, before = self._most_starts, np.inf
        for headroom in HEADROOMS:
            level, left = self._level(headroom, self._allowed, left, must_find=not found)
            found += level
            best = min((step_s for _, step_s in level), default=np.inf)
            if self._is_done() or (found and not left):
                break
            is_good, is_stalled = self._is_good_start(), best >= before
            if found and ((is_good and not scarce) or (is_stalled and (is_good or not scarce))):
                break
            before = best
        if not found:
            fits = self._tried(problem.without_seconds(), 1.0, None)
            self.nothing_fits = fits is not None and fits.placement is None
            if fits is not None and fits.placement is not None:
                found.append((fits.placement, load_state(problem, fits.placement).step_s()))
                self._offer(*found[-1], "start")
        if not found and not self.nothing_fits and (last := self._last_resort()) is not None:
            found.append(last)
            self._offer(*last, "start")
        return sorted(found, key=lambda item: item[1])

    @cached_property
    def _is_scarce(self) -> bool:
        return bool((self.relaxed.prices.byte * self._fluid.capacity).sum() > 0)

    @cached_property
    def _allowed(self) -> list[tuple[float, Bools]]:
        """Caps on shares of a pool, with the blocks [B] that keep to them and to one on stages."""
        problem = self._fluid.problem
        seconds, size = _largest_share(problem, self.relaxed.stage_seconds), _largest_pool_share(problem)
        are_many = bool(problem.tables > max(FEW_TABLES, problem.world))
        if are_many:
            seconds = np.where(blocks_in_steps(problem, self.relaxed), seconds, np.maximum(seconds, OFF_STEP))
        stage_caps = MANY_STAGE_CAPS if are_many else STAGE_CAPS
        few = stage_caps[:SCARCE_STAGE_CAPS]
        pool_caps, stage_caps = (POOL_CAPS, few) if self._is_scarce else (POOL_CAPS[:1], stage_caps)
        caps = [*itertools.product(pool_caps, stage_caps), (np.inf, np.inf)]
        masks = ((of_pool, _capped(problem, seconds, size, of_stage, of_pool)) for of_pool, of_stage in caps)
        return list({mask.tobytes(): (of_pool, mask) for of_pool, mask in masks}.values())

    # -- starts that are over-full at first --------------------------------------------------------------------

    @property
    def _may_overfill(self) -> bool:
        return self._is_scarce and len(self._fluid.problem.block_option) <= SLIM_BLOCKS

    def _first_start(self) -> list[tuple[Placement, float]]:
        """The first one of the ladder, whatever it is worth, so that there is a plan."""
        for headroom in HEADROOMS:
            found, _ = self._level(headroom, self._allowed[:1], 1, must_find=False)
            if found or self._is_done():
                return found
        return []

    def _is_good_fit(self) -> bool:
        return self.best is not None and self.best[1] <= self.bound.seconds * (1 + GOOD_FIT)

    def _overfull_starts(self) -> list[tuple[Placement, float]]:
        """Placements of choices for hardly less than all the memory, over-full at first; those that come to fit."""
        fluid, seed = self._fluid, self._limits.seed
        overfull = self._overfull
        full_s = float(LoadState(overfull.problem).stage_seconds()[len(fluid.problem.stage_constants) :].sum())
        tried: list[tuple[float, float, Bools]] = []
        seen: list[tuple[Bools, FluidSolution]] = []
        for _, usable in self._allowed[: self._most_starts]:
            if self._is_done():
                break
            if any(usable[relaxed.picks].all() and not (usable & ~other).any() for other, relaxed in seen):
                continue
            choice = _choose(fluid, usable, OVERFULL_HEADROOMS[0])
            if choice is None:
                continue
            seen.append((usable, choice[0]))
            if choice[0].bound_s < min((value for value, _, _ in tried), default=self._best_s):
                start = _place_overfull(overfull.problem, *choice)
                if start is not None:
                    _, value = self._improve(start, seed, SQUARINGS, TRIAL_ROUNDS, 0, overfull)
                    tried.append((value - full_s, choice[0].bound_s, usable))
        found: list[tuple[Placement, float]] = []
        for _, bound_s, usable in sorted(tried, key=lambda item: item[0])[:FINALISTS]:
            if self._is_done():
                break
            if bound_s >= self._best_s:
                continue
            fitted = self._fitted(usable)
            if fitted is None:
                break
            found.append(fitted)
        return found

    @cached_property
    def _overfull(self) -> Slim:
        """The problem with bytes at a price instead of limits."""
        return self._priced(BYTE_PRICE)

    @cached_property
    def _dearly_overfull(self) -> Slim:
        return self._priced(DEAR_BYTE_PRICE)

    def _priced(self, factor: float) -> Slim:
        seconds = factor * (self.relaxed.prices.byte * self._fluid.capacity).sum(axis=0)
        return slimmed(with_priced_memory(self._fluid.problem, seconds))

    def _fitted(self, usable: Bools) -> tuple[Placement, float] | None:
        """An over-full start, improved until it fits, with ever less memory; None where it does not come to."""
        before: Ints | None = None
        best: tuple[Placement, float] | None = None
        for headroom in OVERFULL_HEADROOMS:
            choice = _choose(self._fluid, usable, headroom)
            if choice is None or choice[0].bound_s >= self._best_s or self._is_done():
                break
            if before is not None and (choice[1] == before).all():
                continue
            before = choice[1]
            start = _place_overfull(self._overfull.problem, *choice)
            found, lost = (None, 0.0) if start is None else self._repaired(start)
            if found is not None and (best is None or found[1] < best[1]):
                best = found
            if best is not None and lost <= LOST_IN_REPAIR:
                break
        return best

    def _repaired(self, placement: Placement) -> tuple[tuple[Placement, float] | None, float]:
        """An over-full start, levelled, then with dearer bytes, then with limits, until it fits; None where not.

        Also the share by which the limits made its step longer.
        """
        problem, seed = self._fluid.problem, self._limits.seed
        placement, _ = self._improve(placement, seed, SQUARINGS, overfull=self._overfull)
        if load_state(problem, placement).overflow_bytes() > 0 and not self._is_done():
            few, dearer = REPAIR_ROUNDS, self._dearly_overfull
            placement, _ = self._improve(placement, seed, LATER_SQUARINGS, few, few, dearer)
        before = load_state(problem, placement)
        if before.overflow_bytes() > 0:
            placement, _ = self._improve(placement, seed, LATER_SQUARINGS, REPAIR_ROUNDS, 0)
        state = load_state(problem, placement)
        if state.overflow_bytes() > ROUNDING_BYTES:
            return None, 0.0
        self._offer(placement, state.step_s(), "start")
        return (placement, state.step_s()), state.step_s() / before.step_s() - 1

    def _level(
        self, headroom: float, allowed: list[tuple[float, Bools]], left: int, *, must_find: bool
    ) -> tuple[list[tuple[Placement, float]], int]:
        """The starts of one step of the ladder, and how many of `left` attempts are left then.

        The blocks `allowed` come with their caps on shares of a pool: smaller ones are tried as long as they help.
        Where there `must_find` be a start, attempts go on until there is.
        """
        found: list[tuple[Placement, float]] = []
        best_of: dict[float, float] = {}
        started: dict[bytes, tuple[Placement, float] | None] = {}
        for of_pool, usable in allowed:
            if not left and (found or not must_find):
                break
            if of_pool not in best_of and len(best_of) > 1 and _is_worse(list(best_of.values())):
                break
            left = max(left - 1, 0)
            choice = _choose(self._fluid, usable, headroom)
            same = b"" if choice is None else choice[1].tobytes()
            is_new = same not in started
            if is_new:
                started[same] = None if choice is None else _placed(self._fluid, *choice)
            start = started[same]
            best_of[of_pool] = min(best_of.get(of_pool, np.inf), np.inf if start is None else start[1])
            if start is not None and is_new:
                found.append(start)
                self._offer(*start, "start")
            if self._is_done():
                break
        return found, left

    def _last_resort(self) -> tuple[Placement, float] | None:
        """What fits by bytes alone, or the first choice of options that does, where the ladder places nothing."""
        packed = pack(self._fluid.problem, self._clock.is_over)
        if packed is not None:
            return packed, load_state(self._fluid.problem, packed).step_s()
        return _first_that_fits(self._fluid, self.relaxed, self._clock)

    @property
    def _most_starts(self) -> int:
        problem = self._fluid.problem
        return max(1, int(LADDER_WORK / (problem.tables * problem.world)))

    def _is_good_start(self) -> bool:
        return self.best is not None and self.best[1] <= self.bound.seconds * (1 + GOOD_START)

    def _improve(
        self,
        placement: Placement,
        seed: int,
        norms: tuple[int, ...],
        rounds: int = ROUNDS,
        levelling: int = LEVEL_ROUNDS,
        overfull: Slim | None = None,
    ) -> tuple[Placement, float]:
        """Local search at one norm after the other, then towards targets; its best placement.

        Starts are relieved first. Of the problem `overfull` instead of its own, placements need not fit.
        """
        slim, number = overfull or self._slim_for(placement), 0
        improver = Improver(slim.problem, slim.inside(placement), seed)
        if self._is_large:
            rounds = min(rounds, LARGE_ROUNDS)

        def best() -> Placement:
            return slim.outside(improver.best())

        def offer() -> None:
            if overfull is None:
                self._offer(best, improver.best_s, "local search")

        offer()
        if norms == SQUARINGS:
            improver.relieve()
        most_idle = min(IDLE_ROUNDS, max(slim.problem.world, TURNS))
        for squarings in norms:
            idle, stale, best_s = 0, 0, improver.best_s
            for _ in range(rounds):
                idle = 0 if improver.round(number, squarings) else idle + 1
                stale = 0 if improver.best_s < best_s else stale + 1
                number, best_s = number + 1, improver.best_s
                if max(idle, stale) >= most_idle:
                    break
                offer()
                if self._is_done():
                    return best(), improver.best_s
        stale, best_s = 0, improver.best_s
        for _ in range(levelling):
            if self._is_done() or stale >= most_idle or not improver.level():
                break
            stale = 0 if improver.best_s < best_s else stale + 1
            best_s = improver.best_s
            offer()
        return best(), improver.best_s

    def _slim_for(self, placement: Placement) -> Slim:
        """What local search works on; of large problems, the options that the placement has or that may be better."""
        problem = self._fluid.problem
        if not self._is_large:
            return self._slim
        if self._slimmest is None or not self._slimmest.holds(placement):
            kept = self._worth_a_look()
            kept[problem.block_option[placement.item_block]] = True
            self._slimmest = with_options(problem, kept)
        return self._slimmest

    @property
    def _is_large(self) -> bool:
        return len(self._fluid.problem.block_option) > SLIM_BLOCKS

    @cached_property
    def _slim(self) -> Slim:
        return slimmed(self._fluid.problem)

    def _worth_a_look(self) -> Bools:
        """[O] options that local search may change to: not much dearer, at the bound's prices, than the cheapest ones.

        Of fixed ones only what is spread over the world. Another memory tier, or another size of a cache, is none where
        bytes have no price: then the cheapest of a table's free options is enough, and of those of the world.
        """
        problem, prices = self._fluid.problem, self.relaxed.prices
        value = np.minimum.reduceat(self._fluid.pick_values(prices), problem.block_start[:-1])
        cheapest, _ = self._fluid.price(prices)
        is_free = problem.option_units > 0
        is_wide = np.minimum.reduceat(problem.block_extent, problem.block_start[:-1]) == WORLD
        kept = (value <= WORTH_A_LOOK * cheapest[problem.option_table]) & (is_free | is_wide)
        if not prices.byte.any():
            for some in (np.flatnonzero(is_free), np.flatnonzero(~is_free & is_wide)):
                least = np.full(problem.tables, np.inf)
                np.minimum.at(least, problem.option_table[some], value[some])
                kept[some] &= value[some] == least[problem.option_table[some]]
        return np.asarray(kept)

    def _improving_picks(self, step_s: float) -> Bools:
        """[B] picks that a plan faster than `step_s` may hold: their value at the fluid bound's prices says so.

        A plan costs at least the bound plus what each of its options costs above its table's cheapest one.
        """
        problem, slack = self._fluid.problem, step_s - self.relaxed.bound_s
        value = self._fluid.pick_values(self.relaxed.prices)
        cheapest, _ = self._fluid.price(self.relaxed.prices)
        return np.asarray(value <= cheapest[problem.option_table[problem.block_option]] + slack)

    def _offer(self, placement: Placement | Callable[[], Placement], step_s: float, source: str) -> None:
        if step_s < self._best_s:
            self.best = (placement() if callable(placement) else placement), step_s
            self._tell(source, step_s, self.bound.seconds)

    @property
    def _best_s(self) -> float:
        return np.inf if self.best is None else self.best[1]

    def _is_done(self) -> bool:
        near = 1 + max(self._limits.gap, OPTIMAL_GAP)
        good = self.best is not None and self.best[1] <= self.bound.seconds * near
        return good or self._clock.is_over()


def may_ruin(problem: Problem) -> bool:
    """Whether the problem is small enough to take tables out and put them back one by one."""
    return problem.tables * problem.world * len(problem.stage_of_column) <= RUIN_WORK


def ruin_steps(problem: Problem, number: int) -> int:
    """Steps of ruin and recreate in a pass: few in the first one, more in each that follows."""
    columns_of_table = len(problem.option_table) / problem.tables * len(problem.stage_of_column)
    most = int(np.clip(RUIN_PRICED / columns_of_table, FEWEST_STEPS, MOST_STEPS))
    later = min(number, LONGER_PASSES)
    return min(most << later, STEPS_PER_TABLE * problem.tables << 2 * later)


def target_seconds(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Floats:
    """[S] stage times that make up a step, each as long in proportion as in the relaxation."""
    constants = fluid.problem.stage_constants
    working = np.maximum(relaxed.stage_seconds - constants, 0.0)
    return np.asarray(constants + working * (step_s - constants.sum()) / max(float(working.sum()), 1e-15))


def _is_worse(best: list[float]) -> bool:
    """Whether the last one is no better than the one before, and both were found."""
    return bool(np.isfinite(best[-1]) and best[-1] >= best[-2])


def _distinct(starts: list[tuple[Placement, float]]) -> list[tuple[Placement, float]]:
    """Without those that are as long as the one before, which are the same plan."""
    return [start for i, start in enumerate(starts) if not i or start[1] != starts[i - 1][1]]


class Clock:
    """When a search ends for want of time, or because it is told to."""

    def __init__(self, limits: Limits) -> None:
        self._now = limits.clock
        self._end = self._now() + limits.time_limit_s
        self._stop, self._is_over = limits.stop, False

    def left_s(self) -> float:
        """Seconds until the end, at least 0."""
        return max(self._end - self._now(), 0.0)

    def is_over(self) -> bool:
        """Whether time is up, or someone said stop; once over, it stays so."""
        if not self._is_over:
            self._is_over = self._now() >= self._end or (self._stop is not None and self._stop())
        return self._is_over


def _largest_share(problem: Problem, stage_seconds: Floats) -> Floats:
    """[B] the largest share of a stage, but for its base, that the block takes of one resource.

    Infinite if it fits nowhere, and where the option cannot be cut into blocks like it without a remainder: the fluid
    optimum counts parts in fractions, and what it took for 2.3 blocks would cost as much as 3.
    """
    aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    room = np.maximum(aim - problem.base_of_instance, LEAST_ROOM * aim)
    peaks = np.empty((problem.kinds, len(problem.block_option)))
    for kind in range(problem.kinds):
        for begin in range(0, peaks.shape[1], BLOCKS_AT_ONCE):
            some = np.arange(begin, min(begin + BLOCKS_AT_ONCE, peaks.shape[1]))
            peaks[kind, some] = (problem.peak_load(kind, some) / room[kind]).max(axis=1)
    whole = problem.option_units[problem.block_option] % np.maximum(problem.block_units, 1) == 0
    somewhere = np.where(problem.allowed & whole, peaks, np.inf).min(axis=0)
    everywhere = np.where(problem.allowed.all(axis=0), 0.0, np.inf)
    return np.where(problem.block_extent == WORLD, everywhere, somewhere)


def _largest_pool_share(problem: Problem) -> Floats:
    """[B] the largest share of a memory pool that one block takes, world-wide ones aside."""
    share = np.where(problem.allowed[..., None], problem.pool_demand, 0.0).max(axis=(0, 2))
    share[problem.block_extent == WORLD] = 0.0
    return np.asarray(share)


def _capped(problem: Problem, seconds: Floats, size: Floats, of_stage: float, of_pool: float) -> Bools:
    """[B] blocks that take at most these shares of a stage and of a pool, world-wide ones among them.

    A table without any other option of such blocks keeps those of its smallest one.
    """
    fits = np.isfinite(seconds)
    peak = np.where(fits, np.maximum(np.where(fits, seconds, 0.0) / of_stage, size / of_pool), np.inf)
    start = problem.block_start[:-1]
    worst = np.where(problem.option_units > 0, np.minimum.reduceat(peak, start), np.maximum.reduceat(peak, start))
    worst[problem.block_extent[start] == WORLD] = np.inf
    smallest = np.minimum.reduceat(worst, problem.option_start[:-1])
    smallest[np.isinf(smallest)] = 0.0
    return np.asarray(peak <= np.maximum(1.0, smallest)[problem.option_table[problem.block_option]])


def _placed(fluid: Fluid, relaxed: FluidSolution, picks: Ints) -> tuple[Placement, float] | None:
    """Options placed, and their step."""
    _, taken = fluid.usage(relaxed.prices, picks)
    full = (taken > FULL * fluid.capacity).any(axis=0)
    scarce = np.asarray((relaxed.prices.byte > 0).any(axis=0) | full)
    ample = np.asarray((taken <= (1 - AMPLE) * fluid.capacity).all(axis=0) & (relaxed.prices.byte == 0).all(axis=0))
    spare = np.where(ample, SPARE * np.array([of_tier.min() for of_tier in fluid.problem.pool_capacity]), 0.0)
    placed = place(fluid.problem, picks, relaxed.stage_seconds, scarce=scarce, spare=spare)
    if placed is None:
        return None
    placement, state = placed
    return placement, state.step_s()


def _choose(fluid: Fluid, usable: Bools, headroom: float) -> tuple[FluidSolution, Ints] | None:
    """The fluid optimum over the `usable` blocks within so much of the memory, and its options made whole."""
    if shortage(fluid, usable, headroom) is not None:
        return None
    relaxed = fluid.solve(usable=usable, headroom=headroom, tolerance=1e-4)
    return relaxed, fill(fluid, relaxed, round_picks(fluid, relaxed), usable, headroom)


def _place_overfull(overfull: Problem, relaxed: FluidSolution, picks: Ints) -> Placement | None:
    """Options placed where bytes have a price instead of limits; the problem has stages beyond those of `relaxed`."""
    of_memory = LoadState(overfull).stage_seconds()[len(relaxed.stage_seconds) :]
    placed = place(overfull, picks, np.concatenate([relaxed.stage_seconds, of_memory]))
    return None if placed is None else placed[0]


def _first_that_fits(fluid: Fluid, relaxed: FluidSolution, clock: Clock) -> tuple[Placement, float] | None:
    """The first choice of options that can be placed, the cheapest at the bound's prices first; small problems only."""
    problem = fluid.problem
    if problem.tables > LAST_RESORT_TABLES:
        return None
    values = fluid.pick_values(relaxed.prices)
    tries = CONFINED_TRIES if problem.is_confined else 1
    random = np.random.default_rng(0)
    for picks in itertools.islice(cheapest_first(values, problem.table_block_start), LAST_RESORT_CHOICES // tries):
        for attempt in range(tries):
            placed = place(problem, picks, relaxed.stage_seconds, random=random if attempt else None)
            if placed is not None:
                return placed[0], placed[1].step_s()
        if clock.is_over():
            break
    return None
