"""Who takes which bytes where: of a plan, or of a workload as a whole against a cluster."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost_models.memory import block_bytes
from cost_models.model import CostModel
from cost_models.shards import (
    HBM,
    MEMORY_HBM,
    MEMORY_TIERS,
    SHARED_BY,
    TABLE_WISE,
    Blocks,
    Floats,
    MemoryTier,
    PlacedShards,
)
from cost_models.stages import VectorExchange
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.formulation.allowed_choices import planning_model
from planner.formulation.checkpoint_choices import checkpoint_candidates, with_settled_checkpointing
from planner.formulation.dense_choices import with_settled_sharding
from planner.formulation.policy import Policy
from planner.reports.tables import TextGrid
from topologies.cluster import NodeGroup, Topology
from topologies.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, str | int | float | None]
ALLOCATOR = "allocator, beyond the total"

PARTS = {
    "weights": "weights",
    "optimizer": "optimizer state",
    "gradients": "gradients of replicated tables",
    "cache": "cache and its index",
    "ids": "ids, as received",
    "outputs": "looked-up vectors and gradients",
    "remap": "map of split tables",
}
OPTIONAL = ("gradients", "remap")
"""Parts that are shown where there are any."""
DENSE_PARTS = {
    "loaded": "ids, as loaded",
    "parameters": "dense parameters, gradients, state",
    "gathered": "dense units, as they are gathered",
    "activations": "dense activations",
    "embeddings": "received embeddings",
}


def of_plan(plan: Plan) -> list[Record]:
    """The bytes of a plan, summed over the cluster: a record for each part, then totals and capacities."""
    model = planned_model(plan)
    return _records(model, _whole_tables(model) if plan.objective is None else placed_shards(plan))


def of_inputs(topology: Topology, workload: Workload, policy: Policy | None = None) -> list[Record]:
    """The same for every table held once, whole, in HBM: what the workload needs before anything is split or moved.
    Where a policy leaves checkpointing open, without it, then the HBM that it frees."""
    exchange: VectorExchange = "sptt" if workload.tower_modules else "flat"  # takes the same bytes
    allowed = policy or Policy()
    held = with_settled_checkpointing(with_settled_sharding(workload, allowed.dense), allowed.checkpointing)
    kept, *again = (
        planning_model(StepModel.name, topology, each, allowed, exchange)
        for each in checkpoint_candidates(allowed.checkpointing, held)
    )
    records = _records(kept, _whole_tables(kept))
    for model in again:
        freed = (kept.base_bytes - model.base_bytes) * topology.world_size
        records.append(_record("checkpointing full frees", np.maximum(freed, 0.0), model.memories))
    return records


def of_rank(model: CostModel, placed: PlacedShards, rank: int, rank_bytes: Floats) -> list[Record]:
    """The bytes of one rank in the same parts, then what others have of the memories that it shares with them, what is
    free of these for all who do, reserve and capacity; of every rank [W, M] bytes."""
    shards = np.flatnonzero(placed.rank == rank)
    own = PlacedShards(placed.blocks.take(shards), placed.rank[shards], placed.rows[shards], placed.opens_block[shards])
    parts = _parts_of_shards(model, own, ranks=1)
    total = np.sum(list(parts.values()), axis=0)
    overhead = _allocator_bytes(model, parts) if isinstance(model, StepModel) else {}
    group = model.topology.nodes[int(model.kind_of_rank[rank])]
    everything, usable, capacity = np.zeros_like(total), np.zeros_like(total), np.zeros_like(total)
    for m, (pool, of_pool) in enumerate(zip(model.memory_pool_of_rank, model.memory_capacity, strict=True)):
        everything[m] = rank_bytes[pool == pool[rank], m].sum()
        usable[m] = of_pool[pool[rank]]
        sharing = {"rank": np.arange(len(pool)), "node": model.host_of_rank, "group": model.kind_of_rank}
        owner = sharing[SHARED_BY[model.memories[m]]]
        pools = len(np.unique(pool[owner == owner[rank]]))
        capacity[m] = group.memory_bytes(model.memories[m]) / pools
    parts |= {"total": total, "other ranks": everything - total, "free": usable - everything}
    parts |= {"reserve": capacity - usable, "capacity": capacity} | overhead
    return [_record(part, size, model.memories) for part, size in parts.items()]


def _whole_tables(model: CostModel) -> PlacedShards:
    """Every table as often as one group of ranks has copies of it."""
    table = np.repeat(np.arange(len(model.copies)), model.copies)
    zeros = np.zeros_like(table)
    blocks = Blocks(table, zeros + TABLE_WISE, zeros + HBM, model.tables.dim[table], np.zeros(len(table)))
    return PlacedShards(blocks, zeros, model.tables.rows[table], np.diff(table, prepend=-1) > 0)


def _records(model: CostModel, placed: PlacedShards) -> list[Record]:
    parts = _parts_of_shards(model, placed, model.topology.world_size)
    capacity = np.sum([group.count * _capacity(group, model.memories) for group in model.topology.nodes], axis=0)
    usable = np.array([of_pool.sum() for of_pool in model.memory_capacity])
    taken = np.sum(list(parts.values()), axis=0)
    overhead = _allocator_bytes(model, parts) if isinstance(model, StepModel) else {}
    copies = 1 if model.replicas is None else model.replicas.factor
    parts |= {"total": taken, "free": usable - taken, "reserve": capacity - usable, "capacity": capacity} | overhead
    return [_record(part, size * copies, model.memories) for part, size in parts.items()]


def _allocator_bytes(model: StepModel, parts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Bytes [M] of HBM that PyTorch's allocator is expected to reserve beyond what tensors take: it comes out of what
    is free or reserved. Ids once more, which streams of their own copy and exchange: what a stream gave back, others
    use only when it is through with it."""
    share = model.coefficients.software.allocator_overhead
    if share is None or model.workload.mode == "inference":
        return {}
    ids = parts[DENSE_PARTS["loaded"]] + parts[PARTS["ids"]]
    more = np.sum(list(parts.values()), axis=0) * share.value + ids
    return {ALLOCATOR: np.where(np.arange(len(more)) == MEMORY_HBM, more, 0.0)}


