"""The search: the fluid bound, then a ladder of granularities, each chosen by prices, rounded and placed."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.problem import WORLD, Bools, Floats, Placement, Problem
from planner.solvers.choices import cheapest_first
from planner.solvers.fluid import Fluid, FluidSolution
from planner.solvers.greedy import place
from planner.solvers.improve import Improver
from planner.solvers.infeasible import Shortage, shortage
from planner.solvers.prices import Prices
from planner.solvers.rounding import round_picks

OPTIMAL_GAP = 1e-6
"""A plan this near to its bound is called optimal: the bound is rounded down by 1e-9 and solved to 1e-5 at worst."""
STAGE_CAPS = (0.3, 0.5, 0.2, 1.0, 0.4, 2.0, 8.0)
"""Caps on one block's share of a stage's time, the most promising first: small blocks pack well, but cost more."""
POOL_CAPS = (0.25, 0.6, 0.12, 0.05)
"""Caps on one block's share of a memory pool; where memory is not scarce the second is enough, and where it is, every
third cap on stages."""
LADDER_SHARE = 0.4
"""Share of the time that may go into starts once there is one."""
GOOD_START = 0.2
"""Gap below which no start with less memory is tried."""
HEADROOMS = (1.0, 0.995, 0.98, 0.96, 0.92, 0.85, 0.75)
"""Shares of the memory that the choice of options may use; less leaves room for placing whole blocks."""
FINALISTS = 3
"""Starts, the best of the ladder, that local search works on."""
SQUARINGS = (3, 4, 5, 6, 7)
"""The local search's norm is 2 to these powers, one after the other."""
ROUNDS = (120, 120, 120, 200, 200)
"""Rounds at each norm; the search of one start ends early at a norm where nothing moves."""
IDLE_ROUNDS = 24
"""Rounds without a move after which a norm is done."""
LAST_RESORT_TABLES, LAST_RESORT_CHOICES = 40, 2000
"""Where the ladder places nothing: how many choices of options are tried, and up to which number of tables."""

Status = Literal["optimal", "feasible", "infeasible", "timeout"]
Progress = Callable[[str, float | None, float | None], None]
"""Called with (step of the search, best step so far in seconds, bound in seconds)."""


