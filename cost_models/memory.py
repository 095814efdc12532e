"""Who takes which bytes where: weights, optimizer state, cache, ids and outputs in flight."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost_models.loads import BlockLoad
from cost_models.shards import (
    DATA_PARALLEL,
    HBM,
    HOME,
    IS_CACHED,
    IS_IN_PLACE,
    IS_MIXED,
    IS_SPLIT,
    IS_STASHED,
    MEMORY_DDR,
    MEMORY_HBM,
    MEMORY_TIERS,
    STASHES_STATE,
    STASHES_WEIGHTS,
    Blocks,
    Floats,
    Ints,
    MemoryTier,
    state_memory,
)
from cost_models.tables import Tables

Component = Literal["weights", "optimizer", "gradients", "cache", "ids", "outputs", "remap"]

CACHE_INDEX_BYTES_PER_ROW = 4
"""Bytes of the index for every row of a cached table (FBGEMM's hash lookup; TorchRec 1.8 storage model)."""
CACHE_INDEX_BYTES_PER_SLOT = 16
"""Bytes of the index for every row that the cache can hold (tags and LRU stamps; TorchRec 1.8 storage model)."""
PREFETCH_SCRATCH = 7
"""Times the ids of a cached table are in HBM more while its misses are prefetched: sorted, made distinct, with their
places in the cache (TorchRec 1.8 storage model, from snapshots of the memory)."""


@dataclass(frozen=True)
class Batching:
    """Samples per step, and what of the batches is in HBM when a step takes the most of it."""

    global_samples: float
    samples_per_rank: float
    batches_in_flight: int
    """Batches whose ids are there as the holders of the rows receive them."""
    output_copies: float = 2.0
    """Times the vectors that leave a shard's lookup are there, or their gradients."""
    is_prefetched: bool = False
    """Whether the next batch's misses are fetched meanwhile."""


def cached_rows(rows: Ints, cache_fraction: Floats) -> Floats:
    """Rows that a cache holds: the fraction, rounded up to whole rows."""
    return np.asarray(np.ceil(rows * cache_fraction))


def remap_row_bytes(rows: Ints) -> Ints:
    """Bytes of every row of a split table: where it is now, int32 or int64 (RecShard remaps ids on the host)."""
    return np.where(rows <= np.iinfo(np.int32).max, 4, 8)


def is_cached_beside(tables: Tables, blocks: Blocks) -> NDArray[np.bool_]:
    """[n] whether a block in HBM has a cache of full precision beside it."""
    stated = ((blocks.tier == HBM) | IS_STASHED[blocks.tier]) & (tables.precision_cache[blocks.table] > 0)
    return np.asarray(stated | IS_MIXED[blocks.tier])


def cached_share(tables: Tables, blocks: Blocks) -> Floats:
    """[n] share of the rows that a cache in HBM holds: the option's, or the one that is stated of a table in HBM."""
    stated = is_cached_beside(tables, blocks) & ~IS_MIXED[blocks.tier]
    return np.where(stated, tables.precision_cache[blocks.table], blocks.cache_fraction)


def has_way_to_update(tables: Tables, blocks: Blocks) -> NDArray[np.bool_]:
    """[n] False where a table needs its cache of full precision and has none (read in place, or replicated), and where
    replicas, which are updated as a whole, have their optimizer state elsewhere."""
    replicated, stated = blocks.sharding == DATA_PARALLEL, tables.precision_cache[blocks.table] > 0
    without_cache = IS_IN_PLACE[blocks.tier] | IS_SPLIT[blocks.tier] | replicated
    lacks_cache = (stated | IS_MIXED[blocks.tier]) & without_cache
    lacks_cache |= tables.needs_cache(blocks) & ~(is_cached_beside(tables, blocks) | IS_CACHED[blocks.tier])
    return np.asarray(~(lacks_cache | (replicated & (state_memory(blocks) != HOME[blocks.tier]))))


def stashed_bytes(tables: Tables, blocks: Blocks) -> Floats:
    """[n] bytes of whole blocks that leave HBM between the passes: rows, their optimizer state, or both."""
    rows, tier = tables.rows[blocks.table].astype(float), blocks.tier
    weights = rows * tables.row_bytes(blocks.table, blocks.columns, blocks.dtype)
    state = rows * tables.row_state_bytes(blocks.table, blocks.columns)
    return np.asarray(np.where(STASHES_WEIGHTS[tier], weights, 0.0) + np.where(STASHES_STATE[tier], state, 0.0))


def block_bytes(tables: Tables, blocks: Blocks, batching: Batching) -> dict[tuple[int, Component], BlockLoad]:
    """Bytes of each block by (memory tier, component), at the step's peak: what is stashed is in DDR then, where its
    pages are pinned for the whole step."""
    table = blocks.table
    rows = tables.rows[table].astype(float)
    weights = rows * tables.row_bytes(table, blocks.columns, blocks.dtype)
    state = rows * tables.row_state_bytes(table, blocks.columns)
    split, home, state_home = IS_SPLIT[blocks.tier], HOME[blocks.tier], state_memory(blocks)
    apart = state_home != home
    hot = np.where(split, cached_rows(tables.rows[table], blocks.cache_fraction) / rows, 0.0)
    out: dict[tuple[int, Component], BlockLoad] = {}
    for tier in range(len(MEMORY_TIERS)):
        share = np.where(home == tier, 1.0 - hot, hot if tier == MEMORY_HBM else 0.0)
        kept, away = ~STASHES_WEIGHTS[blocks.tier], STASHES_WEIGHTS[blocks.tier] & (tier == MEMORY_DDR)
        out[tier, "weights"] = BlockLoad(by_rows=(share * kept + away) * weights)
        of_state = np.where(apart, state_home == tier, share)
        of_state = np.where(STASHES_STATE[blocks.tier], tier == MEMORY_DDR, of_state)
        out[tier, "optimizer"] = BlockLoad(by_rows=of_state * state)
    remap = rows * remap_row_bytes(tables.rows[table])
    for memory in np.unique(HOME[IS_SPLIT]).tolist():
        out[memory, "remap"] = BlockLoad(by_rows=np.where(split & (home == memory), remap, 0.0))

    beside = is_cached_beside(tables, blocks)
    cached = IS_CACHED[blocks.tier] | beside
    slots = cached_rows(tables.rows[table], cached_share(tables, blocks))
    state_of_row = np.where(beside | apart, 0, tables.row_state_bytes(table, blocks.columns))
    row = tables.cached_row_bytes(blocks) + state_of_row
    cache = slots * (row + CACHE_INDEX_BYTES_PER_SLOT) + rows * CACHE_INDEX_BYTES_PER_ROW
    out[MEMORY_HBM, "cache"] = BlockLoad(by_rows=np.where(cached, cache, 0.0))

    replicated = blocks.sharding == DATA_PARALLEL
    dense_gradient = np.where(replicated & tables.training, weights, 0.0)
    out[MEMORY_HBM, "gradients"] = BlockLoad(by_rows=dense_gradient)
    samples = np.where(replicated, batching.samples_per_rank, batching.global_samples)
    times = batching.batches_in_flight + np.where(IS_CACHED[blocks.tier] & batching.is_prefetched, PREFETCH_SCRATCH, 0)
    ids = samples * tables.lookups_per_sample[table] * tables.id_bytes[table] * times
    out[MEMORY_HBM, "ids"] = BlockLoad(by_rows=ids)
    vectors = samples * tables.outputs_per_sample[table] * batching.output_copies
    out[MEMORY_HBM, "outputs"] = BlockLoad(fixed=vectors * blocks.columns * tables.written_bytes)
    return out


def is_supported(blocks: Blocks, memory_bytes: tuple[int, ...]) -> NDArray[np.bool_]:
    """[n] whether a rank with these memories has those that a block needs, its optimizer state included."""
    has = np.array(memory_bytes) > 0
    has[MEMORY_HBM] = True
    return np.asarray(has[HOME[blocks.tier]] & has[state_memory(blocks)] & (has[MEMORY_DDR] | ~IS_STASHED[blocks.tier]))


def pool_bytes(
    bytes_of_rank: Floats, memories: Sequence[MemoryTier], pool_of_rank: Sequence[Ints]
) -> tuple[Floats, ...]:
    """Per memory, the bytes of each pool, from those [W, memory tiers] of the pools that each rank draws on, whose
    numbers are `pool_of_rank` [W] of each memory."""
    firsts = (np.unique(pool, return_index=True)[1] for pool in pool_of_rank)
    return tuple(bytes_of_rank[first, MEMORY_TIERS.index(tier)] for tier, first in zip(memories, firsts, strict=True))
