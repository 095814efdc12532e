"""Seconds that a stage takes because its loads are whole multiples of one amount.

Tables of whole columns load a link by so many columns: 61 columns over 4 ranks put 16 on one of them, not 15.25. This
is Chvátal–Gomory rounding (Chvátal, Discrete Math. 4, 1973) of the sum of a stage's loads.
"""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints
from planner.problem.rounding import ROUNDING

NEAR = 1e-6
"""Distance from a whole number within which a ratio of loads counts as whole."""
MOST_TIMES = 2.0**40
"""Times the amount that a load may be: the doubles of far larger ones are all whole, whatever they stand for."""
SAMPLE = 1000
"""Loads that are looked at before all of them are."""
MOST_PARTS = 8
"""The amount is the smallest load, or that over a number up to this."""


def integrality_floors(problem: Problem) -> Floats:
    """[S] seconds, constants aside, that every plan takes in each stage; 0 where loads have no common amount.

    Only clusters with one kind of rank have floors of their own, by the columns that blocks of single ranks alone load;
    limits on stages are floors in any case.
    """
    limits = problem.stage_limits
    floors = np.zeros(len(problem.stage_constants)) if limits is None else limits.floors.copy()
    if problem.kinds > 1:
        return floors
    wide = ~problem.is_on_rank
    shared = problem.everywhere.any(axis=(0, 1))
    for column in np.flatnonzero(~shared).tolist():
        if any(bool((part[0, :, column] != 0)[wide].any()) for part in (problem.fixed, problem.by_rows)):
            continue
        load, stage = problem.fixed[0, :, column] + problem.by_rows[0, :, column], problem.stage_of_column[column]
        if load.any():
            floors[stage] = max(floors[stage], _least(problem, load, column))
    return floors


def _least(problem: Problem, load: Floats, column: int) -> float:
    """The load of the fullest instance of a column at least."""
    times, amount = _multiples(load)
    if times is None:
        return 0.0
    instance = problem.resource_of_rank[column]
    used = len(np.unique(instance[problem.reach]))
    each = -(-int(_fewest(problem, times).sum()) // used)
    base = float(problem.extremes.base_of_instance[0, column])
    return max(0.0, each * amount + base - ROUNDING * (each * amount + abs(base)))


def _multiples(load: Floats) -> tuple[Ints | None, float]:
    """[B] how many times each load holds an amount at least, and the amount; None where there is none."""
    positive = load[load > 0]
    least = positive.min()
    for parts in range(1, MOST_PARTS + 1):
        amount = least / parts
        some = positive[:SAMPLE] / amount
        if (np.abs(some - np.round(some)) > NEAR).any():
            continue
        times = np.round(positive / amount)
        if times.max() < MOST_TIMES and (np.abs(positive / amount - times) <= NEAR).all():
            times_of_block = np.zeros(len(load), dtype=np.int64)
            times_of_block[load > 0] = times
            return times_of_block, float((positive / times).min())
    return None, 0.0


def _fewest(problem: Problem, times: Ints) -> Ints:
    """[T] how many times all blocks of a table hold the amount together at least."""
    units, free = problem.block_units, problem.block_is_splittable
    whole = np.where(free, -(-times * problem.option_units[problem.block_option] // np.maximum(units, 1)), 0)
    start = problem.block_start[:-1]
    fixed = np.add.reduceat(np.where(free, 0, times * problem.block_count), start)
    of_free = np.minimum.reduceat(np.where(free, whole, np.iinfo(np.int64).max), start)
    of_option = np.where(problem.option_units > 0, of_free, fixed)
    fewest = np.full(problem.tables, np.iinfo(np.int64).max)
    np.minimum.at(fewest, problem.option_table, of_option)
    return np.where(fewest < np.iinfo(np.int64).max, fewest, 0)
