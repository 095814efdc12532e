"""Every legal way to hold each table, and the planning problem made of them."""

import itertools
from collections.abc import Mapping
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
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Blocks,
    Floats,
    Ints,
    PlacementTier,
)
from planner.permits import Permits, permits_of, permitted_states
from planner.policy import Policy
from planner.problem import NODE, RANK, WORLD, Bools, Problem

COLUMN_UNIT = 4
"""Column widths are multiples of 4 (FBGEMM's vector width)."""
NARROWEST_BLOCK = 8
"""Columns of the narrowest block that a split may make: finer widths no longer lower the step (benchmarks)."""
MOST_UNITS = 32
"""Column units that a table is divided into at most, where its width allows: each width costs a block type."""
FEW_SPLITS = (2, 4, 8)
"""Equal column blocks of grids and of tables below HBM."""
FINE_SPLITS = (16, 32)
"""More of these for grids in HBM, of tables of which half as many blocks would each be more than a node's part of all
lookups."""
TIED_SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Equal column blocks of an option whose blocks are tied to one node."""
CACHE_FRACTIONS: dict[PlacementTier, tuple[float, ...]] = {
    "hbm": (0.0,),
    "ddr": (0.0,),
    "ddr_cached": (0.02, 0.1, 0.3),
    "ssd_cached": (0.05, 0.2),
    "ddr_split": (0.02, 0.1, 0.3),
    "scm_cached": (0.02, 0.1, 0.3),
    "scm": (0.0,),
    "remote_cached": (0.05, 0.2),
}
"""Cache sizes, in shares of a table's rows, that are tried, where a table has none of its own."""

CacheFractions = Mapping[PlacementTier, Floats]
"""By tier, the shares [T, n] of each table's rows that are tried; NaN where a table has fewer than n."""


@dataclass(frozen=True)
class Options:
    """The options of all tables as arrays, and their block types. O options, B block types."""

    table: Ints
    """[O] ascending."""
    tier: Ints
    """[O]"""
    cache_fraction: Floats
    """[O]"""
    dtype: Ints
    """[O] index into DTYPES of the stored format."""
    state: Ints
    """[O] index into STATE_PLACES: where the optimizer state is."""
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
    permits: Permits
    """What the options keep to."""
    fractions: CacheFractions | None = None
    """Cache sizes that are tried; None where these are the same few of every table."""

    @property
    def blocks(self) -> Blocks:
        """The block types as the cost model takes them."""
        of = self.block_option
        return Blocks(
            self.table[of],
            self.block_sharding,
            self.tier[of],
            self.block_columns,
            self.cache_fraction[of],
            self.dtype[of],
            self.state[of] if self.state.any() else None,
        )


def coarse_fractions(model: CostModel) -> dict[PlacementTier, Floats]:
    """The shares that are tried of every table alike."""
    tables = len(model.tables.rows)
    shares = {tier: model.cache_fractions.get(tier, CACHE_FRACTIONS[tier]) for tier in PLACEMENT_TIERS}
    return {tier: np.tile(np.array(of_tier), (tables, 1)) for tier, of_tier in shares.items()}


