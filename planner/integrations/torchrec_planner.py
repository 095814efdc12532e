"""`ShardPlanner`: our planner where TorchRec's `EmbeddingShardingPlanner` stands. torch is imported inside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.workload.models import Workload
from planner import api
from planner.document import Plan
from planner.exporters.torchrec import DATA_TYPES
from planner.importers.torchrec import TIER_OF_KERNEL
from planner.importers.torchrec_topology import LIKE, LIKE_OF_CPUS, Arguments, topology_of
from planner.integrations.torchrec import Collection, collections_of, shared_names, to_sharding_plan
from planner.policy import Policy
from topologies.cluster import Topology
from topologies.errors import Fault, InputError
from topologies.loading import load_topology

if TYPE_CHECKING:
    from torch import distributed as dist
    from torch import nn
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import ModuleSharder, ShardingPlan

BATCH = 512
"""Samples of one rank where none are told, as TorchRec's planner takes them."""
ROWS_CUT = ("row_wise", "table_row_wise", "grid_shard")
KNOWN = (
    "ShardPlanner knows EmbeddingBagCollection and EmbeddingCollection, alone, behind feature processors and in managed"
    " collisions"
)
REMEDY = "plan it with TorchRec's planner, or leave its sharder out to have the collections in it planned by themselves"
_TOLD = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)


