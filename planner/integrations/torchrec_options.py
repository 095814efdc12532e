"""A plan as TorchRec's planner holds one, and back: torchrec is needed to import this."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.planners import extract_plan
from torchrec.distributed.planner.types import ParameterConstraints, PlannerErrorType, Shard, ShardingOption
from torchrec.distributed.types import CacheParams, ParameterSharding, ShardingPlan

from planner.integrations.torchrec_collections import Collection
from planner.integrations.torchrec_errors import ShardPlannerError

_CARRIED = (
    "cache_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
    "key_value_params",
)
"""Fields that constraints and plans share."""
_QUANTIZED = {"fused": "quant", "fused_uvm": "quant_uvm", "fused_uvm_caching": "quant_uvm_caching"}
"""Kernels of quantized collections by those that train."""


def sharding_options(
    plan: ShardingPlan,
    collections: Sequence[Collection],
    constraints: Mapping[str, ParameterConstraints],
    batch_size: int,
    world_size: int,
) -> list[ShardingOption]:
    """One option by table, in the model's order, with the ranks that the plan gives its shards; not yet estimated."""
    options = []
    for collection in collections:
        for config in collection.configs:
            sharding = plan.plan[collection.path][config.name]
            told = constraints.get(config.name) or ParameterConstraints()
            carried = {key: _first(getattr(sharding, key), getattr(told, key)) for key in _CARRIED}
            if told.cache_params is None or told.cache_params.load_factor is None:
                carried["cache_params"] = _below_whole(carried["cache_params"], config.num_embeddings)
            kernel = sharding.compute_kernel
            option = ShardingOption(
                name=config.name,
                tensor=collection.parameters[config.name],
                module=(collection.path, collection.module),
                input_lengths=_input_lengths(told, config.feature_names),
                batch_size=batch_size,
                compute_kernel=_QUANTIZED.get(kernel, kernel) if collection.is_quantized else kernel,
                sharding_type=sharding.sharding_type,
                partition_by=get_partition_by_type(sharding.sharding_type),
                shards=_shards(sharding, collection.parameters[config.name], world_size),
                dependency=collection.host,
                is_pooled=collection.is_pooled,
                feature_names=told.feature_names,
                **carried,
            )
            options.append(option)
    return options


def with_loaded_shards(
    space: Sequence[ShardingOption], loaded: Mapping[int, ShardingOption], collections: Sequence[Collection]
) -> list[ShardingOption]:
    """The options that a stored plan chose, with its shards.

    `space` has the options that TorchRec lists, several for each table; those of a plan of ours may be others. Raises
    ShardPlannerError where the stored plan and the model have other tables.
    """
    known = {option.storage_hash(): option for option in space}
    of_table = {option.fqn: option for option in space}
    chosen = [known.get(key) or _moved(option, of_table.get(option.fqn)) for key, option in loaded.items()]
    loaded_options = extract_plan([option for option in chosen if option is not None], dict(loaded))
    missing = {f"{each.path}.{config.name}" for each in collections for config in each.configs}
    missing -= {option.fqn for option in loaded_options}
    if missing:
        message = f"the stored plan has no {', '.join(sorted(missing))}; plan without the loader, and store that"
        raise ShardPlannerError.of("plan_loader", message, PlannerErrorType.PLAN_LOADING_FAILED)
    order = list(of_table)
    return sorted(loaded_options, key=lambda option: order.index(option.fqn))


def _moved(stored: ShardingOption, of_model: ShardingOption | None) -> ShardingOption | None:
    """A stored option for the table of a model; None where the model has none."""
    if of_model is None:
        return None
    own = copy(stored)
    own._tensor, own._module = of_model._tensor, of_model._module
    return own


def _input_lengths(told: ParameterConstraints, features: Sequence[str]) -> list[float]:
    """Ids of each feature. TorchRec's estimators take one number for all only where no other counts are told."""
    if (told.num_poolings or told.batch_sizes) and len(told.pooling_factors) != len(features):
        return [1.0] * len(features)
    return list(told.pooling_factors)


def _below_whole(cache: CacheParams | None, rows: int) -> CacheParams | None:
    """A cache without one row of the table where it would have all: TorchRec's checks want a load factor below 1."""
    if cache is None or cache.load_factor is None or cache.load_factor < 1:
        return cache
    return replace(cache, load_factor=(rows - 1) / rows)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _shards(sharding: ParameterSharding, parameter: Any, world_size: int) -> list[Shard]:
    if sharding.sharding_spec is None:
        whole = list(parameter.shape)
        return [Shard(size=whole, offset=[0, 0], rank=rank) for rank in range(world_size)]
    return [
        Shard(size=list(each.shard_sizes), offset=list(each.shard_offsets), rank=each.placement.rank())
        for each in sharding.sharding_spec.shards
    ]
