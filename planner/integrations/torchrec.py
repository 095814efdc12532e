"""A plan as objects of TorchRec. torch and torchrec are imported inside the functions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.document.plan import Plan
from planner.exporters.torchrec import DATA_TYPES, torchrec_constraints, torchrec_plan
from planner.importers.torchrec_kernels import settings_of
from planner.integrations.torchrec_collections import collections_of, sharded_collections, shared_names
from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from torch import nn
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import DMPCollectionConfig, ModuleSharder, ParameterSharding, ShardingPlan


Source = Plan | Mapping[str, Any] | str | Path


def to_sharding_plan(
    plan: Source,
    module: "nn.Module",
    *,
    compute_device: str | None = None,
    sharders: "Sequence[ModuleSharder[Any]] | None" = None,
) -> "ShardingPlan":
    """The ShardingPlan for `DistributedModelParallel(module, plan=…)`.

    `plan` is a plan document, the dictionary that `planner export --to torchrec` makes, or a file of either. Tables are
    found in the module by their names; where several of its collections have a table of one name, the plan calls them
    `path.name`, or the dictionary names the module. `compute_device` is where shards live (`cuda`, `cpu`); unset: that
    of the dictionary, or `cuda` where there is any. `sharders` are those of DistributedModelParallel, where they shard
    other modules than the collections (towers), or leave tables out.

    Raises InputError with everything that does not fit: tables of the module without an entry (TorchRec needs one for
    each), entries without a table, other rows, columns or types, tables of managed collisions that are not row_wise,
    and what TorchRec cannot execute.
    """
    import torch
    from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

    document, source = exported_document(plan, "torchrec_plan")
    device = compute_device
    if isinstance(document, Plan):
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        document = torchrec_plan(document, compute_device=device, source=source)
    plans = [document["plan"], *(each["plan"] for each in _submodule_configs(document))]
    entries = {(path, name): entry for each in plans for path, of in each.items() for name, entry in of.items()}
    collections = list(collections_of(module)) if sharders is None else sharded_collections(module, sharders)
    faults, used = [], set[tuple[str, str]]()
    module_plans: dict[str, EmbeddingModuleShardingPlan] = {}
    shared = shared_names(collections)
    for collection in collections:
        path = collection.path
        for config in collection.configs:
            places = [(path, config.name), ("", f"{path}.{config.name}")]
            places += [] if config.name in shared else [("", config.name)]
            place = next((place for place in places if place in entries), None)
            where = f"{path}.{config.name}".lstrip(".")
            if place is None:
                faults.append(Fault(source, 0, 0, where, "the module has this table, and the plan has no entry for it"))
                continue
            used.add(place)
            entry = entries[place]
            reasons = [*_differences(entry, config), *(_unmanaged(entry) if collection.is_managed else ())]
            if device == "cpu" and collection.is_fused and entry["sharding_type"] == "data_parallel":
                reasons.append("is data_parallel; a FusedEmbeddingBagCollection has no replicas on CPU")
            faults += [Fault(source, 0, 0, where, reason) for reason in reasons]
            of_module = module_plans.setdefault(path, EmbeddingModuleShardingPlan())
            of_module[config.name] = _parameter_sharding(entry, compute_device, source, where)
    for path, name in entries.keys() - used:
        faults.append(Fault(source, 0, 0, f"{path}.{name}".lstrip("."), "the plan has this table, and the module none"))
    if faults:
        raise InputError(faults)
    return ShardingPlan(dict(module_plans))


def to_submodule_configs(
    plan: Source,
    module: "nn.Module",
    *,
    compute_device: str | None = None,
    sharders: "Sequence[ModuleSharder[Any]] | None" = None,
) -> "list[DMPCollectionConfig]":
    """The `submodule_configs` of DMPCollection, whose `plan` is that of `to_sharding_plan`: one for each type of module
    that has more copies than the others, with a plan of its own. Arguments and errors are those of `to_sharding_plan`.
    """
    import torchrec
    from torchrec.distributed.types import DMPCollectionConfig, ShardingPlan, ShardingStrategy

    document, source = exported_document(plan, "torchrec_plan")
    if isinstance(document, Plan):
        document = torchrec_plan(document, source=source)
    types = {name: type(of) for name, of in module.named_modules()}
    configs = []
    for each in _submodule_configs(document):
        whole = to_sharding_plan(document, module, compute_device=compute_device, sharders=sharders)
        own = getattr(torchrec, each["module"])
        configs.append(
            DMPCollectionConfig(
                own,
                ShardingPlan({path: of for path, of in whole.plan.items() if types[path] is own}),
                each["sharding_group_size"],
                use_inter_host_allreduce=each["use_inter_host_allreduce"],
                sharding_strategy=ShardingStrategy[each["sharding_strategy"]],
            )
        )
    return configs


def _submodule_configs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of an exported plan."""
    return list(document.get("dmp_collection", {}).get("submodule_configs", ()))