def enumerate_options(model: CostModel, policy: Policy | Permits, fractions: CacheFractions | None = None) -> Options:
    """All options that the policy allows, table by table. Raises InputError for a policy that contradicts itself.

    `fractions` are the cache sizes that are tried, for all tiers; None: the same few of every table.

    A table on single ranks is one free option per tier and cache size: any widths that tile its columns, from
    table_wise to narrow column_wise blocks. table_column_wise is column_wise with its blocks held on one node, at the
    same cost: it is only enumerated where the policy forbids column_wise. On a single node row_wise and
    table_row_wise are one thing: the simpler is kept.
    """
    permits = policy if isinstance(policy, Permits) else permits_of(model, policy)
    parts: list[_Variant] = []
    held: list[tuple[int, Floats, int, int]] = []
    dtypes = np.flatnonzero(permits.dtypes.any(axis=0)).tolist()
    tried = coarse_fractions(model) if fractions is None else fractions
    for tier in PLACEMENT_TIERS:
        variants = [_free_variant(model, permits, tier)]
        variants += [_fixed_variant(model, permits, sharding, n, tier) for sharding, n in _fixed_cuts(model, tier)]
        code = PLACEMENT_TIERS.index(tier)
        states = permitted_states(permits, code)
        places = np.flatnonzero(states.any(axis=0)).tolist()
        for of_table, dtype, state in itertools.product(tried[tier].T, dtypes, places):
            kept = ~np.isnan(of_table) & permits.dtypes[:, dtype] & states[:, state]
            parts += [variant.of_tables(kept) for variant in variants]
            held += [(code, of_table, dtype, state)] * len(variants)
    none = np.zeros(0, dtype=np.int64)
    parts.append(_Variant(none, none, none, none, none))  # the policy may allow nothing
    held.append((0, np.zeros(len(model.tables.rows)), 0, 0))
    number = np.repeat(np.arange(len(parts)), [len(part.table) for part in parts])
    table, sharding, columns, count, units = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((units, number, table))
    table, sharding, columns, count, units, number = (
        array[order] for array in (table, sharding, columns, count, units, number)
    )
    opens = np.ones(len(table), dtype=bool)
    opens[1:] = (table[1:] != table[:-1]) | (number[1:] != number[:-1])
    first = np.flatnonzero(opens)
    tier_of, fraction_of, dtype_of, state_of = (np.array(values) for values in zip(*held, strict=True))
    return Options(
        table=table[first],
        tier=tier_of[number[first]],
        cache_fraction=fraction_of[number[first], table[first]],
        dtype=dtype_of[number[first]],
        state=state_of[number[first]],
        units=np.where(units[first] > 0, _units(model, permits)[table[first]], 0),
        block_option=np.cumsum(opens) - 1,
        block_sharding=sharding,
        block_columns=columns,
        block_count=count,
        block_units=units,
        permits=permits,
        fractions=fractions,
    )


class _Variant(NamedTuple):
    """Block types of one way to hold tables, for all tables that it applies to; arrays of one length."""

    table: Ints
    sharding: Ints
    columns: Ints
    taken: Ints
    units: Ints

    def of_tables(self, kept: Bools) -> "_Variant":
        """Those of the tables [T] that are kept."""
        return self if kept.all() else _Variant(*(array[kept[self.table]] for array in self))


def _column_step(model: CostModel, permits: Permits) -> Ints:
    """[T] columns of which every width is a multiple: the whole width, where the wanted one does not divide it."""
    step = np.lcm(COLUMN_UNIT, permits.column_multiple)
    return np.where(model.tables.dim % step == 0, step, model.tables.dim)


def _units(model: CostModel, permits: Permits) -> Ints:
    """[T] column units of each table: as many as divide its width evenly, at most MOST_UNITS where possible."""
    steps = model.tables.dim // _column_step(model, permits)
    of_width = {int(n): _units_of(int(n)) for n in np.unique(steps)}
    return np.array([of_width[n] for n in steps.tolist()], dtype=np.int64)


def _units_of(steps: int) -> int:
    divisors = [n for n in range(1, steps + 1) if steps % n == 0]
    few = max(n for n in divisors if n <= MOST_UNITS)
    return few if few * 4 >= MOST_UNITS or few == steps else min(n for n in divisors if n > few)


