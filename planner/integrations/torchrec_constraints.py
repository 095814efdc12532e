"""What TorchRec's `ParameterConstraints` say of a table, each field used or refused by name."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cost_models.workload.kernels import CacheParams, KernelSettings, KeyValueParams, MultipassPrefetch
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError, shown

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ParameterConstraints

USED = (
    "sharding_types",
    "compute_kernels",
    "min_partition",
    "pooling_factors",
    "num_poolings",
    "batch_sizes",
    "is_weighted",
    "cache_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "feature_names",
    "output_dtype",
    "device_group",
    "key_value_params",
    "use_virtual_table",
)
"""Fields of ParameterConstraints, TorchRec 1.8.0 to 1.9.2. Another one is refused where it says something."""
COUNTS = ("pooling_factors", "num_poolings", "batch_sizes")
PLAIN = (bool, int, float, str, type(None))


def faults_of_names(constraints: "Mapping[str, ParameterConstraints]", tables: Sequence[str]) -> Iterator[Fault]:
    """Constraints of tables that the module does not have."""
    for name in constraints:
        if name not in tables:
            yield Fault(
                name, 0, 0, "", f"has constraints, and the module has no such table{did_you_mean(name, tables)}"
            )


def faults_of_constraints(
    name: str, told: "ParameterConstraints", features: Sequence[str], compute_device: str
) -> Iterator[Fault]:
    """What cannot be kept of a table's constraints, field by field."""
    for field in dataclasses.fields(told):
        if field.name not in USED and getattr(told, field.name) != _default(field):
            yield Fault(name, 0, 0, field.name, "is a constraint that ShardPlanner does not know; leave it out")
    for key in COUNTS:
        stated = getattr(told, key)
        if stated is None or (key == "pooling_factors" and list(stated) == [1.0]):
            continue
        if len(stated) != len(features):
            words = f"has {len(stated)} numbers for {len(features)} features ({', '.join(features)}); give one for each"
            yield Fault(name, 0, 0, key, words)
        elif not all(number > 0 for number in stated):
            yield Fault(name, 0, 0, key, f"is {list(stated)!r}; every number must be above 0")
    if told.feature_names is not None and set(told.feature_names) != set(features):
        words = f"are {', '.join(told.feature_names)}, and the table's are {', '.join(features)}"
        yield Fault(name, 0, 0, "feature_names", words)
    if told.device_group is not None and told.device_group != compute_device:
        words = f"is {told.device_group!r}, and this plan is for {compute_device}: make one for each device"
        yield Fault(name, 0, 0, "device_group", words)
    if told.use_virtual_table:
        yield Fault(name, 0, 0, "use_virtual_table", "is set: ShardPlanner has no plans for virtual tables")
    if told.min_partition is not None and told.min_partition < 1:
        yield Fault(name, 0, 0, "min_partition", f"is {told.min_partition}; it must be at least 1")


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def has_own_batch(told: "ParameterConstraints | None", batch_size: int) -> bool:
    """Whether some feature of a table has another batch than the ranks, or several poolings (variable batch)."""
    if told is None:
        return False
    batches, poolings = told.batch_sizes or (), told.num_poolings or ()
    return any(size != batch_size for size in batches) or any(number != 1 for number in poolings)


def narrowest(min_partition: int, columns: int) -> int:
    """The width of a table's narrowest column blocks: as TorchRec's planner cuts them, in equal blocks of a multiple of
    4 that have `min_partition` columns or more."""
    widths = (width for width in range(min_partition, columns) if columns % width == 0 and width % 4 == 0)
    return next(widths, columns)


def reads(told: "ParameterConstraints | None", features: int, batch_size: int) -> tuple[float, float]:
    """Ids of a sample, and vectors of each of its features: means over one rank's batch.

    A feature with a batch of its own, or with several poolings, has as many lists of ids as these say.
    """
    if told is None:
        return float(features), 1.0
    stated = list(told.pooling_factors or ())
    pooling = stated if len(stated) == features else [1.0] * features
    poolings = list(told.num_poolings or [1.0] * features)
    batches = [size / batch_size for size in told.batch_sizes or [batch_size] * features]
    lists = [number * batch for number, batch in zip(poolings, batches, strict=True)]
    return sum(ids * n for ids, n in zip(pooling, lists, strict=True)), sum(lists) / features


def kernel_settings(
    name: str, told: "ParameterConstraints | None", fused_params: Mapping[str, Any], hbm_kernel: str | None
) -> KernelSettings:
    """What the runtime is to be told of a table's kernel. Raises InputError with every part that no plan carries."""
    settings: dict[str, Any] = {"hbm_kernel": hbm_kernel} if hbm_kernel else {}
    faults: list[Fault] = []
    if told is not None:
        for key in ("enforce_hbm", "stochastic_rounding", "bounds_check_mode", "output_dtype"):
            settings[key] = _word(getattr(told, key))
        settings["key_value_params"] = _record(name, "key_value_params", told.key_value_params, KeyValueParams, faults)
    cache = _record(name, "cache_params", told.cache_params if told else None, CacheParams, faults)
    precision = fused_params.get("cache_precision")
    if precision is not None and (cache is None or cache.precision is None):
        cache = (cache or CacheParams()).model_copy(update={"precision": _word(precision)})
    settings["cache_params"] = cache
    if faults:
        raise InputError(faults)
    return KernelSettings(**settings)


def _record(name: str, key: str, stated: Any, kind: type[Any], faults: list[Fault]) -> Any:
    """A dataclass of TorchRec as the record with the same fields; what that lacks goes to the faults."""
    if stated is None:
        return None
    record = {}
    for field in dataclasses.fields(stated):
        value = getattr(stated, field.name)
        if field.name in kind.model_fields:
            record[field.name] = _word(value)
        elif value is not None and value != _default(field):
            words = f"is {type(value).__name__}: ShardPlanner does not read it, and no plan carries it; leave it out"
            faults.append(Fault(name, 0, 0, f"{key}.{field.name}", words))
    return kind.model_validate(record)


def _word(value: Any) -> Any:
    """An enumeration's name, a named tuple's fields, plain data as it is."""
    if isinstance(value, enum.Enum):
        return value.name
    if hasattr(value, "_asdict"):
        return MultipassPrefetch(**value._asdict())
    return value


def fixed_share(name: str, told: "ParameterConstraints | None", fused_params: Mapping[str, Any]) -> float | None:
    """The share of the rows that a cache must hold, where the constraints or the sharder say so."""
    cache = told.cache_params if told is not None else None
    stated = cache.load_factor if cache is not None else None
    share = fused_params.get("cache_load_factor") if stated is None else stated
    if share is not None and not 0 < share <= 1:
        raise InputError.at(name, f"has the cache load factor {shown(share)}, which is no share above 0 and at most 1")
    return share
