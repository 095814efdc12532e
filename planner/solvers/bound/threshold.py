"""A tighter bound from a threshold: what a plan faster than z may use, and what that costs at least.

The dual-approximation argument (Hochbaum & Shmoys, JACM 34(1), 1987): a plan faster than z holds no block that alone
makes the step as long as z. If the fluid bound over the remaining blocks is at least z, no plan is faster than z. The
largest such z is found by bisection.
"""

from collections.abc import Sequence

import numpy as np

from planner.certificates.multipliers import Bound, Prices
from planner.problem.extents import WORLD
from planner.problem.numbers import Bools, Floats
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid

ROUNDS = 12
"""Bisections; each halves the interval between the proven and the unproven."""
WORTHWHILE, LONE_WORTHWHILE = 1e-4, 1e-3
"""Relative width of the interval at which bisection ends; and where tables have weights."""


def step_of_block(fluid: Fluid, prices: Prices) -> Floats:
    """[B] a lower bound on the step of any plan that holds the block.

    Each stage takes at least what the block alone makes of it, and at least what all tables together must make of it
    in the fluid relaxation at the stage's own weights.
    """
    problem = fluid.problem
    least = least_of_stages(fluid, prices)
    step = np.maximum(problem.extremes.stage_peaks_of_kind, least).sum(axis=2) + problem.stage_constants.sum()
    found = step.min(axis=0)
    found[problem.block_extent == WORLD] = least.sum() + problem.stage_constants.sum()
    return np.asarray(found * (1 - ROUNDING))


def least_of_stages(fluid: Fluid, prices: Prices) -> Floats:
    """[S] seconds that each stage takes at least, by its own weights among the prices."""
    return np.array([_stage_bound(fluid, prices, stage) for stage in range(len(fluid.problem.stage_constants))])


def _stage_bound(fluid: Fluid, prices: Prices, stage: int) -> float:
    """Seconds that a stage takes at least, by its own weights among the prices."""
    weight = np.where(fluid.problem.stage_of_column == stage, prices.weight, 0.0)
    of_table = {pair: value for pair, value in prices.of_table.items() if pair[1] == stage}
    alone = Prices(weight, np.zeros_like(prices.byte), of_table)
    grain = np.where(np.arange(len(fluid.grain)) == stage, fluid.grain, 0.0)
    least = fluid.bound(alone, grain=grain)[0] - float(fluid.problem.stage_constants.sum())
    return max(0.0, float(grain[stage]), least)


def proven_s(fluid: Fluid, prices: Prices, threshold_s: float) -> float:
    """What prices prove of all placements with a threshold: a faster plan may only hold some of the blocks."""
    usable = step_of_block(fluid, prices) < threshold_s
    return min(threshold_s, fluid.bound(prices, usable)[0])


def tighten(fluid: Fluid, relaxed: FluidSolution, step_s: float, known: Bound | None = None) -> Bound:
    """The best bound that thresholds below the plan's `step_s` prove; at least the relaxation's or the known one."""
    best = Bound(relaxed.bound_s, relaxed.prices, None) if known is None else known
    low, high, prices = best.seconds, step_s, best.prices
    for _ in range(ROUNDS):
        if high - low <= (LONE_WORTHWHILE if relaxed.lone else WORTHWHILE) * low:
            break
        z = (low + high) / 2
        prices = _best_prices(fluid, step_of_block(fluid, prices) < z, relaxed.lone, z) or prices
        proven = proven_s(fluid, prices, z)
        if proven > best.seconds:
            best = Bound(proven, prices, z)
        if proven >= z:
            low = z
        else:
            high = z
    return best


def _best_prices(fluid: Fluid, usable: Bools, lone: Sequence[tuple[int, int]], target_s: float) -> Prices | None:
    """Those of the fluid relaxation over some of the blocks, or some that prove the target; None where a table has no
    block left."""
    if np.isinf(fluid.price(fluid.no_prices(), usable)[0]).any():
        return None
    return solve_relaxation(fluid, usable=usable, lone=lone, target_s=target_s).prices
