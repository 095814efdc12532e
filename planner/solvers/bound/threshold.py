"""A tighter bound from a threshold: what a plan faster than z may use, and what that costs at least.

The dual-approximation argument (Hochbaum & Shmoys, JACM 34(1), 1987): a plan faster than z holds no block that alone
makes the step as long as z. If the fluid bound over the remaining blocks is at least z, no plan is faster than z. The
largest such z is found by bisection.
"""

from collections.abc import Sequence

import numpy as np

from planner.certificates.multipliers import Bound, Multipliers
from planner.problem.numbers import Bools, Floats
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid

ROUNDS = 12
"""Bisections; each halves the interval between the proven and the unproven."""
WORTHWHILE, LONE_WORTHWHILE = 1e-4, 1e-3
"""Relative width of the interval at which bisection ends; and where tables have weights."""


def step_of_block(fluid: Fluid, multipliers: Multipliers) -> Floats:
    """[B] a lower bound on the step of any plan that holds the block.

    Each stage takes at least what the block alone makes of it, and at least what all tables together must make of it
    in the fluid relaxation at the stage's own weights.
    """
    problem = fluid.problem
    least = least_of_stages(fluid, multipliers)
    step = np.maximum(problem.extremes.stage_peaks_of_kind, least).sum(axis=2) + problem.stage_constants.sum()
    least_step = step.min(axis=0)
    least_step[problem.is_world_wide] = least.sum() + problem.stage_constants.sum()
    return np.asarray(least_step * (1 - ROUNDING))


def least_of_stages(fluid: Fluid, multipliers: Multipliers) -> Floats:
    """[S] seconds that each stage takes at least, by its own weights among the multipliers."""
    return np.array([_stage_bound(fluid, multipliers, stage) for stage in range(len(fluid.problem.stage_constants))])


def _stage_bound(fluid: Fluid, multipliers: Multipliers, stage: int) -> float:
    """Seconds that a stage takes at least, by its own weights among the multipliers."""
    alone = multipliers.of_stage(stage, fluid.problem.stage_of_column)
    floors = np.where(np.arange(len(fluid.floors)) == stage, fluid.floors, 0.0)
    least = fluid.bound(alone, floors=floors)[0] - float(fluid.problem.stage_constants.sum())
    return max(0.0, float(floors[stage]), least)


def tighten(fluid: Fluid, relaxed: FluidSolution, step_s: float, known: Bound | None = None) -> Bound:
    """The best bound that thresholds below the plan's `step_s` prove; at least the relaxation's or the known one."""
    best = Bound(relaxed.bound_s, relaxed.multipliers, None) if known is None else known
    low, high, multipliers = best.seconds, step_s, best.multipliers
    step_with: Floats | None = None
    for _ in range(ROUNDS):
        if high - low <= (LONE_WORTHWHILE if relaxed.lone else WORTHWHILE) * low:
            break
        z = (low + high) / 2
        step_with = step_of_block(fluid, multipliers) if step_with is None else step_with
        prices = _best_prices(fluid, step_with < z, relaxed.lone, z)
        if prices is not None:
            multipliers, step_with = prices, step_of_block(fluid, prices)
        proven = min(z, fluid.bound(multipliers, step_with < z)[0])
        if proven > best.seconds:
            best = Bound(proven, multipliers, z)
        if proven >= z:
            low = z
        else:
            high = z
    return best


def _best_prices(fluid: Fluid, usable: Bools, lone: Sequence[tuple[int, int]], target_s: float) -> Multipliers | None:
    """Those of the fluid relaxation over some of the blocks, or some that prove the target; None where a table has no
    block left."""
    if np.isinf(fluid.price(fluid.no_multipliers(), usable)[0]).any():
        return None
    return solve_relaxation(fluid, usable=usable, lone=lone, target_s=target_s).multipliers