@dataclass(frozen=True)
class Limits:
    """When to stop: after a time, within a `gap` of the bound (step / bound - 1), when `stop` says so. And the seed."""

    time_limit_s: float = 30.0
    gap: float = 0.01
    stop: Callable[[], bool] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What the search found. `bound_s` and `prices` hold for every placement; a shortage proves that there is none."""

    status: Status
    placement: Placement | None
    step_s: float | None
    bound_s: float | None
    prices: Prices | None
    shortage: Shortage | None


def solve(problem: Problem, limits: Limits, progress: Progress | None = None) -> Outcome:
    """The best placement found within the limits, with a lower bound on all placements."""
    fluid = Fluid(problem)
    missing = shortage(fluid)
    if missing is not None:
        return Outcome("infeasible", None, None, None, None, missing)
    search = _Search(fluid, limits, progress or (lambda *_: None))
    search.run()
    bound_s, prices = search.relaxed.bound_s, search.relaxed.prices
    if search.best is None:
        return Outcome("timeout", None, None, bound_s, prices, None)
    placement, step_s = search.best
    bound_s = min(bound_s, step_s)
    status: Status = "optimal" if step_s <= bound_s * (1 + OPTIMAL_GAP) else "feasible"
    return Outcome(status, placement, step_s, bound_s, prices, None)


class _Search:
    """One run: the bound, the starts of the ladder, local search on the best of them."""

    def __init__(self, fluid: Fluid, limits: Limits, tell: Progress) -> None:
        self._fluid, self._limits, self._tell = fluid, limits, tell
        self._clock = _Clock(limits)
        self.best: tuple[Placement, float] | None = None
        self.relaxed: FluidSolution = fluid.solve()
        tell("bound", None, self.relaxed.bound_s)

    def run(self) -> None:
        """Search until a limit is reached or there is nothing left to try."""
        starts = self._starts()
        turn = 0
        while starts and not self._is_done():
            for placement, _ in starts[:FINALISTS]:
                self._improve(placement, self._limits.seed + turn)
                turn += 1
            if self.best is None:
                return
            starts = [self.best]

    def _starts(self) -> list[tuple[Placement, float]]:
        """Placements of the ladder, best first: all caps, with ever less memory until something fits."""
        problem = self._fluid.problem
        seconds, size = _largest_share(problem, self.relaxed.stage_seconds), _largest_pool_share(problem)
        scarce = bool((self.relaxed.prices.byte * self._fluid.capacity).sum() > 0)
        caps = (
            itertools.product(POOL_CAPS, STAGE_CAPS[::3]) if scarce else itertools.product(POOL_CAPS[1:2], STAGE_CAPS)
        )
        allowed = [
            _capped(problem, seconds, size, of_stage, of_pool) for of_pool, of_stage in [*caps, (np.inf, np.inf)]
        ]
        found: list[tuple[Placement, float]] = []
        for headroom in HEADROOMS:
            for usable in allowed:
                start = _attempt(self._fluid, usable, headroom)
                if start is not None:
                    found.append(start)
                    self._offer(*start, "start")
                if self._is_done() or (found and self._clock.share() > LADDER_SHARE):
                    return sorted(found, key=lambda item: item[1])
            if self.best is not None and self.best[1] <= self.relaxed.bound_s * (1 + GOOD_START):
                break
        if not found and (last := _first_that_fits(self._fluid, self.relaxed, self._clock)) is not None:
            found.append(last)
            self._offer(*last, "start")
        return sorted(found, key=lambda item: item[1])

    def _improve(self, placement: Placement, seed: int) -> None:
        improver = Improver(self._fluid.problem, placement, seed)
        number = 0
        for squarings, rounds in zip(SQUARINGS, ROUNDS, strict=True):
            idle = 0
            for _ in range(rounds):
                idle = 0 if improver.round(number, squarings) else idle + 1
                number += 1
                if idle >= IDLE_ROUNDS:
                    break
                self._offer(improver.best, improver.best_s, "local search")
                if self._is_done():
                    return

    def _offer(self, placement: Placement | Callable[[], Placement], step_s: float, source: str) -> None:
        if self.best is None or step_s < self.best[1]:
            self.best = (placement() if callable(placement) else placement), step_s
            self._tell(source, step_s, self.relaxed.bound_s)

    def _is_done(self) -> bool:
        good = self.best is not None and self.best[1] <= self.relaxed.bound_s * (1 + self._limits.gap)
        return good or self._clock.is_over()


class _Clock:
    def __init__(self, limits: Limits) -> None:
        self._begin, self._limit_s = time.monotonic(), limits.time_limit_s
        self._stop = limits.stop

    def share(self) -> float:
        """Of the time limit that is gone."""
        return (time.monotonic() - self._begin) / max(self._limit_s, 1e-9)

    def is_over(self) -> bool:
        return self.share() >= 1 or (self._stop is not None and self._stop())


def _largest_share(problem: Problem, stage_seconds: Floats) -> Floats:
    """[B] the largest share of a stage that the block takes of one resource; infinite if it fits nowhere."""
    aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    blocks = np.arange(len(problem.block_option))
    peaks = np.stack([(problem.peak_load(kind, blocks) / aim).max(axis=1) for kind in range(problem.kinds)])
    somewhere = np.where(problem.allowed, peaks, np.inf).min(axis=0)
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


def _attempt(fluid: Fluid, usable: Bools, headroom: float) -> tuple[Placement, float] | None:
    """Choose, round and place once."""
    if shortage(fluid, usable, headroom) is not None:
        return None
    relaxed = fluid.solve(usable=usable, headroom=headroom, tolerance=1e-4)
    picks = round_picks(fluid, relaxed)
    placed = place(fluid.problem, picks, relaxed.stage_seconds)
    if placed is None:
        return None
    placement, state = placed
    return placement, state.step_s()


def _first_that_fits(fluid: Fluid, relaxed: FluidSolution, clock: _Clock) -> tuple[Placement, float] | None:
    """The first choice of options that can be placed, the cheapest at the bound's prices first; small problems only."""
    problem = fluid.problem
    if problem.tables > LAST_RESORT_TABLES:
        return None
    values = fluid.pick_values(relaxed.prices)
    for picks in itertools.islice(cheapest_first(values, problem.table_block_start), LAST_RESORT_CHOICES):
        placed = place(problem, picks, relaxed.stage_seconds)
        if placed is not None:
            return placed[0], placed[1].step_s()
        if clock.is_over():
            break
    return None
