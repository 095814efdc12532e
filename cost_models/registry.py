"""The cost models by the names that users know."""

from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.hugectr import HugeCTRModel
from cost_models.model import CostModel
from cost_models.replicas import Replicas, ranks_of
from cost_models.software import software_of
from cost_models.stages import VectorExchange
from cost_models.step import StepModel
from cost_models.torchrec.model import TorchRecModel
from cost_models.towers import why_no_modules, why_no_towers
from cost_models.workload.compressors import NO_COMPRESSOR
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.messages import did_you_mean

COST_MODELS: dict[str, type[CostModel]] = {
    StepModel.name: StepModel,
    TorchRecModel.name: TorchRecModel,
    HugeCTRModel.name: HugeCTRModel,
}


def cost_model(
    name: str,
    topology: Topology,
    workload: Workload,
    reserve: Reserve = NO_RESERVE,
    exchange: VectorExchange = "flat",
    replicas: Replicas | None = None,
    *,
    stashes: bool = False,
) -> CostModel:
    """The costs of a workload on a topology under the model called `name`, with a reserve of memory kept free and
    vectors that are exchanged so; of one group of ranks, where these are in groups that have `replicas` of the tables.
    `stashes`: whether tables may leave HBM between the passes of a step.

    Raises InputError for an unknown name, for an exchange that the model or the cluster does not have, for a model that
    knows one world of ranks only, and for groups that cannot be.
    """
    if name not in COST_MODELS:
        raise InputError.at(name, f"is not a cost model{did_you_mean(name, COST_MODELS)}")
    cluster = ranks_of(replicas, topology)
    if exchange != "flat" and (reason := why_flat(name, cluster, workload)):
        raise InputError.at("policy", f"{exchange}: {reason}; give flat", path="exchange")
    if workload.tower_modules and COST_MODELS[name].quantity != "step":
        reason = f"the rating of {name} knows no modules; leave module out, or choose --cost-model physical"
        raise InputError.at(workload.name, reason, path="towers.module")
    if replicas is not None and workload.tower_modules:
        reason = (
            "no software is known that sums the gradients of modules over groups of ranks (replicas); leave one out"
        )
        raise InputError.at(workload.name, reason, path="towers.module")
    if reason := why_no_modules(cluster, workload, exchange):
        raise InputError.at(workload.name, reason, path="towers")
    if reason := _why_uncompressed(name, workload, replicas):
        raise InputError.at(workload.name, reason, path="tables")
    if stashes and (reason := why_no_stash(name, workload, replicas)):
        raise InputError.at("policy", f"no table is stashed {reason}; leave stash out", path="stash")
    if stashes:
        return StepModel(topology, workload, reserve, exchange, replicas=replicas, stashes=True)
    if replicas is None:
        return COST_MODELS[name](topology, workload, reserve, exchange)
    if name != StepModel.name:
        raise InputError.at("replicas", f"the cost model {name} knows one world of ranks; use {StepModel.name}")
    return StepModel(topology, workload, reserve, exchange, replicas=replicas)


def _why_uncompressed(name: str, workload: Workload, replicas: Replicas | None) -> str | None:
    """Why tables cannot be compressed under a cost model, as the end of a sentence; None where they can, or are not."""
    compressed = [pair for pair in zip(workload.tables, workload.compressors, strict=True) if pair[1] != NO_COMPRESSOR]
    parts = [(table, each) for table, each in compressed if each.kind != "hash"]
    if name != StepModel.name and parts:
        table, compressor = parts[0]
        known = f"{name} rates tables of one part and one width, and {table.name!r} is {compressor}"
        return f"{known}; choose --cost-model {StepModel.name}"
    if replicas is not None and compressed:
        table, compressor = compressed[0]
        return f"{table.name!r} is {compressor}, and copies are costed of whole tables (replicas); leave one out"
    if workload.tower_modules and (short := [table for table, each in parts if each.kind == "dim"]):
        return (
            f"modules of towers read whole vectors, and those of {short[0].name!r} are projected after; leave one out"
        )
    return None


def why_no_stash(name: str, workload: Workload, replicas: Replicas | None) -> str | None:
    """Why no table leaves HBM between the passes, as the end of a sentence; None where some may."""
    if name != StepModel.name:
        return f"by the cost model {name}, which knows no moments of a step; use --cost-model {StepModel.name}"
    if workload.mode != "training":
        return f"where nothing is trained, as by {workload.name}: there is no second pass to be back for"
    if software_of(workload).static_buffers:
        return f"by {workload.software}, whose buffers are there for the whole step; use torchrec"
    if replicas is not None and replicas.is_fully_sharded:
        return "where copies are cut over their replicas, and gathered for both passes (fully_sharded); use default"
    return None


def why_flat(name: str, topology: Topology, workload: Workload) -> str | None:
    """Why the exchange of vectors can only be flat under a cost model on a cluster, or on what one group of ranks has
    of it, as the end of a sentence; None where there is a choice."""
    if COST_MODELS[name].quantity != "step":
        return f"the rating of {name} knows the flat exchange alone"
    return why_no_towers(topology, workload)
