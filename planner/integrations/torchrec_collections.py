"""The collections of tables in a model that TorchRec shards as one module each. torchrec is imported inside."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from torch import nn
    from torchrec.distributed.types import ModuleSharder

_WRAPPED = ("_embedding_bag_collection", "_embedding_module", "_embedding_collection")
"""Where feature processors, managed collisions and pruning keep the collection that they wrap."""
_DYNAMIC = ("dynamicemb", "dynamic_emb")
"""Packages whose sharders hold tables that grow with the ids that they see."""
REMEDY = "plan it with TorchRec's planner, or leave its sharder out to have it replicated"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoneTable:
    """What a module says that is one table and has no configuration (`nn.EmbeddingBag`)."""

    name: str
    num_embeddings: int
    embedding_dim: int
    data_type: Any
    """torchrec's DataType."""
    feature_names: Sequence[str]


@dataclass(frozen=True)
class Collection:
    """A collection of tables in a model."""

    path: str
    module: "nn.Module"
    """What is sharded: the collection, or what wraps it."""
    configs: Sequence[Any]
    """EmbeddingBagConfig or EmbeddingConfig of each table."""
    is_pooled: bool
    is_weighted: bool
    sharder: Any = None
    """Who shards it; None where nobody was asked."""
    parameters: "Mapping[str, nn.Parameter]" = field(default_factory=dict)
    """Its sharder's, by table."""
    host: str | None = None
    """What its tables must share a host for: a tower's name."""

    @property
    def has_processor(self) -> bool:
        """Whether features are processed before the lookup, of a quantized collection too."""
        return "FeatureProcessedEmbeddingBagCollection" in type(self.module).__name__

    @property
    def is_managed(self) -> bool:
        """Whether collisions are managed: ids are mapped to rows that they have for themselves."""
        return hasattr(self.module, "_managed_collision_collection")

    @property
    def is_fused(self) -> bool:
        """Whether it has its optimizer for itself, and wraps replicated tables itself: DistributedDataParallel gets the
        device, and takes none on CPU (`ShardedFusedEmbeddingBagCollection` of TorchRec 1.8.0 and 1.9.2)."""
        return type(self.module).__name__ == "FusedEmbeddingBagCollection"

    @property
    def is_quantized(self) -> bool:
        """Whether it only answers: its weights are quantized, and nothing trains them."""
        return type(self.module).__module__.startswith("torchrec.quant")


def collections_of(module: "nn.Module") -> Iterator[Collection]:
    """Every collection of tables in a model, whoever shards it: what wraps one stands for it."""
    from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

    def search(path: str, here: "nn.Module") -> Iterator[Collection]:
        inner = _unwrapped(here)
        if isinstance(inner, EmbeddingBagCollection | EmbeddingCollection):
            yield _collection(path, here, inner)
        else:
            for name, child in here.named_children():
                yield from search(_joined(path, name), child)

    return search("", module)


def sharded_collections(module: "nn.Module", sharders: "Sequence[ModuleSharder[Any]]") -> list[Collection]:
    """Every collection that the sharders shard, with the tables that they shard of it.

    As in TorchRec's planner, what has no sharder stays as it is: whole on every rank; a warning names it. Raises
    InputError with every module that has a sharder and cannot be planned, and why.
    """
    from torchrec.distributed.planner.utils import sharder_name

    by_type = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    faults: list[Fault] = []
    collections: list[Collection] = []

    def search(path: str, here: "nn.Module") -> None:
        sharder = by_type.get(sharder_name(type(here)))
        if sharder is None:
            for name, child in here.named_children():
                search(_joined(path, name), child)
            return
        parameters = sharder.shardable_parameters(here)
        if not parameters:
            return
        reason = _unplannable(here, sharder)
        if reason:
            faults.append(Fault(path or "module", 0, 0, "", f"is a {_full_name(type(here))}: {reason}"))
            return
        collections.extend(_parts(path, here, sharder, parameters))

    search("", module)
    if faults:
        raise InputError(faults)
    covered = [each.path for each in collections]
    whole = [each for each in collections_of(module) if not any(_is_within(each.path, path) for path in covered)]
    if whole:
        names = ", ".join(each.path or "the module" for each in whole)
        _log.warning("no sharder shards the tables of %s: they stay whole on every rank", names)
    return collections


def shared_names(collections: Sequence[Collection]) -> set[str]:
    """Names of tables that several collections have."""
    count = Counter(config.name for collection in collections for config in collection.configs)
    return {name for name, times in count.items() if times > 1}


