"""The search: the fluid bound, then a ladder of granularities, each chosen by prices, rounded and placed."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.problem import RANK, WORLD, Bools, Floats, Placement, Problem
from planner.solvers.choices import cheapest_first
from planner.solvers.fluid import Fluid, FluidSolution
from planner.solvers.greedy import place
from planner.solvers.infeasible import Shortage, shortage
from planner.solvers.prices import Prices
from planner.solvers.rounding import round_options

OPTIMAL_GAP = 1e-6
"""A plan this near to its bound is called optimal: the bound is rounded down by 1e-9 and solved to 1e-5 at worst."""
CAPS = ((1.0, 0.6), (0.5, 0.5), (0.4, 0.25), (0.3, 0.12), (0.2, 0.06), (0.15, 0.03))
"""Ladder of caps on one block's share of a stage's time, and of a memory pool: small blocks pack well, but cost more
in all."""
HEADROOMS = (1.0, 0.995, 0.98, 0.96, 0.92, 0.85, 0.75)
"""Shares of the memory that the choice of options may use; less leaves room for placing whole blocks."""
LAST_RESORT_TABLES, LAST_RESORT_CHOICES = 40, 2000
"""Where the ladder places nothing: how many choices of options are tried, and up to which number of tables."""

Status = Literal["optimal", "feasible", "infeasible", "timeout"]
Progress = Callable[[str, float | None, float | None], None]
"""Called with (step of the search, best step so far in seconds, bound in seconds)."""


@dataclass(frozen=True)
class Limits:
    """When to stop: after a time, within a `gap` of the bound (step / bound - 1), or when `stop` says so."""

    time_limit_s: float = 30.0
    gap: float = 0.01
    stop: Callable[[], bool] | None = None


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
    clock = _Clock(limits)
    tell = progress or (lambda *_: None)
    fluid = Fluid(problem)
    missing = shortage(fluid)
    if missing is not None:
        return Outcome("infeasible", None, None, None, None, missing)
    relaxed = fluid.solve()
    tell("bound", None, relaxed.bound_s)
    best: tuple[Placement, float] | None = None
    for usable, headroom in _ladder(fluid, relaxed):
        if best is not None and headroom < 1:
            break  # less memory only helps where nothing fits
        found = _attempt(fluid, usable, headroom)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
            tell("plan", best[1], relaxed.bound_s)
        good_enough = best is not None and best[1] <= relaxed.bound_s * (1 + limits.gap)
        if good_enough or clock.is_over():
            break
    if best is None:
        best = _first_that_fits(fluid, relaxed, clock)
    if best is None:
        return Outcome("timeout", None, None, relaxed.bound_s, relaxed.prices, None)
    placement, step_s = best
    bound_s = min(relaxed.bound_s, step_s)
    status: Status = "optimal" if step_s <= bound_s * (1 + OPTIMAL_GAP) else "feasible"
    return Outcome(status, placement, step_s, bound_s, relaxed.prices, None)


class _Clock:
    def __init__(self, limits: Limits) -> None:
        self._end = time.monotonic() + limits.time_limit_s
        self._stop = limits.stop

    def is_over(self) -> bool:
        return time.monotonic() >= self._end or (self._stop is not None and self._stop())


def _ladder(fluid: Fluid, relaxed: FluidSolution) -> Iterator[tuple[Bools, float]]:
    """(options that may be used, share of the memory): all caps, with ever less memory."""
    problem = fluid.problem
    seconds, size = _largest_share(problem, relaxed.stage_seconds), _largest_pool_share(problem)
    allowed = [_capped(problem, np.maximum(seconds / of_stage, size / of_pool)) for of_stage, of_pool in CAPS]
    for headroom in HEADROOMS:
        for usable in allowed:
            yield usable, headroom


def _largest_share(problem: Problem, stage_seconds: Floats) -> Floats:
    """[O] the largest share of a stage that one block of the option takes on one rank; infinite if it fits on none."""
    aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    load = np.where(problem.allowed[..., None], problem.fixed + problem.by_rows, np.inf)
    load = np.where((problem.block_extent == RANK)[:, None], load, problem.fixed)
    everywhere = problem.block_extent == WORLD
    load[:, everywhere] = 0.0
    peak = (load / aim).max(axis=2).min(axis=0)
    fits = np.where(everywhere, problem.allowed.all(axis=0), problem.allowed.any(axis=0))
    return np.maximum.reduceat(np.where(fits, peak, np.inf), problem.block_start[:-1])


def _largest_pool_share(problem: Problem) -> Floats:
    """[O] the largest share of a memory pool that one block takes, world-wide ones aside."""
    share = np.where(problem.allowed[..., None], problem.pool_demand, 0.0).max(axis=(0, 2))
    share[problem.block_extent == WORLD] = 0.0
    return np.maximum.reduceat(share, problem.block_start[:-1])


def _capped(problem: Problem, peak: Floats) -> Bools:
    """[O] options whose peak is at most 1; for a table that has none, its smallest ones."""
    smallest = np.minimum.reduceat(peak, problem.option_start[:-1])
    return np.asarray(peak <= np.maximum(1.0, smallest)[problem.option_table])


def _attempt(fluid: Fluid, usable: Bools, headroom: float) -> tuple[Placement, float] | None:
    """Choose, round and place once."""
    if shortage(fluid, usable, headroom) is not None:
        return None
    relaxed = fluid.solve(usable=usable, headroom=headroom, tolerance=1e-4)
    options = round_options(fluid, relaxed)
    placed = place(fluid.problem, options, relaxed.stage_seconds)
    if placed is None:
        return None
    placement, state = placed
    return placement, state.step_s()


def _first_that_fits(fluid: Fluid, relaxed: FluidSolution, clock: _Clock) -> tuple[Placement, float] | None:
    """The first choice of options that can be placed, the cheapest at the bound's prices first; small problems only."""
    problem = fluid.problem
    if problem.tables > LAST_RESORT_TABLES:
        return None
    values, _ = fluid.option_values(relaxed.prices)
    for options in itertools.islice(cheapest_first(values, problem.option_start), LAST_RESORT_CHOICES):
        placed = place(problem, options, relaxed.stage_seconds)
        if placed is not None:
            return placed[0], placed[1].step_s()
        if clock.is_over():
            break
    return None
