"""Fewer variables before the integer programme: blocks that no faster placement holds are left out.

Variable fixing by reduced costs (Dantzig, Fulkerson and Johnson, Oper. Res. 2, 1954): a placement costs at least the
relaxation's bound plus what an option costs, at the multipliers, above its table's cheapest one. And by a threshold: a
faster placement holds no block that alone takes as long.
"""

from dataclasses import dataclass

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.column_reduction import with_blocks
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import step_of_block


@dataclass(frozen=True)
class Narrowed:
    """A problem of those blocks alone that faster placements, and a known one, may hold."""

    problem: Problem
    blocks: Ints
    """[n] the number of each of its blocks in the whole problem, ascending."""

    @classmethod
    def of(cls, fluid: Fluid, multipliers: Multipliers, longest_s: float, known: Placement | None) -> "Narrowed":
        """What placements that take less than `longest_s` may hold, by the multipliers, and all that is `known`."""
        kept = may_be_faster(fluid, multipliers, longest_s)
        if known is not None:
            options = np.unique(fluid.problem.block_option[known.item_block])
            kept |= np.isin(fluid.problem.block_option, options)
        blocks = np.flatnonzero(kept)
        return cls(with_blocks(fluid.problem, blocks), blocks)

    def inside(self, placement: Placement) -> Placement:
        """A placement of the whole problem as one of this one, which has its blocks."""
        return Placement(np.searchsorted(self.blocks, placement.item_block), placement.item_place)

    def outside(self, placement: Placement) -> Placement:
        """A placement of this problem as one of the whole."""
        return Placement(self.blocks[placement.item_block], placement.item_place)


def may_be_faster(fluid: Fluid, multipliers: Multipliers, longest_s: float) -> Bools:
    """[B] blocks that placements may hold which take less than `longest_s`: of fixed options all or none."""
    problem = fluid.problem
    usable = step_of_block(fluid, multipliers) < longest_s
    cheapest, _ = fluid.price(multipliers, usable)
    bound_s, _ = fluid.bound(multipliers, usable)
    if not np.isfinite(bound_s):
        return np.zeros(len(usable), dtype=bool)
    table = problem.option_table[problem.block_option]
    most_s = cheapest[table] + (longest_s - bound_s) * (1 + ROUNDING) + ROUNDING * abs(longest_s)
    return np.asarray(usable & (_least_with(fluid, multipliers, usable) <= most_s))


def _least_with(fluid: Fluid, multipliers: Multipliers, usable: Bools) -> Floats:
    """[B] what a table costs at least, at the multipliers, if it holds the block: of a splittable option, with the
    rest of its columns in the blocks that are cheapest for their width."""
    problem = fluid.problem
    start = problem.block_start[:-1]
    of_option = np.minimum.reduceat(fluid.choice_values(multipliers, usable), start)[problem.block_option]
    units = problem.block_units
    value = np.where(usable, fluid.block_values(multipliers), np.inf)
    by_unit = np.minimum.reduceat(value / np.maximum(units, 1), start)[problem.block_option]
    of_units = problem.option_units[problem.block_option]
    tiled = value + np.where(np.isfinite(by_unit), by_unit, 0.0) * np.maximum(of_units - units, 0)
    return np.asarray(np.where(of_units > 0, tiled, of_option))
