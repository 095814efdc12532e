"""Every legal way to hold each table, and the planning problem made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
NARROWEST_SPLIT = 8
"""Columns of the narrowest block that a split may make: finer widths no longer lower the step (benchmarks)."""
SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Column blocks that a table in HBM may be cut into."""
FEW_SPLITS = (2, 4, 8)
"""The same for grids and for tables below HBM."""
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
    """The options of all tables as arrays, and their blocks. O options, B block types."""

    table: Ints
    """[O] ascending."""
    sharding: Ints
    """[O]"""
    tier: Ints
    """[O]"""
    cache_fraction: Floats
    """[O]"""
    block_option: Ints
    """[B] ascending; an option with unequal column blocks has two types, the wider first."""
    block_columns: Ints
    """[B]"""
    block_count: Ints
    """[B]"""

    @property
    def blocks(self) -> Blocks:
        """The block types as the cost model takes them."""
        of = self.block_option
        return Blocks(self.table[of], self.sharding[of], self.tier[of], self.block_columns, self.cache_fraction[of])


def enumerate_options(model: CostModel, policy: Policy) -> Options:
    """All options that the policy allows, table by table.

    table_column_wise is column_wise with its blocks held on one node, at the same cost: it is only enumerated where
    the policy forbids column_wise. On a single node row_wise and table_row_wise are one thing, as are one rank's
    shardings: the simplest is kept.
    """
    parts = [
        _variants(model, sharding, splits, tier, fraction)
        for tier in policy.tiers
        for sharding, splits in _cuts(model, policy, tier)
        for fraction in model.cache_fractions.get(tier, CACHE_FRACTIONS[tier])
    ]
    none = np.zeros(0, dtype=np.int64)
    parts.append((none, none, none, none, np.zeros(0)))  # the policy may allow nothing
    table, sharding, tier, splits, fraction = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(table, kind="stable")
    table, sharding, tier, splits, fraction = (array[order] for array in (table, sharding, tier, splits, fraction))
    units = model.tables.dim[table] // COLUMN_UNIT
    narrow, wide_count = units // splits, units % splits
    # two candidate block types per option: wide (narrow + 1 units) and narrow; drop those that do not occur
    option = np.repeat(np.arange(len(table)), 2)
    columns = np.stack([(narrow + 1) * COLUMN_UNIT, narrow * COLUMN_UNIT], axis=1).ravel()
    count = np.stack([wide_count, splits - wide_count], axis=1).ravel()
    occurs = count > 0
    return Options(table, sharding, tier, fraction, option[occurs], columns[occurs], count[occurs])


def _cuts(model: CostModel, policy: Policy, tier: PlacementTier) -> Sequence[tuple[int, int]]:
    """(sharding, column blocks) that are tried in a tier."""
    ranks_of_node = np.bincount(model.node_of_rank)
    world, nodes, most = int(ranks_of_node.sum()), len(ranks_of_node), int(ranks_of_node.max())
    column_splits = SPLITS if tier == "hbm" else FEW_SPLITS
    cuts = [(TABLE_WISE, 1)]
    if world > 1:
        if "column_wise" in policy.shardings:
            limit = most if COLUMN_WISE in model.tied_shardings else world * 2
            cuts += [(COLUMN_WISE, n) for n in column_splits if n <= limit]
        else:
            cuts += [(TABLE_COLUMN_WISE, n) for n in column_splits if n <= most]
        if nodes > 1 or "row_wise" not in policy.shardings:
            cuts += [(TABLE_ROW_WISE, 1)]
        cuts += [(ROW_WISE, 1)] + [(GRID_SHARD, n) for n in FEW_SPLITS]
        if tier == "hbm":
            cuts += [(DATA_PARALLEL, 1)]
    return [(sharding, n) for sharding, n in cuts if SHARDINGS[sharding] in policy.shardings]


def _variants(
    model: CostModel, sharding: int, splits: int, tier: PlacementTier, fraction: float
) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """(table, sharding, tier, splits, cache fraction) of the tables to which one way of cutting applies."""
    tables = model.tables
    code = PLACEMENT_TIERS.index(tier)
    applies = model.is_option(sharding, code, splits)
    if splits > 1:
        applies &= tables.dim >= splits * NARROWEST_SPLIT
    if sharding == ROW_WISE:
        applies &= tables.rows >= model.topology.world_size
    if sharding in (TABLE_ROW_WISE, GRID_SHARD):
        applies &= tables.rows >= np.bincount(model.node_of_rank).max()
    index = np.flatnonzero(applies)
    whole = np.ones(len(index), dtype=np.int64)
    return index, whole * sharding, whole * code, whole * splits, np.full(len(index), fraction)


def build_problem(model: CostModel, options: Options) -> Problem:
    """The arrays that a solver works on."""
    blocks = options.blocks
    costs = [model.block_costs(blocks, kind) for kind in range(model.kind_count)]
    columns = model.columns
    problem = Problem(
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
        option_tied=np.isin(options.sharding, model.tied_shardings),
        block_option=options.block_option,
        block_count=options.block_count,
        block_extent=EXTENT_OF_SHARDING[blocks.sharding],
        block_replicated=blocks.sharding == DATA_PARALLEL,
        fixed=np.stack([cost.fixed for cost in costs]),
        by_rows=np.stack([cost.by_rows for cost in costs]),
        everywhere=np.stack([cost.everywhere for cost in costs]),
        bytes_fixed=np.stack([cost.bytes_fixed for cost in costs]),
        bytes_by_rows=np.stack([cost.bytes_by_rows for cost in costs]),
        allowed=np.stack([cost.supported for cost in costs]),
    )
    fits_alone = (problem.pool_demand <= 1).all(axis=2)
    return replace(problem, allowed=problem.allowed & fits_alone)
