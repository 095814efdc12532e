"""The block types of options: one way to cut tables after the other, for all tables that it applies to."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    GRID_SHARD,
    MULTI_NODE_ROW_WISE,
    MULTI_RANK_ROW_WISE,
    ROW_WISE,
    SHARDING_ROWS,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Ints,
)
from planner.formulation.option_space import Space
from planner.problem.numbers import Bools


class BlockTypes(NamedTuple):
    """Block types of one way to hold tables, for all tables that it applies to; arrays of one length."""

    table: Ints
    sharding: Ints
    columns: Ints
    taken: Ints
    units: Ints
    usual: Bools
    """See `Options.block_usual`."""
    rows: Ints
    holders: Ints
    """See `Options.block_holders`."""

    @classmethod
    def of_whole_rows(
        cls, space: Space, table: Ints, sharding: Ints, columns: Ints, taken: Ints, units: Ints, usual: Bools
    ) -> "BlockTypes":
        """Blocks that have all rows of their tables."""
        rows = space.model.tables.rows[table]
        return cls(table, sharding, columns, taken, units, usual, rows, np.zeros_like(rows))

    def take(self, index: Ints | Bools) -> "BlockTypes":
        """Some of the block types, in this order."""
        return BlockTypes._make(values[index] for values in self)

    def of_tables(self, kept: Bools) -> "BlockTypes":
        """Those of the tables [T] that are kept."""
        return self if kept.all() else self.take(kept[self.table])


def block_types(space: Space, tier: int) -> list[BlockTypes]:
    """Every way to hold tables in a tier that there is for some of them."""
    if not space.choices.tiers[:, tier].any():
        return []
    fixed = (fixed_types(space, sharding, n, tier) for sharding, n in fixed_cuts(space, tier))
    every = (splittable_types(space, tier), *partition_types(space, tier), *fixed)
    return [variant for variant in every if variant is not None and len(variant.table)]


def splittable_types(space: Space, tier: int) -> BlockTypes:
    """Blocks of single ranks that tile a table in any numbers: its widths, and the whole table, which is column_wise in
    one block where the policy does not allow table_wise."""
    is_table_wise = space.may(TABLE_WISE, tier, 1) & ~space.has_copies
    may_be_cut = space.may(COLUMN_WISE, tier, 2) & space.columns_are_splittable & ~space.has_copies
    every = np.arange(1, int(space.units.max(initial=0)) + 1)[:, None]
    whole = space.units == every
    width, table = np.nonzero((is_table_wise & whole) | (may_be_cut & (whole | space.is_width(tier, every))))
    sharding = np.where((is_table_wise & whole)[width, table], TABLE_WISE, COLUMN_WISE)
    usual = space.is_usual_width(tier, every)[width, table]
    units, ones = width + 1, np.ones_like(table)
    columns = units * space.unit_columns[table]
    return BlockTypes.of_whole_rows(space, table, sharding, columns, ones, units, usual)


def partition_types(space: Space, tier: int) -> Iterator[BlockTypes]:
    """Each way to cut tables into the few parts that the policy allows, the widest part first."""
    may_be_cut = space.may(COLUMN_WISE, tier, 2) & space.columns_are_splittable & ~space.has_copies
    for tables, widths in space.partitions():
        index = np.flatnonzero(tables & may_be_cut)
        if not len(index):
            continue
        distinct, taken = np.unique(np.array(widths), return_counts=True)
        table, n = np.repeat(index, len(distinct)), len(index)
        columns = np.tile(distinct[::-1], n) * space.unit_columns[table]
        sharding = np.full(len(table), COLUMN_WISE, dtype=np.int64)
        usual = np.ones(len(table), dtype=bool)
        counts, none = np.tile(taken[::-1], n), np.zeros_like(sharding)
        yield BlockTypes.of_whole_rows(space, table, sharding, columns, counts, none, usual)


def fixed_cuts(space: Space, tier: int) -> list[tuple[int, int]]:
    """(sharding, column blocks, or parts of the rows) of the fixed options that are tried in a tier."""
    kinds = [ROW_WISE, GRID_SHARD, TABLE_ROW_WISE, *([] if space.columns_are_splittable else [COLUMN_WISE])]
    kinds += [TABLE_COLUMN_WISE, DATA_PARALLEL, MULTI_NODE_ROW_WISE, MULTI_RANK_ROW_WISE]
    kinds += [TABLE_WISE, COLUMN_WISE] * bool(space.has_copies.any())
    return [(sharding, n) for sharding in kinds for n in space.counts(sharding, tier)]


def fixed_types(space: Space, sharding: int, splits: int, tier: int) -> BlockTypes | None:
    """One way of cutting, for the tables to which it applies: up to two widths, a step apart. None where there are no
    such tables."""
    index = np.flatnonzero(space.applies(sharding, tier, splits))
    if not len(index):
        return None
    if SHARDING_ROWS[SHARDINGS[sharding]].cuts_into_sites:
        return _cut_into_sites(space, index, sharding, tier, splits)
    step = space.steps[index]
    steps = space.model.tables.dim[index] // step
    table = np.repeat(index, 2)
    columns = (np.stack([steps // splits + 1, steps // splits], axis=1) * step[:, None]).ravel()
    count = np.stack([steps % splits, splits - steps % splits], axis=1).ravel()
    occurs = count > 0
    whole = np.full(int(occurs.sum()), sharding, dtype=np.int64)
    usual = space.is_usual(sharding, tier, splits)[table[occurs]]
    none = np.zeros_like(whole)
    return BlockTypes.of_whole_rows(space, table[occurs], whole, columns[occurs], count[occurs], none, usual)


def _cut_into_sites(space: Space, index: Ints, sharding: int, tier: int, parts: int) -> BlockTypes:
    """The rows of these tables in so many parts, each on another site: all of one size but the last."""
    rows, table = space.model.tables.rows[index], np.repeat(index, 2)
    most = -(-rows // parts)
    last = rows - (parts - 1) * most
    part_rows = np.stack([most, last], axis=1).ravel()
    alike = last == most
    count = np.stack([np.where(alike, parts, parts - 1), ~alike], axis=1).ravel().astype(np.int64)
    table, part_rows, count = table[count > 0], part_rows[count > 0], count[count > 0]
    whole, none = np.full(len(table), sharding, dtype=np.int64), np.zeros(len(table), dtype=np.int64)
    holders = np.full_like(whole, parts * int(space.sites_of(sharding).sizes[0]))
    usual = space.is_usual(sharding, tier, parts)[table]
    return BlockTypes(table, whole, space.model.tables.dim[table], count, none, usual, part_rows, holders)
