"""What blocks take of a memory pool, as shares of it."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats


def block_shares(problem: Problem) -> Floats:
    """[B] the largest share of a pool that one block takes where that is least; infinite where it fits nowhere.

    A world-wide block takes what its fullest rank takes.
    """
    share = problem.extremes.pool_demand.max(axis=2)
    placed = np.where(problem.allowed, share, np.inf).min(axis=0)
    everywhere = np.where(problem.allowed.all(axis=0), share.max(axis=0), np.inf)
    return np.where(problem.is_world_wide, everywhere, placed)


def choice_shares(problem: Problem, share: Floats) -> Floats:
    """[B] the largest of the blocks of the option that each block names, as in `Fluid.choice_values`."""
    largest = np.where(problem.block_is_splittable, share, np.inf)
    fixed = np.flatnonzero(problem.option_units == 0)
    if len(fixed):
        start = problem.block_start[:-1]
        largest[start[fixed]] = np.maximum.reduceat(share, start)[fixed]
    return largest


def smallest_shares(problem: Problem, share: Floats) -> Floats:
    """[T] share of a pool that the largest block of a table takes at least, however it is cut."""
    smallest = np.full(problem.tables, np.inf)
    np.minimum.at(smallest, problem.option_table[problem.block_option], choice_shares(problem, share))
    return smallest
