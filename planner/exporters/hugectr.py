"""A plan as HugeCTR's embedding collection takes it: `shard_matrix` and `shard_strategy`."""

from typing import Any

import numpy as np

from cost_models.shards import EXTENTS, ROWS_OF_NODE, SHARDING_ROWS, Ints, sites_with_parts
from planner.document.plan import Plan
from planner.document.replicas import expect_one_world
from planner.exporters.compressor_notes import compressor_notes
from planner.exporters.formats import Exported, ExportRequest, Names
from planner.exporters.refusals import Placed, refuse
from planner.exporters.torchrec_dense import expect_replicated


def export(request: ExportRequest) -> Exported:
    """Return the arguments of `EmbeddingCollectionConfig.shard`; see `hugectr_sharding`."""
    document = hugectr_sharding(request.plan, names=request.names, source=request.source)
    return Exported(document, len(request.plan.tables), compressor_notes(request.plan))


def hugectr_sharding(plan: Plan, *, names: Names = "name", source: str = "plan") -> dict[str, Any]:
    """The arguments of `EmbeddingCollectionConfig.shard`: the tables of each GPU, and how each is held.

    Tables are called by their names or, as HugeCTR's samples do, by their numbers in the workload. A replicated table
    stands on every GPU. What the plan was made with is said beside them, for `planner import`; where several nodes are
    one scale-up domain also whose ranks sum by node (`sums_by_node`), as the matrix does not say. Raises InputError
    with every table that HugeCTR cannot execute, and why.
    """
    placed = Placed.of(plan, source)
    expect_one_world(plan.replicas, source, "HugeCTR trains one world; plan without --replicas")
    refuse(placed, "hugectr")
    expect_replicated(placed, "HugeCTR")
    called = [table.name if names == "name" else str(number) for number, table in enumerate(plan.tables)]
    matrix: list[list[str]] = [[] for _ in range(len(placed.model.host_of_rank))]
    strategy: dict[str, list[str]] = {"mp": [], "dp": []}
    for name, table in zip(called, plan.tables, strict=True):
        strategy["dp" if table.sharding == "data_parallel" else "mp"].append(name)
        for rank in np.unique(table.shards.rank).tolist():
            matrix[rank].append(name)
    origin = plan.provenance
    order: dict[str, Any] = _orders_of_parts(plan, placed.model.node_of_rank)
    if placed.model.topology.is_one_domain and placed.model.topology.node_count > 1:
        order["sums_by_node"] = [table.name for table in plan.tables if table.sharding in ROWS_OF_NODE]
    return {
        "kind": "hugectr_sharding",
        "planned_with": {
            "cost_model": origin.cost_model,
            "topology": origin.topology.fingerprint,
            "workload": origin.workload.fingerprint,
            **order,
        },
        "shard_matrix": matrix,
        "shard_strategy": [[way, names_of_way] for way, names_of_way in strategy.items() if names_of_way],
    }


def _orders_of_parts(plan: Plan, node_of_rank: Ints) -> dict[str, dict[str, list[int]]]:
    """In which order nodes, or ranks, hold the rows of each table that is on several, where they do not ascend: the
    matrix does not say."""
    orders: dict[str, dict[str, list[int]]] = {}
    for table in plan.tables:
        row = SHARDING_ROWS[table.sharding]
        sites = sites_with_parts(table.sharding, table.shards.rank, node_of_rank)
        if row.cuts_into_sites and sites != sorted(sites):
            orders.setdefault(f"order_of_{EXTENTS[row.extent].sites}", {})[table.name] = sites
    return orders
