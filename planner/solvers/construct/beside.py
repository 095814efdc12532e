"""What the block that decides a stage has beside it: a column for the rank that holds a table's largest block.

Where a stage lasts as long as one table's largest block, all that is on every rank makes it longer, too. The relaxation
counts that on the mean of all ranks, where it is worth nothing as long as the mean is below the block. With one more
column for that rank, loaded by the table's blocks as much as each loads its rank, and by whatever every rank has of
other tables, it chooses fewer tables for all ranks.
"""

from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.cutting_planes import FluidSolution

LEAST_WEIGHT = 1e-3
"""Share of a stage's weight that a table's largest block has at least to have a column."""


def with_ranks_of_largest(problem: Problem, relaxed: FluidSolution) -> Problem:
    """Return the problem, whose ranks are of one kind, with columns for the ranks that hold the blocks which decide
    stages in the relaxation; such a table keeps the reach that it has there.

    It is good for choosing options alone: a placement's loads are not those of such a column.
    """
    reaches = _reaches(problem)
    pairs, allowed = [], problem.allowed.copy()
    for (table, stage), weight in sorted(relaxed.multipliers.of_table.items()):
        choices = relaxed.choices[:, table]
        shares = np.bincount(reaches[choices], weights=relaxed.shares, minlength=3)
        reach = int(shares.argmax())
        if weight < LEAST_WEIGHT:
            continue
        allowed[0, (problem.table_of_block == table) & (reaches != reach)] = False
        if reach == _WORLD:
            continue
        choice = choices[reaches[choices] == reach][0]
        members = np.flatnonzero((problem.stage_of_column == stage) & (problem.extremes.sharing[0] == 1))
        load = problem.extremes.peak_load(0, np.array([choice]))[0] + problem.extremes.base_of_instance[0]
        pairs.append((table, int(members[load[members].argmax()])))
    if not pairs:
        return replace(problem, allowed=allowed)
    columns = [column for _, column in pairs]
    own = _own_loads(problem, pairs)
    wide = problem.is_world_wide[None, :, None]

    def extended(amounts: Floats, more: Floats) -> Floats:
        return np.concatenate([amounts, more], axis=-1)

    return replace(
        problem,
        allowed=allowed,
        stage_of_column=np.concatenate([problem.stage_of_column, problem.stage_of_column[columns]]),
        resource_of_rank=np.concatenate([problem.resource_of_rank, np.tile(np.arange(problem.world), (len(pairs), 1))]),
        base_loads=extended(problem.base_loads, problem.extremes.base_of_instance[:, columns]),
        fixed=extended(problem.fixed, np.where(wide, problem.fixed[..., columns], own)),
        by_rows=extended(problem.by_rows, np.where(wide, problem.by_rows[..., columns], 0.0)),
        everywhere=extended(problem.everywhere, problem.everywhere[..., columns]),
    )


_WORLD = 2


def _reaches(problem: Problem) -> Ints:
    """Return [B] 0 for blocks of one rank, 1 of a group, 2 of the world."""
    return np.where(problem.is_world_wide, _WORLD, np.where(problem.is_on_group, 1, 0))


def _own_loads(problem: Problem, pairs: list[tuple[int, int]]) -> Floats:
    """Return [1, B, n] loads of the (table, column) pairs' own blocks: so large that the mean over all ranks is what a
    block loads its fullest instance by, were all blocks of the option like it."""
    own = np.zeros((1, len(problem.block_option), len(pairs)))
    of_option = np.add.reduceat(problem.block_count, problem.block_start[:-1])
    units = problem.option_units[problem.block_option]
    parts = np.where(units > 0, units / np.maximum(problem.block_units, 1), of_option[problem.block_option])
    for number, (table, column) in enumerate(pairs):
        start, stop = problem.table_block_start[table : table + 2].tolist()
        blocks = np.arange(start, stop)
        peak = problem.extremes.peak_load(0, blocks)[:, column]
        own[0, blocks, number] = peak * problem.world / (problem.row_shares.holders[0, blocks] * parts[blocks])
    return own