def to_constraints(plan: Source) -> "dict[str, ParameterConstraints]":
    """ParameterConstraints by table, for `EmbeddingShardingPlanner(constraints=…)`.

    `plan` is a plan document, the dictionary that `planner export --to torchrec-constraints` makes, or a file of
    either. Raises InputError for a plan that TorchRec cannot execute.
    """
    from torchrec.distributed.planner.types import ParameterConstraints

    document, source = exported_document(plan, "torchrec_constraints")
    if isinstance(document, Plan):
        document = torchrec_constraints(document, source=source)
    constraints = {}
    for name, entry in document["constraints"].items():
        constraints[name] = ParameterConstraints(**(entry | _revived(entry, source, name)))
    return constraints


def exported_document(plan: Source, kind: str) -> tuple[Plan | Mapping[str, Any], str]:
    """The plan or the exported dictionary, and what messages call it."""
    from planner.verification.loading import load_plan

    if isinstance(plan, Plan):
        return plan, "plan"
    source = "plan" if isinstance(plan, Mapping) else str(plan)
    if not isinstance(plan, Mapping):
        try:
            plan = json.loads(Path(source).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError.at(source, f"cannot be read as JSON: {error}") from None
        if isinstance(plan, Mapping) and plan.get("kind") == "plan":
            return load_plan(source), source
    if not isinstance(plan, Mapping) or plan.get("kind") != kind:
        raise InputError.at(source, f'is neither a plan nor of "kind": "{kind}"', path="kind")
    return plan, source


def _differences(entry: Mapping[str, Any], config: Any) -> Iterator[str]:
    ours = {"num_embeddings": config.num_embeddings, "embedding_dim": config.embedding_dim}
    ours["data_type"] = config.data_type.name
    for key, value in ours.items():
        if entry.get(key, value) != value:
            yield f"{key} is {value} in the module and {entry[key]} in the plan; plan for the module's"
    if "data_type" in entry and entry["data_type"] not in DATA_TYPES.values():
        yield f"data_type {entry['data_type']!r} is none of {', '.join(dict.fromkeys(DATA_TYPES.values()))}"


def _unmanaged(entry: Mapping[str, Any]) -> Iterator[str]:
    """What managed collisions do not work with: each rank has a map of its own for the rows that it holds."""
    if entry["sharding_type"] != "row_wise":
        yield f"is {entry['sharding_type']}; tables of managed collisions can be row_wise only"
    elif not all(shard["shard_sizes"][0] for shard in entry.get("shards", ())):
        yield "leaves ranks without rows, which managed collisions do not allow; give it as many rows as ranks"


def _parameter_sharding(
    entry: Mapping[str, Any], compute_device: str | None, source: str, where: str
) -> "ParameterSharding":
    from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
    from torchrec.distributed.types import ParameterSharding

    spec = None
    if "shards" in entry:
        spec = EnumerableShardingSpec(
            [
                ShardMetadata(
                    shard_offsets=list(shard["shard_offsets"]),
                    shard_sizes=list(shard["shard_sizes"]),
                    placement=_on_device(shard["placement"], compute_device),
                )
                for shard in entry["shards"]
            ]
        )
    return ParameterSharding(
        sharding_type=entry["sharding_type"],
        compute_kernel=entry["compute_kernel"],
        ranks=list(entry["ranks"]),
        sharding_spec=spec,
        **_revived(entry, source, where),
    )


def _revived(entry: Mapping[str, Any], source: str, where: str) -> dict[str, Any]:
    """The kernel's settings of a file's entry as objects of TorchRec. Raises InputError for what they do not have."""
    from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams, KeyValueParams
    from torchrec.modules.embedding_configs import DataType

    settings = settings_of(entry, source, where)
    told = {key: value for key, value in dict(settings).items() if value is not None and key != "hbm_kernel"}
    if settings.bounds_check_mode is not None:
        told["bounds_check_mode"] = BoundsCheckMode[settings.bounds_check_mode]
    if settings.output_dtype is not None:
        told["output_dtype"] = DataType[settings.output_dtype]
    if (cache := settings.cache_params) is not None:
        parts = {key: value for key, value in dict(cache).items() if value is not None}
        if cache.algorithm is not None:
            parts["algorithm"] = CacheAlgorithm[cache.algorithm]
        if cache.precision is not None:
            parts["precision"] = DataType[cache.precision]
        if cache.multipass_prefetch_config is not None:
            from fbgemm_gpu.tbe.cache.cache_config import MultiPassPrefetchConfig

            parts["multipass_prefetch_config"] = MultiPassPrefetchConfig(**dict(cache.multipass_prefetch_config))
        told["cache_params"] = CacheParams(**parts)
    if settings.key_value_params is not None:
        told["key_value_params"] = KeyValueParams(**dict(settings.key_value_params))
    return told


def _on_device(placement: str, compute_device: str | None) -> str:
    """`rank:3/cuda:1` on another kind of device."""
    rank, _, device = placement.partition("/")
    if compute_device is None or device.partition(":")[0] == compute_device:
        return placement
    if compute_device == "cpu":
        return f"{rank}/cpu"
    if ":" not in device:
        raise InputError.at(placement, f"was exported for {device}; export it with --device {compute_device}")
    return f"{rank}/{compute_device}:{device.partition(':')[2]}"
