"""A complete answer to a planning problem."""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Ints


@dataclass(frozen=True)
class Placement:
    """A complete answer: blocks that make up one option of each table, and a place for each. I items."""

    item_block: Ints
    """[I] block type; one that is taken n times has n items."""
    item_place: Ints
    """[I] the number of the block's site among those of its extent; -1 for a world-wide block, which has no choice."""

    def option_of_table(self, problem: Problem) -> Ints:
        """[T] the option that each table's blocks belong to."""
        options = np.unique(problem.block_option[self.item_block])
        chosen = np.full(problem.tables, -1)
        chosen[problem.option_table[options]] = options
        return chosen
