"""What divides the plans of a problem into two cases, each a problem of its own: every plan is in one of them.

By the time of a stage (`planner.problem.stage_limits`), by how far the option of a table reaches, or by whether it
takes bytes of a memory: every plan takes exactly one option of each table, so that it is one of some or of the others.
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
        return _by_options(problem, self.table, has_reach(problem, self.reach))


@dataclass(frozen=True)
class MemoryDivision:
    """Plans that hold a table by an option that takes bytes of one memory; and all others."""

    table: int
    memory: int
    """A row of `Problem.pool_capacity`."""

    def parts(self, problem: Problem) -> tuple[Problem, Problem]:
        """Return the problems of the two cases."""
        return _by_options(problem, self.table, takes_memory(problem, self.memory))


Division = StageDivision | ReachDivision | MemoryDivision


def _by_options(problem: Problem, table: int, is_inside: Bools) -> tuple[Problem, Problem]:
    """Return the problems in which a table takes one of the options [O] that are inside, or one of the others."""
    own, of_block = problem.table_of_block == table, is_inside[problem.block_option]
    inside, outside = (problem.allowed & ~(own & barred) for barred in (~of_block, of_block))
    return replace(problem, allowed=inside), replace(problem, allowed=outside)


def has_reach(problem: Problem, reach: Reach) -> Bools:
    """Return [O] whether the first block of an option reaches so far."""
    of_reach = {"rank": problem.is_on_rank, "group": problem.is_on_group, "world": problem.is_world_wide}[reach]
    return np.asarray(of_reach[problem.block_start[:-1]])


def takes_memory(problem: Problem, memory: int) -> Bools:
    """Return [O] whether any block of an option takes bytes of a memory on any kind of rank."""
    size = problem.bytes_fixed[..., memory] + problem.bytes_by_rows[..., memory]
    return np.logical_or.reduceat((size > 0).any(axis=0), problem.block_start[:-1])
