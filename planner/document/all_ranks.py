"""Plans for groups of ranks on all ranks of their clusters, where they compare with plans for others."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from cost_models.shards import DATA_PARALLEL, SHARDINGS, Ints
from planner.document.plan import Plan
from planner.document.planned import planned_replicas, planned_topology
from planner.document.shards import Shards
from topologies.replica_groups import ranks_of_groups


def on_all_ranks(plan: Plan) -> Plan:
    """A plan with what every rank of every group holds, as one world has it."""
    replicas = planned_replicas(plan)
    if replicas is None:
        return plan
    groups = ranks_of_groups(planned_topology(plan).world_size, replicas.factor, replicas.layout)
    tables = tuple(table.model_copy(update={"shards": _in_each(table.shards, groups)}) for table in plan.tables)
    return plan.model_copy(update={"tables": tables, "replicas": None})


def copies_of_tables(plan: Plan) -> dict[str, int]:
    """How many copies each table has that is not on every rank whole."""
    replicas, names = planned_replicas(plan), [table.name for table in plan.tables]
    copies = [1] * len(names) if replicas is None else replicas.factors(names).tolist()
    is_replicated = [table.sharding == SHARDINGS[DATA_PARALLEL] for table in plan.tables]
    return {name: 1 if all_have else count for name, count, all_have in zip(names, copies, is_replicated, strict=True)}


def _in_each(shards: Shards, groups: Ints) -> Shards:
    """The shards of one of the groups [M, N] in each, in the order of their columns, then ranks."""
    which, rank = np.tile(np.arange(len(shards)), len(groups)), groups[:, shards.rank].ravel()
    order = np.lexsort((rank, shards.column_start[which]))
    values = {each.name: getattr(shards, each.name) for each in fields(Shards)}
    taken: dict[str, Any] = {name: None if value is None else value[which[order]] for name, value in values.items()}
    return replace(Shards(**taken), rank=rank[order])
