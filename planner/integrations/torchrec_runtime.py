"""What a trainer needs beside the ShardingPlan, as objects of TorchRec. torch and torchrec are imported inside."""

from typing import TYPE_CHECKING, Any

from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.exporters.torchrec_qcomms import qcomms
from planner.exporters.torchrec_reshard import torchrec_reshard
from planner.integrations.torchrec import Source, exported_document, to_sharding_plan
from topologies.errors import InputError

if TYPE_CHECKING:
    from torch import nn
    from torchrec.distributed.fbgemm_qcomm_codec import QCommsConfig
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.types import EmbeddingModuleShardingPlan, ModuleSharder


def qcomms_config(plan: Source) -> "QCommsConfig | None":
    """The QCommsConfig of the exchanges that the plan's step assumes; None where these are fp32, as by default.

    `plan` is a plan document, the dictionary that `planner export --to torchrec` makes, or a file of either.
    """
    from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig

    document, _ = exported_document(plan, "torchrec_plan")
    told = qcomms(planned_inputs(document)[1]) if isinstance(document, Plan) else document.get("qcomms")
    return None if told is None else QCommsConfig(**{key: CommType(value) for key, value in told.items()})


def sharders_of(plan: Source, *, device: str = "cuda", **more: Any) -> "list[ModuleSharder[Any]]":
    """Sharders of both kinds of collections, whose exchanges are those that the plan's step assumes.

    For `DistributedModelParallel(sharders=…)`; `more` are other arguments of theirs, as `fused_params`.
    """
    import torch
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.fbgemm_qcomm_codec import get_qcomm_codecs_registry

    config = qcomms_config(plan)
    codecs = None if config is None else get_qcomm_codecs_registry(config, device=torch.device(device))
    kinds = (EmbeddingBagCollectionSharder, EmbeddingCollectionSharder)
    return [kind(qcomm_codecs_registry=codecs, **more) for kind in kinds]


def to_reshard(
    before: Source, after: Source, module: "nn.Module", *, compute_device: str | None = None
) -> "dict[str, tuple[float, EmbeddingModuleShardingPlan]]":
    """The tables that change, by module path. Call `reshard` of this module, which moves them, and not
    `DistributedModelParallel.reshard(changed, path)`: TorchRec 1.8 may leave features in their old order there.

    `before` is the plan that the model runs and `after` the new one: plan documents or files of them. `module` is the
    model before it was sharded. The first of each pair is the megabytes (2^20) that the changed shards take, which
    `reshard` hands back. Raises InputError with every table that `reshard` cannot move, and why.
    """
    from torchrec.distributed.types import EmbeddingModuleShardingPlan

    plans, sources = zip(*(_plan(each) for each in (before, after)), strict=True)
    device = compute_device or _device()
    changed = torchrec_reshard(*plans, compute_device=device, sources=sources)
    names = {name for tables in changed["plan"].values() for name in tables}
    reshard = {}
    whole = to_sharding_plan(plans[1], module, compute_device=device)
    for path, tables in whole.plan.items():
        own = {name: held for name, held in tables.items() if name in names or f"{path}.{name}" in names}
        if own:
            reshard[path] = (sum(map(_megabytes, own.values())), EmbeddingModuleShardingPlan(own))
    return reshard


def reshard(
    whole: "DistributedModelParallel", before: Source, after: Source, module: "nn.Module", compute_device: str
) -> float:
    """Move the tables of a running trainer from one plan to another, on every rank; the megabytes that moved.

    `whole` is the sharded model, and `module` the same before it was sharded, as on the meta device: its tables alone
    are read. Raises InputError on every rank, before anything moves, for tables that cannot move (`to_reshard`) and
    for ranks over gloo that do not share one PYTHONHASHSEED.
    """
    changed = to_reshard(before, after, module, compute_device=compute_device)
    _expect_one_hash()
    for path in changed:
        whole.reshard(changed, path)
        sharded: Any = whole.module.get_submodule(path)
        # TorchRec 1.8.0 decides this once: a model whose features came in the order of its tables keeps reading them so
        sharded._has_features_permute = True
    return sum(megabytes for megabytes, _ in changed.values())


def _expect_one_hash() -> None:
    """Raise InputError where `reshard` would wait for ever: it tags what it sends by hashes of names, which Python
    draws anew for each process, and gloo matches tags."""
    import torch.distributed as dist

    if "gloo" not in dist.get_backend():
        return
    hashes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hashes, hash("a"))
    if len(set(hashes)) > 1:
        message = "has to be one number on all ranks: over gloo TorchRec's reshard waits for ever without it"
        raise InputError.at("PYTHONHASHSEED", message)


def _plan(source: Source) -> tuple[Plan, str]:
    from planner.verification.loading import load_plan

    if isinstance(source, Plan):
        return source, "plan"
    if not isinstance(source, str) and not hasattr(source, "__fspath__"):
        raise InputError.at("plan", "is no plan document and no file of one")
    return load_plan(str(source)), str(source)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _megabytes(tensor: Any) -> float:
    """Megabytes of the shards in fp32, as TorchRec counts them."""
    return sum(float(shard.shard_sizes[0] * shard.shard_sizes[1] * 4 / 2**20) for shard in tensor.sharding_spec.shards)
