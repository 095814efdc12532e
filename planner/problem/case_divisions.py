"""What divides the plans of a problem into two cases, each a problem of its own: every plan is in one of them.

By the time of a stage (`planner.problem.stage_limits`), or by how far the option of a table reaches: every plan takes
exactly one option of each table, so that it is one of those of a reach or one of the others.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools
from planner.problem.sites import Reach
from planner.problem.stage_limits import divided


@dataclass(frozen=True)
class StageDivision:
    """Plans whose stage is shorter than so many seconds, constant aside; and all others."""

    stage: int
    seconds: float

    def parts(self, problem: Problem) -> tuple[Problem, Problem]:
        """Return the problems of the two cases."""
        return divided(problem, self.stage, self.seconds)


@dataclass(frozen=True)
class ReachDivision:
    """Plans that hold a table by an option of one reach, which is that of the option's first block; and all others."""

    table: int
    reach: Reach

    def parts(self, problem: Problem) -> tuple[Problem, Problem]:
        """Return the problems of the two cases."""
        own = problem.table_of_block == self.table
        reaches = has_reach(problem, self.reach)[problem.block_option]
        inside, outside = (problem.allowed & ~(own & barred) for barred in (~reaches, reaches))
        return replace(problem, allowed=inside), replace(problem, allowed=outside)


Division = StageDivision | ReachDivision


def has_reach(problem: Problem, reach: Reach) -> Bools:
    """Return [O] whether the first block of an option reaches so far."""
    of_reach = {"rank": problem.is_on_rank, "group": problem.is_on_group, "world": problem.is_world_wide}[reach]
    return np.asarray(of_reach[problem.block_start[:-1]])
