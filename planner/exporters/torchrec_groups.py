"""Groups of ranks as TorchRec's DMPCollection takes them: its arguments, and those of its `submodule_configs`.

In TorchRec types of modules have copies: a DMPCollectionConfig is for all modules of one type, with the plan of one of
its own groups. What none is for is in the groups of DMPCollection itself (`_shard_modules_impl`, TorchRec 1.8.0).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_models.model import CostModel
from cost_models.replicas import Replicas
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_topology
from planner.document.shards import Shards
from topologies.errors import InputError
from topologies.replica_groups import ranks_in_group

MODULES = {True: "EmbeddingBagCollection", False: "EmbeddingCollection"}
"""The type of the modules whose tables are pooled, or are not."""
Parameters = dict[str, dict[str, dict[str, Any]]]
"""What is said of each parameter, by the path of its module and its name."""


def dmp_collection(plan: Plan) -> dict[str, Any] | None:
    """Arguments of DMPCollection that give the plan's groups of ranks, beside the plan of one group, which it deals out
    to all of them; None for one world.

    `sharding_strategy` is the name of a ShardingStrategy: one copy of all tables (`factor: 1` with rules) has no other
    that it could be cut over. `sync_every` and `state_every` are no arguments of it: they
    say after how many steps a trainer calls `sync()`, and when with the optimizer state (null: never).
    """
    groups = plan.replicas
    if groups is None or groups.chosen is None:
        return None
    intra, topology = groups.layout == "intra", planned_topology(plan)
    on_host = min(group.accelerators.count for group in topology.nodes)
    return {
        "world_size": topology.world_size,
        "sharding_group_size": groups.group_ranks,
        "node_group_size": on_host // groups.factor if intra else on_host,
        "use_inter_host_allreduce": not intra,
        "sharding_strategy": _strategy(groups.chosen) if groups.factor > 1 else "DEFAULT",
        "sync_every": groups.sync_every if groups.strategy == "default" else groups.state_every,
        "state_every": groups.state_every,
    }


def _strategy(replicas: Replicas) -> str:
    """The name of the ShardingStrategy of tables with several copies."""
    return "FULLY_SHARDED" if replicas.is_fully_sharded else "DEFAULT"


def copied_modules(model: CostModel, source: str) -> dict[str, int]:
    """The types of modules whose tables have more copies than a model's groups, and how many ranks share their
    shards. Raises InputError for a type of which some tables have others."""
    pooled = np.array([table.pooled for table in model.workload.tables], dtype=bool)
    copies_of: dict[str, int] = {}
    for is_pooled, module in MODULES.items():
        copies = np.unique(model.copies[pooled == is_pooled]).tolist()
        if len(copies) > 1:
            message = (
                f"some tables of an {module} have more copies than others, and TorchRec's submodule_configs give all"
                " modules of a type the same; plan with --runtime torchrec"
            )
            raise InputError.at(source, message, path="replicas.rules")
        if copies and copies[0] > 1:
            copies_of[module] = copies[0]
    return copies_of


def submodule_configs(
    model: CostModel, copies_of: Mapping[str, int], plans: Mapping[str | None, Parameters], source: str
) -> list[dict[str, Any]]:
    """Arguments of a DMPCollectionConfig for each type of module that has copies of its own, with the plan of one of
    its groups; `plans` are those of all types, None of the others. Raises InputError for a module of two types."""
    seen: dict[str, str | None] = {}
    for module, parameters in plans.items():
        for path in parameters:
            if seen.setdefault(path, module) != module:
                message = (
                    f"tables with different numbers of copies are in module {path!r}; say where each is (--module)"
                )
                raise InputError.at(source, message, path="replicas.rules")
    strategy = "DEFAULT" if model.replicas is None else _strategy(model.replicas)
    return [
        {
            "module": module,
            "sharding_group_size": model.topology.world_size // copies,
            "use_inter_host_allreduce": model.copies_apart,
            "sharding_strategy": strategy,
            "plan": plans[module],
        }
        for module, copies in copies_of.items()
    ]


def with_one_copy(table: TablePlan, copies: int, model: CostModel) -> TablePlan:
    """A table of which so many ranks have `copies`, on those that have one of them, numbered without the others."""
    if copies == 1 or model.replicas is None:
        return table
    shards = table.shards.as_matrix()
    shards[:, 0] = ranks_in_group(shards[:, 0], model.topology.world_size, copies, model.replicas.layout)
    kept = shards[shards[:, 0] >= 0]
    return table.model_copy(update={"shards": Shards.from_matrix(kept)})
