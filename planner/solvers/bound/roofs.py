"""How long a stage is best that one table's largest block decides: the price of all shorter ones, one after the other.

Below a time all blocks that alone last so long are barred, and tables take dearer options. What that costs by the
multipliers shows for each time in one pass over the options, so that times are tried from the longest down.
"""

from dataclasses import replace

import numpy as np

from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid

BELOW, ABOVE = 1e-9, 1e-6
"""Shares by which blocks are shorter than the longest ones that are barred, and a roof is above blocks that stay."""
MOST_TIMES = 100
"""Times of one stage that are tried."""


def best_roof(fluid: Fluid, relaxed: FluidSolution, stage: int) -> float:
    """Return the seconds, constant aside, that a stage is best shorter than: the least sum of what it lasts and of what
    the tables' cheapest options cost by the optimum's multipliers, of those whose blocks are shorter."""
    problem, given = fluid.problem, relaxed.multipliers
    of_table = {pair: weight for pair, weight in given.of_table.items() if pair[1] != stage}
    weight = sum(given.of_table.values()) - sum(of_table.values())
    multipliers = replace(given, of_table=of_table)
    peaks = np.where(problem.is_world_wide, 0.0, fluid.peaks[:, stage])
    shortest_s = float(relaxed.stage_seconds[stage] - problem.stage_constants[stage])
    usable = np.ones(len(peaks), dtype=bool)
    best_s, roof = np.inf, np.inf
    for _ in range(MOST_TIMES):
        cheapest, choices = fluid.price(multipliers, usable)
        if np.isinf(cheapest).any():
            break
        longest_s = float(peaks[choices].max())
        total_s = float(cheapest.sum()) + weight * max(longest_s, shortest_s)
        if total_s < best_s:
            best_s, roof = total_s, max(longest_s, shortest_s) * (1 + ABOVE)
        if longest_s <= shortest_s:
            break
        usable &= peaks < longest_s * (1 - BELOW)
    return roof