def mode_of(collections: Sequence[Collection]) -> dict[str, str]:
    """The workload's mode as its key: inference where the collections are quantized. Raises InputError for some."""
    quantized = [each for each in collections if each.is_quantized]
    if quantized and len(quantized) < len(collections):
        message = "is quantized and answers only, and other collections train; plan them apart, each with its sharders"
        raise InputError(Fault(each.path or "module", 0, 0, "", message) for each in quantized)
    return {"mode": "inference"} if quantized else {}


def _parts(
    path: str, module: "nn.Module", sharder: Any, parameters: "Mapping[str, nn.Parameter]"
) -> Iterator[Collection]:
    """A sharded module as collections: one, or that of each of its towers."""
    from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

    inner: list[tuple[str | None, nn.Module]] = [(None, _unwrapped(module))]
    if isinstance(module, EmbeddingTower):
        inner = [(path, _unwrapped(module.embedding))]
    elif isinstance(module, EmbeddingTowerCollection):
        inner = [(f"{path}.tower_{i}", _unwrapped(tower.embedding)) for i, tower in enumerate(module.towers)]
    for host, each in inner:
        whole = _collection(path, module, each, sharder, host, parameters)
        configs = [config for config in whole.configs if config.name in parameters]
        if configs:
            yield Collection(path, module, configs, whole.is_pooled, whole.is_weighted, sharder, parameters, host)


def _collection(
    path: str,
    module: "nn.Module",
    inner: "nn.Module",
    sharder: Any = None,
    host: str | None = None,
    parameters: "Mapping[str, nn.Parameter] | None" = None,
) -> Collection:
    if hasattr(inner, "embedding_bag_configs"):
        pooled, configs = True, inner.embedding_bag_configs()
    elif hasattr(inner, "embedding_configs"):
        pooled, configs = False, inner.embedding_configs()
    else:
        pooled, configs = True, [_lone_table(name, each) for name, each in (parameters or {}).items()]
    weighted = pooled and hasattr(inner, "is_weighted") and bool(inner.is_weighted())
    return Collection(path, module, configs, pooled, weighted, sharder, parameters or {}, host)


def _lone_table(name: str, parameter: Any) -> LoneTable:
    from torchrec.modules.embedding_configs import dtype_to_data_type

    rows, dim = parameter.shape
    return LoneTable(name, rows, dim, dtype_to_data_type(parameter.dtype), [name])


def _unwrapped(module: "nn.Module") -> "nn.Module":
    """The collection in what wraps one, or the module."""
    for name in _WRAPPED:
        inner = getattr(module, name, None)
        if inner is not None:
            return _unwrapped(inner)
    return module


def _unplannable(module: "nn.Module", sharder: Any) -> str | None:
    """Why a module that has a sharder cannot be planned, or None."""
    from torch import nn
    from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

    if type(sharder).__module__.split(".")[0] in _DYNAMIC:
        return (
            "its tables grow with the ids that they see (dynamicemb), and ShardPlanner places tables of a known number"
            " of rows; plan it with DynamicEmbeddingShardingPlanner"
        )
    is_tower = isinstance(module, EmbeddingTower | EmbeddingTowerCollection)
    towers = [module] if isinstance(module, EmbeddingTower) else module.towers if is_tower else ()
    for each in map(_unwrapped, [tower.embedding for tower in towers] or [module]):
        is_pooled = hasattr(each, "embedding_bag_configs") or isinstance(each, nn.EmbeddingBag)
        if not is_pooled and not hasattr(each, "embedding_configs"):
            return f"ShardPlanner knows no tables in it; {REMEDY}"
        if is_tower and not is_pooled:
            return (
                "it has a collection that does not pool, which none of the shardings of towers (table_row_wise and"
                " table_column_wise) executes; leave its sharder out, to have the collection in it planned by itself"
            )
        configs: Sequence[Any] = getattr(each, "embedding_bag_configs", getattr(each, "embedding_configs", list))()
        virtual = [config.name for config in configs if getattr(config, "use_virtual_table", False)]
        if virtual:
            return (
                f"{', '.join(virtual)} use virtual tables, whose memory follows the ids seen and not the rows, so that"
                f" nothing says what they take; {REMEDY}"
            )
    return None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")


def _is_within(path: str, outer: str) -> bool:
    return not outer or f"{path}.".startswith(f"{outer}.")


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
