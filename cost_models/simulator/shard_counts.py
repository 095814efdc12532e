"""The shards of a placement and what an average step asks of each: ids, distinct rows, misses, vectors."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.shards import (
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    HBM,
    HOME,
    IS_CACHED,
    IS_IN_PLACE,
    IS_MIXED,
    IS_SPLIT,
    IS_STASHED,
    KEEPS_STATE_BELOW,
    RANK,
    Floats,
    Ints,
    PlacedShards,
    state_memory,
)
from cost_models.tables import Tables

Flags = NDArray[np.bool_]
HALVINGS = 60
"""Of the ids of a batch, to find those that read as many rows as a cache holds."""


class ShardCounts:
    """n shards of a placement on W ranks: replicated tables stand for one shard each, which every rank holds.

    Attributes:
        blocks: the column blocks that the shards are parts of; n of them.
        table: [n] index of the table.
        rank: [n] that holds the shard; without meaning for replicated ones.
        rows: [n] of the shard.
        share: [n] of the table's rows that the shard has.
        replicated: [n] whether every rank holds it.
        opens: [n] whether it is the first shard of its block.
        extent: [n] index into `EXTENTS`: whose ranks hold the block.
        batch_ids: [n] ids of the batch, or of a rank's own samples where the table is replicated.
        lookups: [n] rows that an average step reads, for each 1 of `share`: of a whole table, all of them.
        unique: [n] distinct rows among these, likewise.
        cold: [n] those of them that are read in host memory.
        precise: [n] whether rows are held at full precision in a cache.
        cached: [n] whether rows come from a cache.
        home, state_home: [n] memory of the rows and of their optimizer state, index into MEMORY_TIERS.
        state_apart: [n] whether the state is updated in another memory than the rows.
        hot: [n] share of the lookups whose rows are not read in host memory.
        missed: [n] distinct rows that come into the table's cache, which lacks them, likewise.
        vectors: [n] that leave the lookup.
    """

    def __init__(
        self, tables: Tables, placed: PlacedShards, world: int, global_samples: float, *, is_prefetched: bool = False
    ) -> None:
        self.tables, self.world, self.samples, self.is_prefetched = tables, world, global_samples, is_prefetched
        replicated = placed.blocks.sharding == DATA_PARALLEL
        kept: Flags = ~replicated | placed.opens_block
        self.blocks = placed.blocks.take(np.flatnonzero(kept))
        self.table = self.blocks.table
        self.rank: Ints = placed.rank[kept]
        self.rows: Floats = placed.rows[kept].astype(np.float64)
        self.share: Floats = self.rows / tables.rows[self.table]
        self.replicated: Flags = replicated[kept]
        self.opens: Flags = placed.opens_block[kept]
        self.extent: Ints = EXTENT_OF_SHARDING[self.blocks.sharding]
        samples = np.where(self.replicated, self.own_samples, global_samples)
        self.vectors: Floats = samples * tables.outputs_per_sample[self.table]
        tier = self.blocks.tier
        stated = tables.precision_cache[self.table] > 0
        self.precise: Flags = stated | IS_MIXED[tier] | (IS_CACHED[tier] & tables.needs_cache(self.blocks))
        self.cached: Flags = IS_CACHED[tier] | IS_MIXED[tier] | (((tier == HBM) | IS_STASHED[tier]) & stated)
        self.home: Ints = HOME[tier]
        self.state_home: Ints = state_memory(self.blocks)
        self.state_apart: Flags = KEEPS_STATE_BELOW[tier] | (self.state_home != self.home)
        self.batch_ids: Floats = samples * tables.lookups_per_sample[self.table]
        self.lookups: Floats = self.batch_ids
        self.unique: Floats = np.zeros(len(self))
        self.missed: Floats = np.zeros(len(self))
        self.hot: Floats = np.where(IS_IN_PLACE[tier], 0.0, 1.0)
        self.cold: Floats = np.zeros(len(self))
        self._from_memory: dict[bytes, Floats] = {}
        self._read_rows()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def own_samples(self) -> float:
        """Samples of one rank."""
        return self.samples / self.world

    def _read_rows(self) -> None:
        """Set what depends on the rows that the ids of a batch read: here, its expectation by the access curves."""
        access, split = self.tables.access, IS_SPLIT[self.blocks.tier]
        self.unique = self._unique_rows()
        self.missed = self._missed_rows()
        of_split = self.table[split], self.blocks.cache_fraction[split]
        self.hot[split] = access.hit_rate(*of_split)
        self.cold = np.where(IS_IN_PLACE[self.blocks.tier], self.unique, 0.0)
        self.cold[split] = access.rows_beyond(*of_split, self.lookups[split])
        if (locked := KEEPS_STATE_BELOW[self.blocks.tier]).any():
            table, fraction, ids = self.table[locked], self.held_share[locked], self.lookups[locked]
            self._leave_out(locked, *access.without_place(table, fraction, ids, is_prefetched=self.is_prefetched))

    def _leave_out(self, which: NDArray[np.bool_] | Ints, rows: Floats, reads: Floats) -> None:
        """Let so many missed rows of these shards be read in place: those that find no place in their cache."""
        self.missed[which] -= rows
        self.cold[which] = rows
        self.hot[which] = 1 - reads / np.maximum(self.lookups[which], 1e-300)

    def read_again(self, hottest: float) -> Floats:
        """[n] ids that read so many of the hottest rows in host memory when another one has read them, likewise."""
        all_rows, access = self.tables.rows[self.table], self.tables.access
        first = np.where(IS_SPLIT[self.blocks.tier], self.blocks.cache_fraction, 0.0) * all_rows
        last = np.minimum(first + hottest, all_rows)
        shares = (access.hit_rate(self.table, rows / all_rows) for rows in (last, first))
        up_to_last, before = (self.lookups * share for share in shares)
        return np.asarray(np.maximum(up_to_last - before - (last - first), 0.0))

    def read_from_memory(self, held: Floats) -> Floats:
        """[n] ids whose row is not among the so many (`held` [n], of the table) that were read last, likewise."""
        key = held.tobytes()
        if key not in self._from_memory:
            self._from_memory[key] = self._reads_beyond(held)
        return self._from_memory[key]

    def _reads_beyond(self, held: Floats) -> Floats:
        """By how fast the ids that have read as many rows read further ones; found by halving."""
        cases, which = np.unique(np.stack([self.table, held, self.lookups], axis=1), axis=0, return_inverse=True)
        table, rows, ids, unique = (
            cases[:, 0].astype(np.int64),
            cases[:, 1],
            cases[:, 2],
            self.tables.access.unique_rows,
        )
        low, high = np.zeros(len(cases)), ids.copy()
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            too_few = unique(table, middle) <= rows
            low, high = np.where(too_few, middle, low), np.where(too_few, high, middle)
        first, last = unique(table, low), unique(table, ids)
        beyond = first + (ids - low) * (unique(table, low + 1) - first)
        return np.asarray(np.where(last <= rows, last, np.clip(beyond, last, ids))[which.reshape(-1)])

    def row_bytes(self) -> Floats:
        """[n] bytes of a row's columns as they are stored."""
        return self.tables.row_bytes(self.table, self.blocks.columns, self.blocks.dtype).astype(np.float64)

    def cached_row_bytes(self) -> Floats:
        """[n] the same of a row in a cache."""
        return self.tables.cached_row_bytes(self.blocks).astype(np.float64)

    def _unique_rows(self) -> Floats:
        distinct, which = self.blocks.distinct
        asked = (
            np.where(distinct.sharding == DATA_PARALLEL, self.own_samples, self.samples)
            * self.tables.lookups_per_sample[distinct.table]
        )
        return np.asarray(self.tables.access.unique_rows(distinct.table, asked)[which])

    def _missed_rows(self) -> Floats:
        blocks, cached = self.blocks, self.cached
        missed = np.zeros(len(blocks))
        if cached.any():
            access, fraction = self.tables.access, self.held_share
            missed[cached] = access.missed_rows(blocks.table[cached], fraction[cached], self.lookups[cached])
        return missed

    @property
    def held_share(self) -> Floats:
        """[n] of the table's rows that its cache holds."""
        blocks = self.blocks
        beside = (blocks.tier == HBM) | IS_STASHED[blocks.tier]
        return np.where(beside, self.tables.precision_cache[blocks.table], blocks.cache_fraction)

    @cached_property
    def whole_elements(self) -> Floats:
        """[n] elements of whole vectors that leave for other ranks."""
        alone = ~self.replicated & (self.extent == RANK)
        return np.where(alone, self.vectors * self.blocks.columns, 0.0)
