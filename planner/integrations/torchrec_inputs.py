"""What a module, its sharders and TorchRec's constraints say, as a workload and a policy of ours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.shards import ROWS_OF_NODE, USUAL_SHARDINGS
from cost_models.workload.models import Workload
from planner.formulation.policy import Policy
from planner.integrations.torchrec_collections import (
    Collection,
    collections_of,
    mode_of,
    sharded_collections,
    shared_names,
)
from planner.integrations.torchrec_constraints import (
    faults_of_constraints,
    faults_of_names,
    fixed_share,
    has_own_batch,
    kernel_settings,
    narrowest,
)
from planner.integrations.torchrec_dense import DensePart
from planner.integrations.torchrec_exchanges import with_exchanges
from planner.integrations.torchrec_limits import Kernels
from planner.integrations.torchrec_optimizers import table_optimizer
from planner.integrations.torchrec_tables import table_profile
from topologies.cluster import Topology
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from torch import nn
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import ModuleSharder

ROWS_CUT = ("row_wise", *ROWS_OF_NODE)


@dataclass(frozen=True)
class ModuleReader:
    """Reads modules for one cluster, under one set of constraints."""

    topology: Topology
    compute_device: str
    constraints: "Mapping[str, ParameterConstraints]"
    batch_size: int
    """Samples of one rank."""
    workload: Workload | None = None
    """What a module does not say: its tables and batch are not looked at."""
    dense_bytes: int | None = None
    """Memory that the dense part takes on each rank, where somebody says so; unset: as the module has it."""

    def read(self, module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]] | None") -> tuple[Workload, Policy]:
        """The workload that a module's tables and its dense part are, and what its sharders and constraints leave of
        the options. Raises InputError with everything that cannot be planned or kept."""
        from torchrec.distributed.sharding_plan import get_default_sharders

        known = get_default_sharders() if sharders is None else sharders
        collections = sharded_collections(module, known)
        shared = shared_names(collections)
        known_names = {config.name for each in (*collections_of(module), *collections) for config in each.configs}
        faults = list(faults_of_names(self.constraints, sorted(known_names)))
        varying = self._varying(collections)
        tables, rules, hosts = [], [], dict[str, list[str]]()
        for collection in collections:
            for config in collection.configs:
                name = f"{collection.path}.{config.name}" if config.name in shared else config.name
                try:
                    table, rule = self._table(name, config, collection, collection.path in varying)
                except InputError as error:
                    faults += error.faults
                    continue
                tables.append(table)
                rules.append(rule)
                if collection.host is not None:
                    hosts.setdefault(collection.host, []).append(_literal(name))
        if faults:
            raise InputError(faults)
        told = with_exchanges(self._workload(tables, collections), collections, self.workload)
        workload = self._with_dense(told, module, collections)
        kept = {"reserve": {"hbm": f"{size}B"}} if (size := _reserved_bytes(workload)) else {}
        groups = [{"tables": names, "on": "node"} for names in hosts.values()]
        return workload, Policy.model_validate({"runtime": "torchrec", "tables": rules, "colocate": groups} | kept)

    def _varying(self, collections: Sequence[Collection]) -> set[str]:
        """Paths of collections of which some feature has a batch of its own (variable batch)."""
        return {
            collection.path
            for collection in collections
            for config in collection.configs
            if has_own_batch(self.constraints.get(config.name), self.batch_size)
        }

    def _table(
        self, name: str, config: Any, collection: Collection, varies: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A table's profile and the rule for it."""
        sharder, parameter = collection.sharder, collection.parameters.get(config.name)
        told, fused = self.constraints.get(config.name), dict(getattr(sharder, "fused_params", None) or {})
        if told is not None:
            faults = list(faults_of_constraints(config.name, told, config.feature_names, self.compute_device))
            if faults:
                raise InputError(faults)
        shardings = self._shardings(config, collection, sharder, told, varies)
        kernels = Kernels.left(config.name, shardings, sharder, told, fused, self.compute_device)
        rule: dict[str, Any] = {"match": [_literal(name)]} | kernels.rule()
        if told is not None and told.min_partition:
            rule["column_multiple"] = narrowest(told.min_partition, config.embedding_dim)
        if (share := fixed_share(config.name, told, fused)) is not None:
            rule["cache_fraction"] = share
        optimizer = table_optimizer(config.name, parameter, fused, self.workload)
        settings = kernel_settings(config.name, told, fused, kernels.hbm_kernel)
        profile = table_profile(name, config, collection, told, self.batch_size, self.compute_device)
        kernel = settings.model_dump(mode="json", exclude_defaults=True)
        return profile | {"optimizer": optimizer, "kernel": kernel}, rule

    def _workload(self, tables: Sequence[Mapping[str, Any]], collections: Sequence[Collection]) -> Workload:
        base = self.workload.model_dump(mode="json", exclude_defaults=True) if self.workload else {"name": "module"}
        if self.workload and not self.workload.names_software:
            base.pop("software", None)
        batch = {"global_batch": None, "batch_per_rank": self.batch_size}
        return _prefetched(
            Workload.model_validate(base | batch | mode_of(collections) | {"tables": tables}), self.workload
        )

    def _with_dense(self, workload: Workload, module: "nn.Module", collections: Sequence[Collection]) -> Workload:
        """The workload with the module's dense part, of which a workload's own layers say no more than the time."""
        part = DensePart.of(module, collections, self.workload)
        if self.dense_bytes is not None:
            told = {"macs_per_sample": part.macs, "parameters": 0, "extra_bytes": self.dense_bytes}
            return workload.model_copy(update={"dense": type(workload.dense).model_validate(told)})
        if self.workload is not None and "dense" in self.workload.model_fields_set:
            missing = part.missing_bytes(workload)
            dense = workload.dense.model_copy(update={"extra_bytes": workload.dense.extra_bytes + missing})
        else:
            dense = type(workload.dense).model_validate(part.totals())
        return workload.model_copy(update={"dense": dense})

    def _shardings(self, config: Any, collection: Collection, sharder: Any, told: Any, varies: bool) -> list[str]:
        """What the sharder, the table's rows and the constraints leave. Raises InputError for a table without any."""
        named = list(told.sharding_types or ()) if told is not None else []
        for word in named:
            if word not in USUAL_SHARDINGS:
                raise InputError.at(
                    config.name,
                    f"has constraints that leave no sharding: {word!r} is none{did_you_mean(word, USUAL_SHARDINGS)}",
                )
        offered = sharder.sharding_types(self.compute_device)
        shardings: list[str] = [sharding for sharding in USUAL_SHARDINGS if sharding in offered]
        if not shardings:
            what = f"its {type(sharder).__name__} has no sharding for {self.compute_device}"
            raise InputError.at(config.name, f"cannot be sharded: {what}")
        if collection.has_processor:  # as TorchRec's planner
            shardings = [sharding for sharding in shardings if sharding not in ROWS_CUT or sharding in named]
        if collection.is_managed:
            self._expect_buckets(config, collection)
        reasons = {sharding: self._reason_against(sharding, config, collection, varies) for sharding in shardings}
        left = [sharding for sharding in shardings if not reasons[sharding] and (not named or sharding in named)]
        if not left:
            against = [f"{way} {why}" for way, why in reasons.items() if why and (not named or way in named)]
            may = [sharding for sharding in shardings if not reasons[sharding]]
            words = "; ".join(against) or f"of {', '.join(named)} its {type(sharder).__name__} has none here"
            remedy = f"allow one of {', '.join(may)}" if may else "give it more rows, or another sharder"
            raise InputError.at(config.name, f"has constraints that leave no sharding: {words}; {remedy}")
        return left

    def _reason_against(self, sharding: str, config: Any, collection: Collection, varies: bool) -> str | None:
        """Why a sharding that the sharder has does not run; None where it does."""
        on_cpu = self.compute_device == "cpu"
        if (on_cpu or collection.is_managed) and self._leaves_ranks_empty(sharding, config):
            return f"leaves ranks without any of its {config.num_embeddings} rows, on which TorchRec crashes"
        if sharding in ROWS_OF_NODE and self._has_pods:
            return (
                "cuts rows over what the runtime takes for a node: a host, or a pod if TOPOLOGY_DOMAIN_MULTIPLE is set"
            )
        if sharding == "data_parallel" and varies:
            return "does not run where features of the module have batches of their own (batch_sizes, num_poolings)"
        if sharding == "data_parallel" and on_cpu and not collection.is_pooled:
            return "pools what it looks up on CPU, and the table is not pooled"
        if sharding == "data_parallel" and on_cpu and collection.is_fused:
            return "does not run on CPU in a FusedEmbeddingBagCollection"
        return None

    def _expect_buckets(self, config: Any, collection: Collection) -> None:
        """Raise InputError for a table that a managed collision of fixed buckets cannot be cut at."""
        from torchrec.modules.mc_modules import MCHManagedCollisionModule

        managed: Any = collection.module._managed_collision_collection
        of_table, world = managed._managed_collision_modules[config.name], self.topology.world_size
        if not isinstance(of_table, MCHManagedCollisionModule) and of_table.buckets() % world:
            reason = f"has {of_table.buckets()} buckets for {world} ranks; make them a multiple"
            raise InputError.at(config.name, reason)

    def _leaves_ranks_empty(self, sharding: str, config: Any) -> bool:
        """Whether a table has too few rows for all ranks that would share them: CPU kernels crash on an empty one."""
        world = self.topology.world_size
        count = world if sharding == "row_wise" else self._most_of_node if sharding in ROWS_OF_NODE else 1
        rows = int(config.num_embeddings)
        return -(-rows // count) * (count - 1) >= rows

    @property
    def _has_pods(self) -> bool:
        """Whether scale-up domains join hosts."""
        return any(group.domain_ranks > group.accelerators.count for group in self.topology.nodes)

    @property
    def _most_of_node(self) -> int:
        return max(group.accelerators.count for group in self.topology.nodes)


def _prefetched(workload: Workload, stated: Workload | None) -> Workload:
    """The workload in the pipeline that its caches are told of. Raises InputError where it states another one."""
    prefetched = [
        table.name
        for table in workload.tables
        if table.kernel.cache_params is not None and table.kernel.cache_params.prefetch_pipeline
    ]
    if not prefetched or workload.pipeline == "prefetch":
        return workload
    if stated is not None and "pipeline" in stated.model_fields_set:
        words = f"has cache_params.prefetch_pipeline, and the workload's pipeline is {workload.pipeline}; say one"
        raise InputError([Fault(name, 0, 0, "", words) for name in prefetched])
    return workload.model_copy(update={"pipeline": "prefetch"})


def in_pipeline_of_estimators(workload: Workload, stated: Workload | None) -> Workload:
    """The workload as TorchRec's estimators know it by default: without a pipeline, so that ids and outputs of a batch
    take memory. One that is stated stays, by the workload or by caches that are told to prefetch."""
    keys = {"pipeline", "free_inputs_early"}
    is_stated = stated is not None and not keys.isdisjoint(stated.model_fields_set)
    if is_stated or workload.pipeline == "prefetch":
        return workload
    return workload.model_copy(update={"pipeline": "none"})


def _reserved_bytes(workload: Workload) -> int:
    """HBM that FBGEMM is told to leave free beside caches."""
    caches = [table.kernel.cache_params for table in workload.tables]
    return max((math.ceil(cache.reserved_memory or 0) for cache in caches if cache is not None), default=0)


def profiles_of(module: "nn.Module") -> list[dict[str, Any]]:
    """The profiles of all tables of a module, whoever shards them."""
    collections = list(collections_of(module))
    shared = shared_names(collections)
    return [
        table_profile(f"{each.path}.{config.name}" if config.name in shared else config.name, config, each)
        for each in collections
        for config in each.configs
    ]


def _literal(name: str) -> str:
    """A pattern that matches the name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