class ShardPlanner:
    """Plans the tables of a module: `plan` in one process, `collective_plan` on rank 0 for all.

    `topology` is ours (a model, catalog name or file) or a TorchRec `Topology`. `batch_size` is the samples of one
    rank, `constraints` are TorchRec's by table: shardings, kernels, pooling factors, weights, and `min_partition`, of
    which widths are multiples. The search ends after `time_limit_s`, or `effort` passes. `workload` has what a module
    does not say (optimizer, dense part, precisions, pipeline): its tables and batch are not looked at.

    After a plan, `document` is its plan document.
    """

    def __init__(
        self,
        topology: "Topology | str | Path | Any",
        *,
        batch_size: int = BATCH,
        constraints: "Mapping[str, ParameterConstraints] | None" = None,
        cost_model: str = "physical",
        workload: Workload | None = None,
        time_limit_s: float = 30.0,
        effort: int | None = 1,
        seed: int = 0,
    ) -> None:
        self.compute_device = str(getattr(topology, "compute_device", "cuda"))
        if isinstance(topology, Topology):
            self.topology = topology
        elif isinstance(topology, str | Path):
            self.topology = load_topology(topology)
        else:
            self.topology = _topology(topology)
        self.constraints = dict(constraints or {})
        self.document: Plan | None = None
        self._batch_size, self._workload = batch_size, workload
        self._search = {"cost_model": cost_model, "time_limit_s": time_limit_s, "effort": effort, "seed": seed}

    def plan(self, module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]] | None" = None) -> "ShardingPlan":
        """The plan of a module's tables, in the shardings and kernels of its sharders (unset: TorchRec's default ones).

        Raises InputError for modules and tables that cannot be planned, and where nothing fits.
        """
        workload, policy = self._inputs(module, sharders)
        found = api.plan(self.topology, workload, policy=policy, simulate=False, **self._search)  # type: ignore[arg-type]
        self.document = found
        if found.objective is None:
            reason = found.infeasibility or found.unplaced
            raise InputError.at(self.topology.name, f"no plan: {reason.summary if reason else found.status}")
        return to_sharding_plan(found, module, compute_device=self.compute_device)

    def collective_plan(
        self,
        module: "nn.Module",
        sharders: "Sequence[ModuleSharder[Any]] | None" = None,
        pg: "dist.ProcessGroup | None" = None,
    ) -> "ShardingPlan":
        """`plan` on rank 0 of the group, handed to all; what it raises there is raised on every rank."""
        from torch import distributed as dist

        result: list[Any] = [None]
        if dist.get_rank(pg) == 0:
            try:
                result = [self.plan(module, sharders)]
            except InputError as error:
                result = [error]
            except Exception as error:  # noqa: BLE001 - the other ranks wait: they must hear of it
                result = [RuntimeError(f"rank 0 could not plan: {error!r}")]
        first = 0 if pg is None else dist.get_global_rank(pg, 0)
        dist.broadcast_object_list(result, src=first, group=pg)
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def _inputs(self, module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]] | None") -> tuple[Workload, Policy]:
        """The workload that a module's tables are, and what its sharders and constraints leave of the options."""
        from torchrec.distributed.sharding_plan import get_default_sharders

        known = get_default_sharders() if sharders is None else sharders
        by_type = {sharder.module_type: sharder for sharder in known}
        collections = list(collections_of(module))
        _expect_known(module, by_type, collections)
        shared = shared_names(collections)
        tables, rules = [], []
        for collection in collections:
            sharder = by_type[type(collection.module)]
            for config in collection.configs:
                name = f"{collection.path}.{config.name}" if config.name in shared else config.name
                told = self.constraints.get(config.name)
                tables.append(_table(name, config, collection, told))
                rules.append({"match": [_literal(name)]} | self._limits(config, collection, sharder, told))
        base = self._workload.model_dump(mode="json", exclude_defaults=True) if self._workload else {"name": "module"}
        if self._workload and not self._workload.names_software:
            base.pop("software", None)
        batch = {"global_batch": None, "batch_per_rank": self._batch_size}
        workload = Workload.model_validate(base | batch | {"tables": tables})
        return workload, Policy.model_validate({"runtime": "torchrec", "tables": rules})

    def _limits(self, config: Any, collection: Collection, sharder: Any, told: Any) -> dict[str, Any]:
        """The keys of a policy's rule: what the sharder, the table's rows and the constraints leave."""
        named = list(told.sharding_types or ()) if told is not None else []
        offered = sharder.sharding_types(self.compute_device)
        shardings = [sharding for sharding in SHARDINGS if sharding in offered]
        if not shardings:
            what = f"its {type(sharder).__name__} has no sharding for {self.compute_device}"
            raise InputError.at(config.name, f"cannot be sharded: {what}")
        if collection.has_processor:  # as TorchRec's planner
            shardings = [sharding for sharding in shardings if sharding not in ROWS_CUT or sharding in named]
        if collection.is_managed:
            self._expect_buckets(config, collection)
        if self.compute_device == "cpu" or collection.is_managed:
            shardings = [sharding for sharding in shardings if not self._leaves_ranks_empty(sharding, config)]
        if self.compute_device == "cpu" and not collection.is_pooled and "data_parallel" in shardings:
            shardings.remove("data_parallel")  # TorchRec's kernel for replicated tables on CPU pools what it looks up
        if not shardings:
            raise InputError.at(config.name, f"has {config.num_embeddings} rows, too few for all ranks to have some")
        found: dict[str, Any] = {}
        if named:
            shardings = [sharding for sharding in shardings if sharding in named]
        tiers = self._tiers(shardings, sharder)
        if told is not None:
            if told.compute_kernels:
                allowed = {TIER_OF_KERNEL.get(kernel) for kernel in told.compute_kernels}
                tiers = [tier for tier in tiers if tier in allowed]
            if told.min_partition:
                found["column_multiple"] = told.min_partition
        if not shardings or not tiers:
            what = "sharding" if not shardings else "kernel"
            raise InputError.at(config.name, f"has constraints that leave no {what}; allow more in one of them")
        return found | {"shardings": shardings, "tiers": tiers}

    def _tiers(self, shardings: Sequence[str], sharder: Any) -> list[str]:
        """Those for which the sharder has kernels in all of the shardings; replicated tables are in HBM anyway."""
        if self.compute_device == "cpu":
            return ["hbm"]
        kernels = [sharder.compute_kernels(way, self.compute_device) for way in shardings if way != "data_parallel"]
        known = [{TIER_OF_KERNEL.get(kernel) for kernel in of_sharding} for of_sharding in kernels]
        return [tier for tier in PLACEMENT_TIERS[:3] if tier == "hbm" or all(tier in each for each in known)]

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
        parts = {"row_wise": world, "table_row_wise": self._most_of_node, "grid_shard": self._most_of_node}
        count = parts.get(sharding, 1)
        rows = int(config.num_embeddings)
        return -(-rows // count) * (count - 1) >= rows

    @property
    def _most_of_node(self) -> int:
        return max(group.accelerators.count for group in self.topology.nodes)


def _expect_known(module: "nn.Module", by_type: Mapping[type, Any], collections: Sequence[Collection]) -> None:
    """Raise InputError with every module that its sharder would shard and that is none of the collections, with every
    collection without a sharder, and where there is none."""
    paths = [collection.path for collection in collections]
    faults = [
        Fault(path or "module", 0, 0, "", f"is a {_full_name(type(part))}: {KNOWN}; {REMEDY}")
        for path, part in module.named_modules()
        if type(part) in by_type and not any(_is_within(path, outer) for outer in paths)
    ]
    faults += [
        Fault(each.path or "module", 0, 0, "", f"is a {_full_name(type(each.module))}, and no sharder is for that")
        for each in collections
        if type(each.module) not in by_type
    ]
    if not faults and not collections:
        faults = [Fault("module", 0, 0, "", f"has no table to plan: {KNOWN}")]
    if faults:
        raise InputError(faults)


def _is_within(path: str, outer: str) -> bool:
    return not outer or f"{path}.".startswith(f"{outer}.")


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _table(name: str, config: Any, collection: Collection, told: Any) -> dict[str, Any]:
    """A table's profile: what the module and its constraints say."""
    ours = {theirs: word for word, theirs in DATA_TYPES.items()}
    if config.data_type.name not in ours:
        raise InputError.at(name, f"has the data type {config.data_type.name}, which is none of {', '.join(ours)}")
    features = list(config.feature_names)
    pooling = list(told.pooling_factors) if told is not None else [1.0]
    pooling = pooling if len(pooling) == len(features) else [pooling[0]] * len(features)
    return {
        "name": name,
        "rows": config.num_embeddings,
        "dim": config.embedding_dim,
        "features": features,
        "pooling_factor": sum(pooling),
        "dtype": ours[config.data_type.name],
        "weighted": collection.is_weighted or (told is not None and told.is_weighted),
        "pooled": collection.is_pooled,
    }


def _literal(name: str) -> str:
    """A pattern that matches the name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _topology(theirs: Any) -> Topology:
    """A TorchRec Topology as ours."""
    first = theirs.devices[0].storage
    told: dict[str, Any] = {key: getattr(theirs, key) for key in _TOLD}
    told |= {"world_size": theirs.world_size, "local_world_size": theirs.local_world_size}
    told |= {"hbm_cap": first.hbm or None, "ddr_cap": first.ddr or None, "compute_device": theirs.compute_device}
    hosts = theirs.intra_group_size // theirs.local_world_size
    told |= {"pod_size": hosts if hosts > 1 else None}
    kept = {key: value for key, value in told.items() if key in Arguments.model_fields and value}
    like = LIKE_OF_CPUS if theirs.compute_device == "cpu" else LIKE
    return topology_of(kept, load_topology(like), "torchrec-topology", "Topology")
