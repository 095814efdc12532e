"""The words for shards, and shards as arrays: the common currency of estimator, solver, verifier and simulator."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost_models.tiers import BELOW_HBM as BELOW_HBM
from cost_models.tiers import BYTE_ADDRESSABLE as BYTE_ADDRESSABLE
from cost_models.tiers import DDR as DDR
from cost_models.tiers import DDR_CACHED as DDR_CACHED
from cost_models.tiers import DDR_SPLIT as DDR_SPLIT
from cost_models.tiers import EVERYWHERE as EVERYWHERE
from cost_models.tiers import HBM as HBM
from cost_models.tiers import HBM_MIXED as HBM_MIXED
from cost_models.tiers import HOME as HOME
from cost_models.tiers import HOME_OF_TIER as HOME_OF_TIER
from cost_models.tiers import IS_CACHED as IS_CACHED
from cost_models.tiers import IS_IN_PLACE as IS_IN_PLACE
from cost_models.tiers import IS_MIXED as IS_MIXED
from cost_models.tiers import IS_SPLIT as IS_SPLIT
from cost_models.tiers import IS_STASHED as IS_STASHED
from cost_models.tiers import KEEPS_STATE_BELOW as KEEPS_STATE_BELOW
from cost_models.tiers import MEMORIES as MEMORIES
from cost_models.tiers import MEMORY_DDR as MEMORY_DDR
from cost_models.tiers import MEMORY_HBM as MEMORY_HBM
from cost_models.tiers import MEMORY_REMOTE as MEMORY_REMOTE
from cost_models.tiers import MEMORY_SCM as MEMORY_SCM
from cost_models.tiers import MEMORY_SSD as MEMORY_SSD
from cost_models.tiers import MEMORY_TIERS as MEMORY_TIERS
from cost_models.tiers import PARTLY_IN_HBM as PARTLY_IN_HBM
from cost_models.tiers import PLACEMENT_TIERS as PLACEMENT_TIERS
from cost_models.tiers import REMOTE_CACHED as REMOTE_CACHED
from cost_models.tiers import SCM as SCM
from cost_models.tiers import SCM_CACHED as SCM_CACHED
from cost_models.tiers import SHARED_BY as SHARED_BY
from cost_models.tiers import SIZED_BY_PLAN as SIZED_BY_PLAN
from cost_models.tiers import SSD_CACHED as SSD_CACHED
from cost_models.tiers import STASHED_TIERS as STASHED_TIERS
from cost_models.tiers import STASHES_STATE as STASHES_STATE
from cost_models.tiers import STASHES_WEIGHTS as STASHES_WEIGHTS
from cost_models.tiers import STATE_PLACES as STATE_PLACES
from cost_models.tiers import TIERS as TIERS
from cost_models.tiers import MemoryTier as MemoryTier
from cost_models.tiers import PlacementTier as PlacementTier
from cost_models.tiers import StatePlace as StatePlace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Sharding = Literal[
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
    "multi_node_row_wise",
    "multi_rank_row_wise",
]
"""TorchRec's names for its seven ways to cut a table; and rows over several, but not all, nodes, or ranks of one
scale-up domain."""
Reach = Literal["rank", "group", "world"]
"""One rank at a choice of all; a group of ranks (rows cut) at a choice of several groups; all ranks (rows cut or
replicated)."""


@dataclass(frozen=True)
class ExtentRow:
    """Over which ranks a column block of a sharding reaches."""

    reach: Reach
    exchange: str
    """What a timeline calls the exchange of the vectors, or of the partial sums, of its blocks."""
    site_of_rank: Callable[[Ints], Ints]
    """From the node of each rank [W] to its site [W], ascending from 0: a block is on the ranks of one site."""
    sites: str = "nodes"
    """What its sites are called, where there is a choice of them."""


EXTENTS = (
    ExtentRow("rank", "table-wise", lambda node_of_rank: np.arange(len(node_of_rank)), "ranks"),
    ExtentRow("group", "node", lambda node_of_rank: node_of_rank),
    ExtentRow("world", "row-wise", np.zeros_like),
    ExtentRow("group", "rank-part", lambda node_of_rank: np.arange(len(node_of_rank)), "ranks"),
)
"""The groups of ranks that costs, planner and simulator know; `RankKind.extents` and `SimulatedNetwork.extents` say who
is in them."""
RANK, NODE, WORLD, RANK_PART = range(len(EXTENTS))
"""RANK_PART is one rank like RANK, and a group like NODE: it holds a part of the rows, whose sums meet others'."""


