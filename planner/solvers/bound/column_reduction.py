"""Presolve by empty and dominated rows: the problem without resources and memories that no placement is short of.

The step stays the same with fewer numbers (Andersen & Andersen, Math. Program. 71, 1995). For local search on large
problems options are left out, too, that are hardly worth a look.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement

NEAR = 1 + 1e-12
"""Loads that are equal but for rounding count as equal."""


@dataclass(frozen=True)
class ReducedProblem:
    """Every placement has the same step, and fits or not, as in the whole problem. Stages are the same."""

    problem: Problem
    columns: Ints
    """The columns of the whole problem that are left."""
    tiers: Ints
    """Its memory tiers that are left."""
    column_for: Ints
    """[C] the column, of the whole problem, whose fullest instance is never less loaded; its own where it is left, -1
    where idle."""
    weight_share: Floats
    """[D, C] of what a second on the column weighs, what then a second on the column that stands for it weighs."""
    blocks: Ints | None = None
    """The blocks of the whole problem that are left, ascending; None: all."""

    @cached_property
    def _number(self) -> Ints:
        """[B] of the blocks of the whole problem: their numbers in this one, -1 where they are left out."""
        assert self.blocks is not None
        number = np.full(int(self.blocks[-1]) + 1, -1)
        number[self.blocks] = np.arange(len(self.blocks))
        return number

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

    def multipliers(self, multipliers: Multipliers) -> Multipliers:
        """Prices of the whole problem, those of columns that are left out on the columns that stand for them."""
        weight = multipliers.weight.copy()
        for column, holder in enumerate(self.column_for.tolist()):
            if holder not in {column, -1}:
                weight[:, holder] += multipliers.weight[:, column] * self.weight_share[:, column]
        return Multipliers(weight[:, self.columns], multipliers.byte[:, self.tiers], multipliers.of_table)

    def whole_multipliers(self, multipliers: Multipliers) -> Multipliers:
        """The same multipliers of the whole problem, nothing on columns that are left out."""
        reduced, weight, byte = (
            self.multipliers(multipliers),
            np.zeros_like(multipliers.weight),
            np.zeros_like(multipliers.byte),
        )
        weight[:, self.columns], byte[:, self.tiers] = reduced.weight, reduced.byte
        return Multipliers(weight, byte, multipliers.of_table)


def with_options(problem: Problem, kept: Bools) -> ReducedProblem:
    """A reduced problem of these options [O] alone, some of each table."""
    blocks = np.flatnonzero(kept[problem.block_option])
    return replace(reduce_columns(with_blocks(problem, blocks)), blocks=blocks)


def with_blocks(problem: Problem, blocks: Ints) -> Problem:
    """The problem of these blocks alone, ascending: of splittable options some, of fixed ones all or none."""
    options, number = np.unique(problem.block_option[blocks], return_inverse=True)
    return replace(
        problem,
        option_table=problem.option_table[options],
        option_units=problem.option_units[options],
        option_colocated=problem.option_colocated[options],
        option_apart=problem.option_apart[options],
        block_option=number,
        block_count=problem.block_count[blocks],
        block_units=problem.block_units[blocks],
        block_usual=problem.block_usual[blocks],
        block_extent=problem.block_extent[blocks],
        block_replicated=problem.block_replicated[blocks],
        block_copies=problem.block_copies[blocks],
        block_rows=problem.block_rows[blocks],
        fixed=problem.fixed[:, blocks],
        by_rows=problem.by_rows[:, blocks],
        everywhere=problem.everywhere[:, blocks],
        bytes_fixed=problem.bytes_fixed[:, blocks],
        bytes_by_rows=problem.bytes_by_rows[:, blocks],
        allowed=problem.allowed[:, blocks],
    )


def reduce_columns(problem: Problem) -> ReducedProblem:
    """Leave out columns that nothing loads or that another one of their stage is always as loaded as, and memory tiers
    of which no block takes anything; one of each is left at least."""
    column_for = _holders(problem)
    share = _weight_shares(problem, column_for)
    columns = np.flatnonzero(column_for == np.arange(len(column_for)))
    columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
    size = (problem.bytes_fixed + problem.bytes_by_rows).max(axis=(0, 1), initial=0.0)
    tiers = np.flatnonzero((size > 0) | (problem.base_bytes > 0))
    tiers = tiers if len(tiers) else np.zeros(1, dtype=np.int64)
    if len(columns) == len(column_for) and len(tiers) == len(size):
        return ReducedProblem(problem, columns, tiers, column_for, share)
    reduced = replace(
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
    return ReducedProblem(reduced, columns, tiers, column_for, share)


def _holders(problem: Problem) -> Ints:
    """[C] see `ReducedProblem.column_for`."""
    parts = (problem.fixed, problem.by_rows, problem.everywhere)
    asked: Floats = np.stack([part.max(axis=(0, 1), initial=0.0) for part in parts])
    idle = (asked == 0).all(axis=0) & (problem.base_loads <= 0).all(axis=0)
    holder_of = np.where(idle, -1, np.arange(len(idle)))
    sharing = [int(np.bincount(of).max()) for of in problem.resource_of_rank]
    for column in np.flatnonzero(~idle).tolist():
        in_stage = problem.stage_of_column == problem.stage_of_column[column]
        for holder in np.flatnonzero(in_stage & (holder_of == np.arange(len(holder_of)))).tolist():
            if holder == column or sharing[holder] > 1:
                continue
            times = sharing[column]
            is_part = times == 1 or _is_of_one_kind(problem, column)
            if is_part and (asked[:, column] * times <= asked[:, holder] * NEAR).all():
                is_held = all(_is_part(part, column, holder, times) for part in (*parts, problem.base_loads))
            else:
                is_held = False
            if is_held or (problem.kinds == 1 and times == 1 and _is_mean(problem, column, holder)):
                holder_of[holder_of == column] = holder
                break
    return holder_of


def _weight_shares(problem: Problem, column_for: Ints) -> Floats:
    """[D, C] see `ReducedProblem.weight_share`: the weights of all instances together stay the same."""
    shares = np.ones((len(problem.capacity_regions.kind), len(column_for)))
    for column, holder in enumerate(column_for.tolist()):
        if holder not in {column, -1}:
            for d, ranks in enumerate(problem.capacity_regions.ranks):
                used = [len(np.unique(problem.resource_of_rank[of, ranks])) for of in (column, holder)]
                shares[d, column] = used[0] / max(used[1], 1)
    return shares


def _is_of_one_kind(problem: Problem, column: int) -> bool:
    """Whether no instance of a column serves ranks of two kinds."""
    both = np.unique(np.stack([problem.resource_of_rank[column], problem.kind_of_rank]), axis=1)
    return len(both[0]) == len(np.unique(both[0]))


def _is_part(amounts: Floats, column: int, holder: int, times: int) -> bool:
    """Whether `amounts` [..., C] of the column are always so many times less than those of the holder, or lesser."""
    return bool((amounts[..., column] * times <= amounts[..., holder] * NEAR).all())


def _is_mean(problem: Problem, column: int, holder: int) -> bool:
    """Whether every rank loads a column by no more than all ranks load the holder on average; of one kind of rank."""
    world_wide = problem.is_world_wide
    if problem.base_loads[0, column] > problem.base_loads[0, holder] * NEAR:
        return False
    placed = problem.fixed[0, :, column] + problem.by_rows[0, :, column]
    if placed[~world_wide].any() or problem.by_rows[0, world_wide, column].any():
        return False
    whole = np.where(problem.block_replicated, float(problem.world), 1.0)
    held_load = problem.fixed[0, :, holder] * problem.row_shares.holders[0] + problem.by_rows[0, :, holder] * whole
    asked = (problem.everywhere[0, :, column] + problem.fixed[0, :, column] * world_wide) * problem.world
    return bool((asked <= (held_load + problem.everywhere[0, :, holder] * problem.world) * NEAR).all())
