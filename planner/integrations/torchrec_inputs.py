"""What a module, its sharders and TorchRec's constraints say, as a workload and a policy of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.workload.models import Workload
from planner.exporters.torchrec import DATA_TYPES
from planner.importers.torchrec import TIER_OF_KERNEL
from planner.integrations.torchrec import Collection, collections_of, shared_names
from planner.policy import Policy
from topologies.cluster import Topology
from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from torch import nn
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import ModuleSharder

ROWS_CUT = ("row_wise", "table_row_wise", "grid_shard")
KNOWN = (
    "ShardPlanner knows EmbeddingBagCollection and EmbeddingCollection, alone, behind feature processors and in managed"
    " collisions"
)
REMEDY = "plan it with TorchRec's planner, or leave its sharder out to have the collections in it planned by themselves"


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

    def read(self, module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]] | None") -> tuple[Workload, Policy]:
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
        base = self.workload.model_dump(mode="json", exclude_defaults=True) if self.workload else {"name": "module"}
        if self.workload and not self.workload.names_software:
            base.pop("software", None)
        batch = {"global_batch": None, "batch_per_rank": self.batch_size}
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
