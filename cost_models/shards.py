"""The words for shards, and shards as arrays: the common currency of estimator, solver, verifier and simulator."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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

PlacementTier = Literal["hbm", "ddr_cached", "ddr", "ssd_cached", "ddr_split"]
PLACEMENT_TIERS: tuple[PlacementTier, ...] = ("hbm", "ddr_cached", "ddr", "ssd_cached", "ddr_split")
"""Where a table lives: in HBM; in DDR or SSD behind a row cache in HBM; in DDR, read in place (UVM); the rows that are
read most in HBM and the others in DDR, read in place (Sethi et al., RecShard, ASPLOS 2022)."""
HBM, DDR_CACHED, DDR, SSD_CACHED, DDR_SPLIT = range(5)
PARTLY_IN_HBM: frozenset[PlacementTier] = frozenset({"ddr_cached", "ssd_cached", "ddr_split"})
"""Tiers of which a share of the rows is in HBM too, or instead."""

MEMORY_TIERS: tuple[Literal["hbm", "ddr", "ssd"], ...] = ("hbm", "ddr", "ssd")
"""The memories whose bytes are counted: HBM per rank, DDR and SSD per node."""
HOME_OF_TIER: dict[PlacementTier, Literal["hbm", "ddr", "ssd"]] = {
    "hbm": "hbm",
    "ddr_cached": "ddr",
    "ddr": "ddr",
    "ssd_cached": "ssd",
    "ddr_split": "ddr",
}
"""The memory that holds what HBM does not."""
MEMORY_HBM, MEMORY_DDR, MEMORY_SSD = range(3)

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
