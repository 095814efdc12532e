"""Greedy sharding over HBM and host memory, as RecShard's paper describes what it compares itself with.

Tables in descending order of a cost go to the accelerator with the least cost so far, into its HBM; once no HBM has
room for a table, it is read in place from the host (UVM). The costs: bytes; dimension x pooling factor; that x log10
of the rows. A fourth way puts every table behind a cache of one ratio, the same for all.
"""

from collections.abc import Callable

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    DDR,
    DDR_CACHED,
    HBM,
    MEMORY_DDR,
    MEMORY_HBM,
    TABLE_WISE,
    Blocks,
    Floats,
    Ints,
    PlacedShards,
)

SPARE = 1.5
"""Room kept on each rank, in even parts of all ids and outputs in flight."""


def whole_tables(model: CostModel, tier: Ints, fraction: Floats) -> Blocks:
    """Every table whole on one rank, in a tier [T] with a cache of a share [T] of its rows."""
    every = np.arange(len(model.tables.rows))
    return Blocks(every, np.full_like(every, TABLE_WISE), tier, model.tables.dim, fraction)


def on_ranks(model: CostModel, tier: Ints, fraction: Floats, rank: Ints) -> PlacedShards:
    """A placement of whole tables."""
    blocks = whole_tables(model, tier, fraction)
    return PlacedShards(blocks, rank, model.tables.rows, np.ones(len(rank), dtype=bool))


def table_bytes(model: CostModel, tier: int, fraction: float = 0.0) -> Floats:
    """[T, M] bytes of whole tables in a tier."""
    tables = len(model.tables.rows)
    memory = model.block_memory(whole_tables(model, np.full(tables, tier), np.full(tables, fraction)), 0)
    return np.asarray(memory.fixed + memory.by_rows)


def in_flight_bytes(model: CostModel) -> Floats:
    """[T] of HBM that ids and outputs take wherever the rows are."""
    return np.asarray(table_bytes(model, DDR)[:, MEMORY_HBM])


def by_bytes(model: CostModel) -> Floats:
    """[T]"""
    return np.asarray(table_bytes(model, HBM)[:, MEMORY_HBM])


def by_lookups(model: CostModel) -> Floats:
    """[T] dimension x pooling factor."""
    return np.asarray(model.tables.dim * np.array([table.pooling_factor for table in model.workload.tables]))


def by_both(model: CostModel) -> Floats:
    """[T] that x log10 of the rows."""
    return np.asarray(by_lookups(model) * np.log10(model.tables.rows))


GREEDY: dict[str, Callable[[CostModel], Floats]] = {"size": by_bytes, "lookup": by_lookups, "size x lookup": by_both}


def greedy(model: CostModel, cost: Floats) -> PlacedShards | None:
    """The tables that fit in HBM, the others in place; None where the host has no room either."""
    above, below = table_bytes(model, HBM), table_bytes(model, DDR)
    world = len(model.kind_of_rank)
    free = model.memory_capacity[MEMORY_HBM] - model.base_bytes[MEMORY_HBM]
    free = free - SPARE * in_flight_bytes(model).sum() / world
    host = model.memory_capacity[MEMORY_DDR].copy()
    load, rank, tier = np.zeros(world), np.zeros(len(cost), dtype=np.int64), np.full(len(cost), HBM)
    for t in np.argsort(-cost, kind="stable").tolist():
        fits = free >= above[t, MEMORY_HBM]
        if not fits.any():
            fits, tier[t] = host[model.node_of_rank] >= below[t, MEMORY_DDR], DDR
            if not fits.any():
                return None
        rank[t] = np.where(fits, load, np.inf).argmin()
        load[rank[t]] += cost[t]
        if tier[t] == HBM:
            free[rank[t]] -= above[t, MEMORY_HBM]
        else:
            host[model.node_of_rank[rank[t]]] -= below[t, MEMORY_DDR]
    return on_ranks(model, tier, np.zeros(len(cost)), rank)


def one_ratio(model: CostModel, ratio: float) -> PlacedShards | None:
    """Every table behind a cache of the ratio, dealt out by lookups; in place where no HBM has room for its cache.

    None where the host has no room.
    """
    size, cost, tables = table_bytes(model, DDR_CACHED, ratio), by_lookups(model), len(model.tables.rows)
    flight, world = in_flight_bytes(model), len(model.kind_of_rank)
    free = model.memory_capacity[MEMORY_HBM] - model.base_bytes[MEMORY_HBM] - SPARE * flight.sum() / world
    host = model.memory_capacity[MEMORY_DDR].copy()
    load, rank, tier = np.zeros(world), np.zeros(tables, dtype=np.int64), np.full(tables, DDR_CACHED)
    for t in np.argsort(-cost, kind="stable").tolist():
        has_host = host[model.node_of_rank] >= size[t, MEMORY_DDR]
        cache = size[t, MEMORY_HBM] - flight[t]
        fits = (free >= cache) & has_host
        if not fits.any():
            fits, tier[t], cache = has_host, DDR, 0.0
            if not fits.any():
                return None
        rank[t] = np.where(fits, load, np.inf).argmin()
        load[rank[t]] += cost[t]
        free[rank[t]] -= cache
        host[model.node_of_rank[rank[t]]] -= size[t, MEMORY_DDR]
    return on_ranks(model, tier, np.where(tier == DDR_CACHED, ratio, 0.0), rank)