def _parts_of_shards(model: CostModel, placed: PlacedShards, ranks: int) -> dict[str, Floats]:
    """Bytes [M] of the shards of so many ranks, and of their dense part; another planner does not say what for."""
    if isinstance(model, StepModel):
        return _physical_parts(model, placed, ranks)
    tables = model.shard_bytes(placed).sum(axis=0)
    return {f"tables, as {model.name} counts": tables, "dense part": model.base_bytes * ranks}


def _physical_parts(model: StepModel, placed: PlacedShards, ranks: int) -> dict[str, Floats]:
    """Bytes [M] by what they are for."""
    blocks, which = placed.blocks.distinct
    shards = np.bincount(which, minlength=len(blocks)).astype(float)
    rows = np.bincount(which, weights=placed.rows / model.tables.rows[placed.blocks.table], minlength=len(blocks))
    parts: dict[str, Floats] = {words: np.zeros(len(model.memories)) for words in PARTS.values()}
    for copies, own in model.models_by_copies:
        here = np.flatnonzero(model.copies[blocks.table] == copies)
        for tables, index, part in model.parts_of(blocks.take(here)):
            there = here[index]
            for (tier, component), load in block_bytes(tables, part, own.batching).items():
                if MEMORY_TIERS[tier] in model.memories:
                    size = (load.fixed * shards[there]).sum() + (load.by_rows * rows[there]).sum()
                    parts[PARTS[component]][model.memories.index(MEMORY_TIERS[tier])] += size
    cut = (model.cut_copy_bytes(blocks) * rows).sum()
    if cut:
        parts["copies, as they are cut"] = np.where(np.arange(len(model.memories)) == MEMORY_HBM, cut, 0.0)
    if (back := _returning(model, placed)) > 0:
        parts["stashed tables, once they are back"] = np.where(np.arange(len(model.memories)) == MEMORY_HBM, back, 0.0)
    for name in OPTIONAL:
        if not parts[PARTS[name]].any():
            del parts[PARTS[name]]
    for name, size in model.peak.rank_bytes.items():
        size += model.projection_bytes if name == "parameters" else 0.0
        parts[DENSE_PARTS[name]] = np.where(np.arange(len(model.memories)) == MEMORY_HBM, size * ranks, 0.0)
    return parts


def _returning(model: StepModel, placed: PlacedShards) -> float:
    """Bytes of HBM, of all ranks with shards, by which the moment when everything that was stashed is back takes more
    than the peak without it."""
    if not model.stashes:
        return 0.0
    out = model.base_bytes[MEMORY_HBM] + np.bincount(
        placed.rank, weights=model.shard_bytes(placed)[:, MEMORY_HBM], minlength=len(model.kind_of_rank)
    )
    more = np.maximum(model.returned_bytes(placed) - out, 0.0)
    return float(more[np.unique(placed.rank)].sum())


def _capacity(group: NodeGroup, memories: Sequence[MemoryTier]) -> Floats:
    """[M] bytes of one node, before the reserve; of what the nodes of a group share, its part."""
    pools = {"rank": group.accelerators.count, "node": 1, "group": 1 / group.count}
    return np.array([group.memory_bytes(tier) * pools[SHARED_BY[tier]] for tier in memories])


def _record(part: str, size: Floats, memories: Sequence[MemoryTier]) -> Record:
    return {"part": part, **{f"{tier}_bytes": round(float(size[m])) for m, tier in enumerate(memories)}}


def render(records: Sequence[Record], console: "Console", of: str = "whole cluster") -> None:
    """Print the records as a table of the whole cluster, or of what else they are `of`, GiB and TiB."""
    tiers = [tier for tier in MEMORY_TIERS if f"{tier}_bytes" in records[0]]
    table = TextGrid((of, "left"), *((tier, "right") for tier in tiers), gutter=3)
    for record in records:
        sizes = [record[f"{tier}_bytes"] for tier in tiers]
        table.add_row(str(record["part"]), *(format_bytes(float(size or 0)) if size else "" for size in sizes))
    console.print(table)
