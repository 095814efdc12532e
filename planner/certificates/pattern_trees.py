"""Trees of cases, each with prices of rank patterns that prove that no plan of it is faster than a threshold.

A case is divided by the leading block of a table, which is one of a range or not, so that no plan is in neither part.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats


class Division(NamedTuple):
    """What divides the plans of a case: the leading block of a table is of one of the types from `first` to `last`, or
    not."""

    first: int
    last: int


@dataclass(frozen=True)
class PatternPrices:
    """What proves that no plan of a case is faster than a threshold."""

    threshold_s: float
    blocks: Floats
    """[B] seconds that a block on a rank is worth, or one on all ranks of a node."""
    byte: Floats
    """[D, M] of one byte, in seconds."""


@dataclass(frozen=True)
class PatternTree:
    """Cases in the order of a depth-first walk: one that is divided is followed by the part inside, then by the other.

    All plans are of the first case.
    """

    cells: int
    """Into which a threshold is divided."""
    cases: tuple[Division | PatternPrices, ...]

    @property
    def threshold_s(self) -> float:
        """No plan is faster."""
        return min((case.threshold_s for case in self.cases if not isinstance(case, Division)), default=0.0)


def divided_leads(problem: Problem, leading: Bools, at: Division) -> tuple[Bools, Bools] | None:
    """The leading blocks [B] of the two parts of a case; None where those that divide it are not of one table."""
    if (
        not 0 <= at.first <= at.last < len(leading)
        or len(set(problem.table_of_block[[at.first, at.last]].tolist())) > 1
    ):
        return None
    block = np.arange(len(leading))
    table = problem.table_of_block == problem.table_of_block[at.first]
    within = (block >= at.first) & (block <= at.last)
    return leading & (within | ~table), leading & ~within
