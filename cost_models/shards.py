"""The words for shards, and shards as arrays: the common currency of estimator, solver, verifier and simulator."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from topologies.cluster import MEMORY_TIERS as MEMORY_TIERS
from topologies.cluster import MemoryTier as MemoryTier

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
]
"""TorchRec's names for the seven ways to cut a table."""
SHARDINGS: tuple[Sharding, ...] = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)
DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, TABLE_COLUMN_WISE, GRID_SHARD = range(7)

MEMORY_HBM, MEMORY_DDR, MEMORY_SSD, MEMORY_SCM, MEMORY_REMOTE = range(len(MEMORY_TIERS))
SHARED_BY: dict[MemoryTier, Literal["rank", "node", "group"]] = {
    "hbm": "rank",
    "ddr": "node",
    "ssd": "node",
    "scm": "node",
    "remote": "group",
}
"""Whose ranks draw on one pool of each memory."""
EVERYWHERE: tuple[MemoryTier, ...] = ("hbm", "ddr", "ssd")
"""Memories that are counted and named whether a cluster has them or not; the others where it does."""
BELOW_HBM: tuple[MemoryTier, ...] = MEMORY_TIERS[1:]
BYTE_ADDRESSABLE: tuple[Literal["ddr", "scm"], ...] = ("ddr", "scm")
"""Memories below HBM that kernels read and write in place; of the others whole rows are fetched, with their state."""

PlacementTier = Literal["hbm", "ddr_cached", "ddr", "ssd_cached", "ddr_split", "scm_cached", "scm", "remote_cached"]
"""Where a table lives."""


@dataclass(frozen=True)
class TierForm:
    """How a table is held."""

    home: MemoryTier
    """The memory of what HBM does not hold."""
    how: Literal["whole", "cached", "in_place", "split"]
    """All in HBM; all at home, behind a row cache in HBM; all at home, read there (UVM); the rows that are read most in
    HBM and the others at home, read there (Sethi et al., RecShard, ASPLOS 2022)."""


TIER_FORMS: dict[PlacementTier, TierForm] = {
    "hbm": TierForm("hbm", "whole"),
    "ddr_cached": TierForm("ddr", "cached"),
    "ddr": TierForm("ddr", "in_place"),
    "ssd_cached": TierForm("ssd", "cached"),
    "ddr_split": TierForm("ddr", "split"),
    "scm_cached": TierForm("scm", "cached"),
    "scm": TierForm("scm", "in_place"),
    "remote_cached": TierForm("remote", "cached"),
}
PLACEMENT_TIERS: tuple[PlacementTier, ...] = tuple(TIER_FORMS)
HBM, DDR_CACHED, DDR, SSD_CACHED, DDR_SPLIT, SCM_CACHED, SCM, REMOTE_CACHED = range(len(PLACEMENT_TIERS))
PARTLY_IN_HBM: frozenset[PlacementTier] = frozenset(
    tier for tier, form in TIER_FORMS.items() if form.how in ("cached", "split")
)
"""Tiers of which a share of the rows is in HBM too, or instead."""
HOME_OF_TIER: dict[PlacementTier, MemoryTier] = {tier: form.home for tier, form in TIER_FORMS.items()}
"""The memory that holds what HBM does not."""

StatePlace = Literal["with_table", "ddr", "scm"]
STATE_PLACES: tuple[StatePlace, ...] = ("with_table", *BYTE_ADDRESSABLE)
"""Where the optimizer state of a table is: where its rows are at home, or in a memory that kernels write in place."""

# The same by index into PLACEMENT_TIERS.
HOME: Ints = np.array([MEMORY_TIERS.index(form.home) for form in TIER_FORMS.values()])
IS_CACHED, IS_IN_PLACE, IS_SPLIT = (
    np.array([form.how == how for form in TIER_FORMS.values()]) for how in ("cached", "in_place", "split")
)
KEEPS_STATE_BELOW = IS_CACHED & np.array([form.home in BYTE_ADDRESSABLE for form in TIER_FORMS.values()])
"""Tiers whose cache holds rows alone: their optimizer state is updated at home (FBGEMM: state of managed tables)."""

RANK, NODE, WORLD = range(3)
"""The extent of a block: one rank, every rank of one node (rows cut), every rank (rows cut or replicated)."""
EXTENT_OF_SHARDING: Ints = np.array([WORLD, RANK, RANK, WORLD, NODE, RANK, NODE])


@dataclass(frozen=True)
class Blocks:
    """Column blocks of tables, before they have ranks. All arrays are [n].

    A block is a set of columns of one table, held by one rank, or cut by rows over the ranks of one node or of the
    world (each of k ranks holds ceil(rows/k) rows, in order; tail ranks may hold fewer or none), or replicated
    (data_parallel).
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

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def distinct(self) -> tuple["Blocks", Ints]:
        """The blocks without repetitions, and [n] which of them each one is."""
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
        key = np.zeros(len(self), dtype=np.int64)
        for digit, base in digits:
            key = key * base + digit
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return self.take(first), which

    def take(self, index: Ints) -> "Blocks":
        """The blocks at these positions."""
        return Blocks(
            self.table[index],
            self.sharding[index],
            self.tier[index],
            self.columns[index],
            self.cache_fraction[index],
            None if self.dtype is None else self.dtype[index],
            None if self.state is None else self.state[index],
        )


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
