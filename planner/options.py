"""Every legal way to hold each table, and the planning problem made of them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    GRID_SHARD,
    PLACEMENT_TIERS,
    ROW_WISE,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Blocks,
    Floats,
    Ints,
    PlacementTier,
    Sharding,
)
from planner.problem import Problem

COLUMN_UNIT = 4
"""Column widths are multiples of 4 (FBGEMM's vector width)."""
NARROWEST_BLOCK = 8
"""Columns of the narrowest block that a split may make: finer widths no longer lower the step (benchmarks)."""
MOST_UNITS = 32
"""Column units that a table is divided into at most, where its width allows: each width costs a block type."""
FEW_SPLITS = (2, 4, 8)
"""Equal column blocks of grids and of tables below HBM."""
TIED_SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Equal column blocks of an option whose blocks are tied to one node."""
CACHE_FRACTIONS: dict[PlacementTier, tuple[float, ...]] = {
    "hbm": (0.0,),
    "ddr": (0.0,),
    "ddr_cached": (0.02, 0.1, 0.3),
    "ssd_cached": (0.05, 0.2),
}
"""Cache sizes, in shares of a table's rows, that are tried."""


@dataclass(frozen=True)
class Policy:
    """What a plan may use."""

    tiers: tuple[PlacementTier, ...] = PLACEMENT_TIERS
    shardings: tuple[Sharding, ...] = SHARDINGS


@dataclass(frozen=True)
class Options:
    """The options of all tables as arrays, and their block types. O options, B block types."""

    table: Ints
    """[O] ascending."""
    tier: Ints
    """[O]"""
    cache_fraction: Floats
    """[O]"""
    units: Ints
    """[O] column units that the blocks of a free option tile; 0 for a fixed option."""
    block_option: Ints
    """[B] ascending."""
    block_sharding: Ints
    """[B] in a free option table_wise for the whole width and column_wise for a part."""
    block_columns: Ints
    """[B]"""
    block_count: Ints
    """[B] of a fixed option; 1 in a free one."""
    block_units: Ints
    """[B] width in the units of a free option, ascending; 0 in a fixed one."""

    @property
    def blocks(self) -> Blocks:
        """The block types as the cost model takes them."""
        of = self.block_option
        return Blocks(self.table[of], self.block_sharding, self.tier[of], self.block_columns, self.cache_fraction[of])


def enumerate_options(model: CostModel, policy: Policy) -> Options:
    """All options that the policy allows, table by table.

    A table on single ranks is one free option per tier and cache size: any widths that tile its columns, from
    table_wise to narrow column_wise blocks. table_column_wise is column_wise with its blocks held on one node, at the
    same cost: it is only enumerated where the policy forbids column_wise. On a single node row_wise and
    table_row_wise are one thing: the simpler is kept.
    """
    parts: list[_Variant] = []
    held: list[tuple[int, float]] = []
    for tier in policy.tiers:
        variants = [_free_variant(model, policy, tier)]
        variants += [_fixed_variant(model, sharding, n, tier) for sharding, n in _fixed_cuts(model, policy, tier)]
        for fraction in model.cache_fractions.get(tier, CACHE_FRACTIONS[tier]):
            parts += variants
            held += [(PLACEMENT_TIERS.index(tier), fraction)] * len(variants)
    none = np.zeros(0, dtype=np.int64)
    parts.append(_Variant(none, none, none, none, none))  # the policy may allow nothing
    held.append((0, 0.0))
    number = np.repeat(np.arange(len(parts)), [len(part.table) for part in parts])
    table, sharding, columns, count, units = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((units, number, table))
    table, sharding, columns, count, units, number = (
        array[order] for array in (table, sharding, columns, count, units, number)
    )
    opens = np.ones(len(table), dtype=bool)
    opens[1:] = (table[1:] != table[:-1]) | (number[1:] != number[:-1])
    first = np.flatnonzero(opens)
    tier_of, fraction_of = np.array([held_in for held_in, _ in held]), np.array([fraction for _, fraction in held])
    return Options(
        table=table[first],
        tier=tier_of[number[first]],
        cache_fraction=fraction_of[number[first]],
        units=np.where(units[first] > 0, _units(model)[table[first]], 0),
        block_option=np.cumsum(opens) - 1,
        block_sharding=sharding,
        block_columns=columns,
        block_count=count,
        block_units=units,
    )


class _Variant(NamedTuple):
    """Block types of one way to hold tables, for all tables that it applies to; arrays of one length."""

    table: Ints
    sharding: Ints
    columns: Ints
    taken: Ints
    units: Ints


def _units(model: CostModel) -> Ints:
    """[T] column units of each table: as many as divide its width evenly, at most MOST_UNITS where possible."""
    fours = model.tables.dim // COLUMN_UNIT
    of_width = {int(n): _units_of(int(n)) for n in np.unique(fours)}
    return np.array([of_width[n] for n in fours.tolist()], dtype=np.int64)


def _units_of(fours: int) -> int:
    divisors = [n for n in range(1, fours + 1) if fours % n == 0]
    few = max(n for n in divisors if n <= MOST_UNITS)
    return few if few * 4 >= MOST_UNITS or few == fours else min(n for n in divisors if n > few)


def _free_variant(model: CostModel, policy: Policy, tier: PlacementTier) -> _Variant:
    """Blocks of single ranks: every width in HBM, halves to eighths below if there are halves, and the whole table."""
    code = PLACEMENT_TIERS.index(tier)
    may_be_whole = model.is_option(TABLE_WISE, code, 1) & ("table_wise" in policy.shardings)
    may_be_cut = model.is_option(COLUMN_WISE, code, 2) & ("column_wise" in policy.shardings)
    may_be_cut &= (COLUMN_WISE not in model.tied_shardings) & (model.topology.world_size > 1)
    units = _units(model)
    unit_columns = model.tables.dim // units
    narrowest = -(-NARROWEST_BLOCK // unit_columns)
    found: list[_Variant] = []
    for width in range(1, int(units.max()) + 1):
        whole = may_be_whole & (units == width)
        part = may_be_cut & (width >= narrowest) & (width <= units - narrowest)
        if tier != "hbm":
            part &= np.isin(units / width, FEW_SPLITS) | (units % 2 > 0)
        table = np.flatnonzero(whole | part)
        ones = np.ones(len(table), dtype=np.int64)
        sharding = np.where(whole[table], TABLE_WISE, COLUMN_WISE)
        found.append(_Variant(table, sharding, width * unit_columns[table], ones, width * ones))
    return _Variant(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _fixed_cuts(model: CostModel, policy: Policy, tier: PlacementTier) -> list[tuple[int, int]]:
    """(sharding, column blocks) of the fixed options that are tried in a tier."""
    ranks_of_node = np.bincount(model.node_of_rank)
    if ranks_of_node.sum() == 1:
        return []
    cuts = [(ROW_WISE, 1), *((GRID_SHARD, n) for n in FEW_SPLITS)]
    if len(ranks_of_node) > 1 or "row_wise" not in policy.shardings:
        cuts.append((TABLE_ROW_WISE, 1))
    tied = [COLUMN_WISE] if COLUMN_WISE in model.tied_shardings else []
    if "column_wise" not in policy.shardings:
        tied.append(TABLE_COLUMN_WISE)
    cuts += [(sharding, n) for sharding in tied for n in TIED_SPLITS if n <= ranks_of_node.max()]
    if tier == "hbm":
        cuts.append((DATA_PARALLEL, 1))
    return [(sharding, n) for sharding, n in cuts if SHARDINGS[sharding] in policy.shardings]


def _fixed_variant(model: CostModel, sharding: int, splits: int, tier: PlacementTier) -> _Variant:
    """One way of cutting, for the tables to which it applies: up to two widths, a unit apart."""
    tables = model.tables
    applies = model.is_option(sharding, PLACEMENT_TIERS.index(tier), splits)
    applies = applies & (tables.dim >= (splits * NARROWEST_BLOCK if splits > 1 else 0))
    if sharding == ROW_WISE:
        applies &= tables.rows >= model.topology.world_size
    if sharding in (TABLE_ROW_WISE, GRID_SHARD):
        applies &= tables.rows >= np.bincount(model.node_of_rank).max()
    index = np.flatnonzero(applies)
    fours = tables.dim[index] // COLUMN_UNIT
    table = np.repeat(index, 2)
    columns = np.stack([fours // splits + 1, fours // splits], axis=1).ravel() * COLUMN_UNIT
    count = np.stack([fours % splits, splits - fours % splits], axis=1).ravel()
    occurs = count > 0
    whole = np.full(int(occurs.sum()), sharding, dtype=np.int64)
    return _Variant(table[occurs], whole, columns[occurs], count[occurs], np.zeros_like(whole))


def build_problem(model: CostModel, options: Options) -> Problem:
    """The arrays that a solver works on."""
    return within_capacity(uncapped_problem(model, options))


def within_capacity(problem: Problem) -> Problem:
    """The problem without the blocks that fit on no empty hardware."""
    fits_alone = (problem.pool_demand <= 1).all(axis=2)
    return replace(problem, allowed=problem.allowed & fits_alone)


def uncapped_problem(model: CostModel, options: Options) -> Problem:
    """`build_problem` with the blocks that are too large for the hardware still allowed."""
    blocks = options.blocks
    costs = [model.block_costs(blocks, kind) for kind in range(model.kind_count)]
    columns = model.columns
    tied = np.array(model.tied_shardings)
    opens = np.searchsorted(options.block_option, np.arange(len(options.table)))
    return Problem(
        kind_of_rank=model.kind_of_rank,
        node_of_rank=model.node_of_rank,
        stage_of_column=np.array([column.stage for column in columns], dtype=np.int64),
        resource_of_rank=np.stack([model.resource_of_rank(column.resource) for column in columns]),
        stage_constants=model.constants,
        base_loads=model.base_loads,
        pool_of_rank=np.stack(model.memory_pool_of_rank),
        pool_capacity=model.memory_capacity,
        base_bytes=model.base_bytes,
        table_rows=model.tables.rows,
        option_table=options.table,
        option_units=options.units,
        option_tied=np.isin(options.block_sharding[opens], tied) & (options.units == 0),
        block_option=options.block_option,
        block_count=options.block_count,
        block_units=options.block_units,
        block_extent=EXTENT_OF_SHARDING[blocks.sharding],
        block_replicated=blocks.sharding == DATA_PARALLEL,
        fixed=np.stack([cost.fixed for cost in costs]),
        by_rows=np.stack([cost.by_rows for cost in costs]),
        everywhere=np.stack([cost.everywhere for cost in costs]),
        bytes_fixed=np.stack([cost.bytes_fixed for cost in costs]),
        bytes_by_rows=np.stack([cost.bytes_by_rows for cost in costs]),
        allowed=np.stack([cost.supported for cost in costs]),
    )
