"""Splittable options cut into whole blocks at the least cost: an unbounded knapsack whose capacity is used up exactly.

The blocks that a splittable option may be made of have whole numbers of column units. The cheapest ones that add up to
the table's are found by dynamic programming over the units (Gilmore & Gomory, Oper. Res. 14(6), 1966).
"""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints


class OptionTilings:
    """Splittable options of one number of column units: which block has which width. n options of U units."""

    def __init__(self, problem: Problem, options: Ints) -> None:
        self.options, self.units = options, int(problem.option_units[options[0]])
        self.block = np.full((len(options), self.units + 1), len(problem.block_option))
        """[n, U + 1] block of each width; B for widths that do not exist."""
        for row, option in enumerate(options.tolist()):
            types = np.arange(problem.block_start[option], problem.block_start[option + 1])
            self.block[row, problem.block_units[types]] = types

    def cheapest(self, values: Floats) -> tuple[Floats, Ints]:
        """[n, U + 1] the least cost of each number of units by whole blocks, and the last block's width there.

        `values` [B + 1] ends with an infinite one for widths that do not exist.
        """
        return cheapest_tilings(values[self.block])

    def count(self, width: Ints, chosen: Bools, taken: Floats) -> None:
        """Add the blocks of the cheapest tilings of the `chosen` [n] options to `taken` [B]."""
        rows = np.flatnonzero(chosen)
        left = np.full(len(rows), self.units)
        while len(rows):
            step = width[rows, left]
            np.add.at(taken, self.block[rows, step], 1.0)
            left = left - step
            rows, left = rows[left > 0], left[left > 0]

    def widest_blocks(self, width: Ints, chosen: Bools) -> Ints:
        """[chosen ones] the widest block in the cheapest tiling of each of the `chosen` [n] options."""
        widest_blocks = []
        for row in np.flatnonzero(chosen).tolist():
            widest = max(tiling_widths(width[row], self.units))
            widest_blocks.append(int(self.block[row, widest]))
        return np.array(widest_blocks, dtype=np.int64)


def option_tilings(problem: Problem) -> list[OptionTilings]:
    """The splittable options by their number of column units."""
    numbers = np.unique(problem.option_units[problem.option_units > 0])
    return [OptionTilings(problem, np.flatnonzero(problem.option_units == units)) for units in numbers]


def cheapest_tilings(values: Floats) -> tuple[Floats, Ints]:
    """[n, U + 1] the least sum of `values` [n, U + 1], one per width, over widths that add up; and one width of it."""
    best = np.full(values.shape, np.inf)
    width = np.zeros(values.shape, dtype=np.int64)
    best[:, 0] = 0.0
    every = np.arange(len(values))
    for units in range(1, values.shape[1]):
        sums = values[:, 1 : units + 1] + best[:, units - 1 :: -1][:, :units]
        chosen = sums.argmin(axis=1)
        best[:, units], width[:, units] = sums[every, chosen], chosen + 1
    return best, width


def tiling_widths(width: Ints, units: int) -> list[int]:
    """The widths that make up so many units, by the last width [U + 1] of every number of units."""
    widths = []
    while units:
        widths.append(int(width[units]))
        units -= widths[-1]
    return widths
