"""A problem without the resources and memories that no placement is ever short of: the same step, fewer numbers; and,
for local search on large problems, without options that are hardly worth a look."""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.problem import RANK, Bools, Floats, Ints, Placement, Problem
from planner.solvers.prices import Prices


@dataclass(frozen=True)
class Slim:
    """Every placement has the same step, and fits or not, as in the whole problem. Stages are the same."""

    problem: Problem
    columns: Ints
    """The columns of the whole problem that are left."""
    tiers: Ints
    """Its memory tiers that are left."""
    column_for: Ints
    """[C] the column, of the whole problem, that is never less loaded; its own where it is left, -1 where idle."""
    blocks: Ints | None = None
    """The blocks of the whole problem that are left, ascending; None: all."""

    @cached_property
    def _number(self) -> Ints:
        """[B] of the blocks of the whole problem: their numbers in this one, -1 where they are left out."""
        assert self.blocks is not None
        found = np.full(int(self.blocks[-1]) + 1, -1)
        found[self.blocks] = np.arange(len(self.blocks))
        return found

    def holds(self, placement: Placement) -> bool:
        """Whether all blocks of a placement of the whole problem are left."""
        if self.blocks is None:
            return True
        inside = bool(placement.item_block.max(initial=0) < len(self._number))
        return inside and bool((self._number[placement.item_block] >= 0).all())

    def inside(self, placement: Placement) -> Placement:
        """A placement of the whole problem, of blocks that are left."""
        if self.blocks is None:
            return placement
        return Placement(self._number[placement.item_block], placement.item_place)

    def outside(self, placement: Placement) -> Placement:
        """The placement of the whole problem that one of this problem is."""
        if self.blocks is None:
            return placement
        return Placement(self.blocks[placement.item_block], placement.item_place)

    def prices(self, prices: Prices) -> Prices:
        """Prices of the whole problem, those of columns that are left out on the columns that stand for them."""
        weight = prices.weight.copy()
        for column, holder in enumerate(self.column_for.tolist()):
            if holder not in {column, -1}:
                weight[:, holder] += prices.weight[:, column]
        return Prices(weight[:, self.columns], prices.byte[:, self.tiers], prices.of_table)

    def whole_prices(self, prices: Prices) -> Prices:
        """The same multipliers of the whole problem, nothing on columns that are left out."""
        slim, weight, byte = self.prices(prices), np.zeros_like(prices.weight), np.zeros_like(prices.byte)
        weight[:, self.columns], byte[:, self.tiers] = slim.weight, slim.byte
        return Prices(weight, byte, prices.of_table)


def with_options(problem: Problem, kept: Bools) -> Slim:
    """A slim problem of these options [O] alone, some of each table."""
    left = kept[problem.block_option]
    blocks = np.flatnonzero(left)
    few = replace(
        problem,
        option_table=problem.option_table[kept],
        option_units=problem.option_units[kept],
        option_tied=problem.option_tied[kept],
        block_option=(np.cumsum(kept) - 1)[problem.block_option[blocks]],
        block_count=problem.block_count[blocks],
        block_units=problem.block_units[blocks],
        block_extent=problem.block_extent[blocks],
        block_replicated=problem.block_replicated[blocks],
        fixed=problem.fixed[:, blocks],
        by_rows=problem.by_rows[:, blocks],
        everywhere=problem.everywhere[:, blocks],
        bytes_fixed=problem.bytes_fixed[:, blocks],
        bytes_by_rows=problem.bytes_by_rows[:, blocks],
        allowed=problem.allowed[:, blocks],
    )
    return replace(slimmed(few), blocks=blocks)


def slimmed(problem: Problem) -> Slim:
    """Leave out columns that nothing loads or that another one of their stage is always as loaded as, and memory tiers
    of which no block takes anything; one of each is left at least."""
    column_for = _holders(problem)
    columns = np.flatnonzero(column_for == np.arange(len(column_for)))
    columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
    size = (problem.bytes_fixed + problem.bytes_by_rows).max(axis=(0, 1), initial=0.0)
    tiers = np.flatnonzero((size > 0) | (problem.base_bytes > 0))
    tiers = tiers if len(tiers) else np.zeros(1, dtype=np.int64)
    if len(columns) == len(column_for) and len(tiers) == len(size):
        return Slim(problem, columns, tiers, column_for)
    slim = replace(
        problem,
        stage_of_column=problem.stage_of_column[columns],
        resource_of_rank=problem.resource_of_rank[columns],
        base_loads=problem.base_loads[:, columns],
        pool_of_rank=problem.pool_of_rank[tiers],
        pool_capacity=tuple(problem.pool_capacity[tier] for tier in tiers.tolist()),
        base_bytes=problem.base_bytes[tiers],
        fixed=problem.fixed[..., columns],
        by_rows=problem.by_rows[..., columns],
        everywhere=problem.everywhere[..., columns],
        bytes_fixed=problem.bytes_fixed[..., tiers],
        bytes_by_rows=problem.bytes_by_rows[..., tiers],
    )
    return Slim(slim, columns, tiers, column_for)


def _holders(problem: Problem) -> Ints:
    """[C] see `Slim.column_for`."""
    local = (problem.fixed + problem.by_rows).max(axis=(0, 1), initial=0.0)
    everywhere = problem.everywhere.max(axis=(0, 1), initial=0.0)
    idle = (local == 0) & (everywhere == 0) & (problem.base_loads <= 0).all(axis=0)
    found = np.where(idle, -1, np.arange(len(idle)))
    if problem.kinds > 1 or (problem.block_extent != RANK).any():
        return found
    own: list[int] = [
        column
        for column in np.flatnonzero(~idle).tolist()
        if len(np.unique(problem.resource_of_rank[column])) == problem.world
    ]
    stage = problem.stage_of_column
    for column, holder in itertools.permutations(own, 2):
        may_hold = local[column] == 0 and local[holder] > 0 and stage[column] == stage[holder]
        if may_hold and _is_mean(problem, column, holder):
            found[column] = holder
    return found


def _is_mean(problem: Problem, column: int, holder: int) -> bool:
    """Whether all ranks load a column by no more than they load the holder on average."""
    spread = problem.everywhere[0, :, column] * problem.world
    held: Floats = problem.fixed[0, :, holder] + problem.by_rows[0, :, holder] + problem.everywhere[0, :, holder]
    less = bool((spread <= held * (1 + 1e-12)).all())
    return less and bool(problem.base_loads[0, column] <= problem.base_loads[0, holder])
