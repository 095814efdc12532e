"""A plan as HugeCTR's embedding collection takes it: `shard_matrix` and `shard_strategy`."""

from typing import Any

import numpy as np

from cost_models.shards import SHARDING_ROWS, Ints
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
    stands on every GPU. What the plan was made with is said beside them, for `planner import`. Raises InputError with
    every table that HugeCTR cannot execute, and why.
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
    order = _orders_of_nodes(plan, placed.model.node_of_rank)
    return {
        "kind": "hugectr_sharding",
        "planned_with": {
            "cost_model": origin.cost_model,
            "topology": origin.topology.fingerprint,
            "workload": origin.workload.fingerprint,
            **({"order_of_nodes": order} if order else {}),
        },
        "shard_matrix": matrix,
        "shard_strategy": [[way, names_of_way] for way, names_of_way in strategy.items() if names_of_way],
    }


def _orders_of_nodes(plan: Plan, node_of_rank: Ints) -> dict[str, list[int]]:
    """In which order nodes hold the rows of each table that is on several, where they do not ascend: the matrix does
    not say."""
    orders = {}
    for table in plan.tables:
        nodes = list(dict.fromkeys(node_of_rank[table.shards.rank].tolist()))
        if SHARDING_ROWS[table.sharding].cuts_into_sites and nodes != sorted(nodes):
            orders[table.name] = nodes
    return orders