def _free_variant(model: CostModel, permits: Permits, tier: PlacementTier) -> _Variant:
    """Blocks of single ranks: every width in HBM, halves to eighths below if there are halves, and the whole table."""
    code = PLACEMENT_TIERS.index(tier)
    may_be_whole = model.is_option(TABLE_WISE, code, 1) & permits.shardings[:, TABLE_WISE] & permits.tiers[:, code]
    may_be_cut = model.is_option(COLUMN_WISE, code, 2) & permits.shardings[:, COLUMN_WISE] & permits.tiers[:, code]
    may_be_cut &= (COLUMN_WISE not in model.tied_shardings) & (model.topology.world_size > 1)
    units = _units(model, permits)
    fewest = -(-units // permits.max_shards)  # blocks at least as wide as this are not more than max_shards
    unit_columns = model.tables.dim // units
    narrowest = -(-NARROWEST_BLOCK // unit_columns)
    found: list[_Variant] = []
    for width in range(1, int(units.max()) + 1):
        whole = may_be_whole & (units == width)
        part = may_be_cut & (width >= np.maximum(narrowest, fewest)) & (width <= units - narrowest)
        if tier != "hbm":
            part &= np.isin(units / width, FEW_SPLITS) | (units % 2 > 0)
        table = np.flatnonzero(whole | part)
        ones = np.ones(len(table), dtype=np.int64)
        sharding = np.where(whole[table], TABLE_WISE, COLUMN_WISE)
        found.append(_Variant(table, sharding, width * unit_columns[table], ones, width * ones))
    return _Variant(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _fixed_cuts(model: CostModel, tier: PlacementTier) -> list[tuple[int, int]]:
    """(sharding, column blocks) of the fixed options that are tried in a tier."""
    ranks_of_node = np.bincount(model.node_of_rank)
    if ranks_of_node.sum() == 1:
        return []
    grids = FEW_SPLITS + FINE_SPLITS if tier == "hbm" else FEW_SPLITS
    cuts = [(ROW_WISE, 1), *((GRID_SHARD, n) for n in grids), (TABLE_ROW_WISE, 1)]
    tied = [COLUMN_WISE] if COLUMN_WISE in model.tied_shardings else []
    tied.append(TABLE_COLUMN_WISE)
    cuts += [(sharding, n) for sharding in tied for n in TIED_SPLITS if n <= ranks_of_node.max()]
    if tier == "hbm":
        cuts.append((DATA_PARALLEL, 1))
    return cuts


def _fixed_variant(model: CostModel, permits: Permits, sharding: int, splits: int, tier: PlacementTier) -> _Variant:
    """One way of cutting, for the tables to which it applies: up to two widths, a step apart."""
    tables, code = model.tables, PLACEMENT_TIERS.index(tier)
    ranks_of_node = np.bincount(model.node_of_rank)
    step = _column_step(model, permits)
    parts = {WORLD: model.topology.world_size, NODE: splits * ranks_of_node.max(), RANK: splits}
    applies = model.is_option(sharding, code, splits) & permits.shardings[:, sharding] & permits.tiers[:, code]
    applies &= tables.dim >= (splits * np.maximum(NARROWEST_BLOCK, step) if splits > 1 else 0)
    if sharding != DATA_PARALLEL:
        applies &= permits.max_shards >= parts[int(EXTENT_OF_SHARDING[sharding])]
    if sharding == ROW_WISE:
        applies &= tables.rows >= model.topology.world_size
    if sharding in (TABLE_ROW_WISE, GRID_SHARD):
        applies &= tables.rows >= ranks_of_node.max()
    if sharding == GRID_SHARD and splits in FINE_SPLITS:
        looked_up = tables.lookups_per_sample * tables.dim
        applies &= looked_up * len(ranks_of_node) > looked_up.sum() * (splits // 2)
    if sharding == TABLE_ROW_WISE and len(ranks_of_node) == 1:
        applies &= ~permits.shardings[:, ROW_WISE]
    if sharding == TABLE_COLUMN_WISE:
        applies &= ~permits.shardings[:, COLUMN_WISE]
    if sharding == COLUMN_WISE:
        applies &= tables.dim % (splits * step) == 0  # tied blocks of a model that cuts evenly
    index = np.flatnonzero(applies)
    steps = tables.dim[index] // step[index]
    table = np.repeat(index, 2)
    columns = (np.stack([steps // splits + 1, steps // splits], axis=1) * step[index, None]).ravel()
    count = np.stack([steps % splits, splits - steps % splits], axis=1).ravel()
    occurs = count > 0
    whole = np.full(int(occurs.sum()), sharding, dtype=np.int64)
    return _Variant(table[occurs], whole, columns[occurs], count[occurs], np.zeros_like(whole))


def build_problem(model: CostModel, options: Options) -> Problem:
    """The arrays that a solver works on."""
    return within_capacity(uncapped_problem(model, options))


def within_capacity(problem: Problem) -> Problem:
    """The problem without the blocks that fit on no empty hardware that may hold them."""
    fits_alone = (problem.pool_demand <= 1).all(axis=2)
    return replace(problem, allowed=problem.allowed & fits_alone & _has_place(problem))


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
        rank_sets=options.permits.rank_sets,
        table_rank_set=options.permits.table_rank_set,
        together=options.permits.together,
        apart=options.permits.apart,
    )


def _has_place(problem: Problem) -> Bools:
    """[K, B] whether the rank set of the block's table has a place for it on some rank or node of the kind."""
    found = np.zeros_like(problem.allowed)
    which = problem.table_rank_set[problem.table_of_block]
    for k in range(problem.kinds):
        ranks = np.asarray(problem.rank_sets[:, problem.kind_of_rank == k].any(axis=1))
        nodes = np.asarray(problem.node_sets[:, problem.kind_of_rank[problem.node_start[:-1]] == k].any(axis=1))
        found[k] = np.select([problem.block_extent == RANK, problem.block_extent == NODE], [ranks[which], nodes[which]])
    world_wide, whole = problem.block_extent == WORLD, np.asarray(problem.rank_sets.all(axis=1))
    found[:, world_wide] = whole[which[world_wide]]
    return found