def copied_extent(extent: int, copies: int, *, apart: bool) -> ExtentRow:
    """The extent of blocks of which a group of ranks has so many copies: neighbours that stand in for a rank or, of
    copies that are apart, what is at the same place in each of so many runs of whole nodes."""
    row = EXTENTS[extent]
    if copies == 1 or extent not in copied_extents(apart=apart):
        return row

    def site_of_rank(node_of_rank: Ints) -> Ints:
        sites = row.site_of_rank(node_of_rank)
        return np.asarray(sites % ((sites[-1] + 1) // copies) if apart else sites // copies)

    return ExtentRow("group", row.exchange, site_of_rank)


def copied_extents(*, apart: bool) -> tuple[int, ...]:
    """The extents whose sites are others where there are copies: nodes that are apart stand in for one, while
    neighbours are on one, and on all ranks there are all copies."""
    return (RANK, NODE) if apart else (RANK,)


@dataclass(frozen=True)
class ShardingRow:
    """What one way to cut a table does with it."""

    extent: int
    """Whose ranks hold a column block: an index into EXTENTS."""
    least_blocks: int = 1
    """Column blocks that it cuts a table into at least."""
    most_blocks: int | None = None
    """Column blocks that it cuts a table into at most; None for as many as its columns allow."""
    is_within_node: bool = False
    """Whether it keeps the ranks of a column block, or all column blocks of a table, to one node."""
    is_within_domain: bool = False
    """Whether it is for clusters of one node, or of one scale-up domain, alone."""
    cuts_into_sites: bool = False
    """Whether the rows of a column block are first cut into parts, each of which is on another site of the extent."""


SHARDING_ROWS: dict[Sharding, ShardingRow] = {
    "data_parallel": ShardingRow(WORLD, most_blocks=1),
    "table_wise": ShardingRow(RANK, most_blocks=1),
    "column_wise": ShardingRow(RANK),
    "row_wise": ShardingRow(WORLD, most_blocks=1),
    "table_row_wise": ShardingRow(NODE, most_blocks=1, is_within_node=True),
    "table_column_wise": ShardingRow(RANK, is_within_node=True),
    "grid_shard": ShardingRow(NODE, least_blocks=2, is_within_node=True),
    "multi_node_row_wise": ShardingRow(NODE, most_blocks=1, cuts_into_sites=True),
    "multi_rank_row_wise": ShardingRow(RANK_PART, most_blocks=1, is_within_domain=True, cuts_into_sites=True),
}
SHARDINGS: tuple[Sharding, ...] = tuple(SHARDING_ROWS)
(
    DATA_PARALLEL,
    TABLE_WISE,
    COLUMN_WISE,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_COLUMN_WISE,
    GRID_SHARD,
    MULTI_NODE_ROW_WISE,
    MULTI_RANK_ROW_WISE,
) = range(len(SHARDINGS))
USUAL_SHARDINGS: tuple[Sharding, ...] = tuple(name for name, row in SHARDING_ROWS.items() if not row.cuts_into_sites)
"""TorchRec's; the others are used where they are named, or where a runtime that has them is."""
EXTENT_OF_SHARDING: Ints = np.array([row.extent for row in SHARDING_ROWS.values()])
ROWS_OF_NODE: tuple[Sharding, ...] = tuple(name for name, row in SHARDING_ROWS.items() if row.extent == NODE)
"""Shardings that cut rows over the ranks of single nodes, or of several."""
WITHIN_NODE: tuple[Sharding, ...] = tuple(name for name, row in SHARDING_ROWS.items() if row.is_within_node)
"""Shardings that keep to nodes."""
COLUMNS_CUT: tuple[Sharding, ...] = tuple(name for name, row in SHARDING_ROWS.items() if row.most_blocks is None)
"""Shardings that may cut columns."""


def sites_with_parts(sharding: Sharding, rank: Ints, node_of_rank: Ints) -> list[int]:
    """The sites that hold shards on these ranks [n], each once, in the order of the shards."""
    site_of_rank = EXTENTS[SHARDING_ROWS[sharding].extent].site_of_rank(node_of_rank)
    return list(dict.fromkeys(site_of_rank[rank].tolist()))


def run_starts(*arrays: NDArray[np.generic]) -> Ints:
    """The first of each run of neighbours that are equal in all of these arrays [n]."""
    begins = np.ones(len(arrays[0]), dtype=bool)
    begins[1:] = False
    for each in arrays:
        begins[1:] |= each[1:] != each[:-1]
    return np.flatnonzero(begins)


@dataclass(frozen=True)
class Blocks:
    """Column blocks of tables, before they have ranks. All arrays are [n].

    A block is a set of columns of one table, held by one rank, or cut by rows over the ranks of one node or of the
    world (each of k ranks holds ceil(rows/k) rows, in order; tail ranks may hold fewer or none), or replicated
    (data_parallel). Over several nodes rows are cut into a part for each node, and each part like that over its ranks;
    over several ranks of a node or a scale-up domain, into a part for each.
    """

    table: Ints
    """Index of the table."""
    sharding: Ints
    """Index into SHARDINGS."""
    tier: Ints
    """Index into PLACEMENT_TIERS."""
    columns: Ints
    """Number of columns of the block."""
    cache_fraction: Floats
    """Share of the rows that the HBM cache, or the hot part of a split, holds; 0 where there is none."""
    dtype: Ints | None = None
    """Format of the stored rows, an index into DTYPES, or -1 for the table's own; None: of all tables their own."""
    state: Ints | None = None
    """Where the optimizer state is, an index into STATE_PLACES; None: of all blocks with the rows."""
    holders: Ints | None = None
    """Ranks that hold a part of the block, where the sharding leaves open how many, else 0; None: 0 of all blocks."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def distinct(self) -> tuple["Blocks", Ints]:
        """The blocks without repetitions, and [n] which of them each one is."""
        starts = run_starts(*(each for each in self._arrays() if each is not None))
        heads = self.take(starts)
        _, first, which = np.unique(heads._keys(), return_index=True, return_inverse=True)
        return heads.take(first), np.repeat(which, np.diff(starts, append=len(self)))

    def _arrays(self) -> tuple[NDArray[np.generic] | None, ...]:
        return (
            self.table,
            self.sharding,
            self.tier,
            self.columns,
            self.cache_fraction,
            self.dtype,
            self.state,
            self.holders,
        )

    def _keys(self) -> Ints:
        """[n] a number of each block, the same of those that are alike."""
        fractions, fraction = np.unique(self.cache_fraction, return_inverse=True)
        digits = [
            (self.table, int(self.table.max(initial=0)) + 1),
            (self.sharding, len(SHARDINGS)),
            (self.tier, len(PLACEMENT_TIERS)),
            (self.columns, int(self.columns.max(initial=0)) + 1),
            (fraction, len(fractions)),
        ]
        if self.dtype is not None:
            digits.append((self.dtype + 1, int(self.dtype.max(initial=0)) + 2))
        if self.state is not None:
            digits.append((self.state, len(STATE_PLACES)))
        if self.holders is not None:
            digits.append((self.holders, int(self.holders.max(initial=0)) + 1))
        key = np.zeros(len(self), dtype=np.int64)
        for digit, base in digits:
            key = key * base + digit
        return key

    def take(self, index: Ints | slice) -> "Blocks":
        """The blocks at these positions."""
        return Blocks(
            self.table[index],
            self.sharding[index],
            self.tier[index],
            self.columns[index],
            self.cache_fraction[index],
            None if self.dtype is None else self.dtype[index],
            None if self.state is None else self.state[index],
            None if self.holders is None else self.holders[index],
        )

    def repeated(self, counts: Ints) -> "Blocks":
        """Each of these `counts` [n] times, at least once, one after the other."""
        return _RepeatedBlocks(self, counts)


class _RepeatedBlocks(Blocks):
    """Blocks of which many are the same, as of shards of tables that thousands of ranks hold: each is kept once. An
    array [n] is made when it is asked for, and not kept."""

    def __init__(self, blocks: Blocks, counts: Ints) -> None:
        kept, which = blocks.distinct
        self.__dict__["distinct"] = kept, np.repeat(which.astype(np.int32), counts)

    def __len__(self) -> int:
        return len(self.distinct[1])

    def take(self, index: Ints | slice) -> Blocks:
        kept, which = self.distinct
        return kept.take(which[index])

    def _of_each(self, name: str) -> NDArray[np.generic] | None:
        kept, which = self.distinct
        values = getattr(kept, name)
        return None if values is None else values[which]


for _field in fields(Blocks):
    setattr(_RepeatedBlocks, _field.name, property(partial(_RepeatedBlocks._of_each, name=_field.name)))


@dataclass(frozen=True)
class PlacedShards:
    """Shards with their ranks: what a plan document says. All arrays are [n]; `blocks` is parallel to them."""

    blocks: Blocks
    rank: Ints
    rows: Ints
    """Rows that the shard holds (all of them when replicated)."""
    opens_block: NDArray[np.bool_]
    """True for exactly one shard of each column block: the one that holds its first row."""


def block_rows(rows: Ints, ranks: Ints | int, position: Ints | int) -> Ints:
    """Rows that the rank at `position` of `ranks` holds when `rows` are cut into ceil-blocks in rank order."""
    size = -(-np.asarray(rows) // ranks)
    return np.clip(rows - position * size, 0, size)


_APART = np.array([MEMORY_HBM, *(MEMORY_TIERS.index(place) for place in BYTE_ADDRESSABLE)])
"""Memory of each of STATE_PLACES; none of the first."""


def memory_of_state(tier: Ints, state: Ints) -> Ints:
    """[n] the memory that holds the optimizer state of rows in a tier (index into PLACEMENT_TIERS) whose state has a
    place (index into STATE_PLACES); of a split table, that of its rows below HBM."""
    return np.where(state > 0, _APART[state], HOME[tier])


def state_memory(blocks: Blocks) -> Ints:
    """[n] the same of blocks."""
    return HOME[blocks.tier] if blocks.state is None else memory_of_state(blocks.tier, blocks.state)
