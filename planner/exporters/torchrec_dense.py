"""How a trainer wraps the dense part of a plan: in PyTorch's FSDP2, or beside a sharded optimizer."""

from typing import Any

from cost_models.dense_sharding import sharding_of
from cost_models.dense_units import MOST_UNITS, UNIT_PARAMETERS
from planner.exporters.refusals import Placed
from topologies.errors import InputError


def dense_strategy(placed: Placed) -> dict[str, Any] | None:
    """What PyTorch takes; None where ranks replicate the dense part. Raises InputError for what PyTorch has not.

    Source: PyTorch 2.8, torch.distributed.fsdp.fully_shard (a 2D mesh is hybrid sharding: the second dimension shards,
    the first replicates) and torch.distributed.optim.ZeroRedundancyOptimizer.
    """
    sharding = sharding_of(placed.model.workload)
    if not sharding.is_sharded:
        return None
    if sharding.strategy == "zero2" or (sharding.strategy == "zero1" and sharding.over == "node"):
        message = f"PyTorch has no {sharding.words}; plan with --dense fsdp, --dense zero1 or --dense replicate"
        raise InputError.at(placed.source, message, path="dense.strategy")
    ranks = placed.ranks_of_host
    mesh = {"world": [sum(ranks)], "node": [len(ranks), ranks[0]]}[sharding.over]
    names = {"world": ["shard"], "node": ["replicate", "shard"]}[sharding.over]
    if sharding.strategy == "zero1":
        return {"wrapper": "torch.nn.parallel.DistributedDataParallel", "optimizer": "ZeroRedundancyOptimizer"}
    return {
        "wrapper": "torch.distributed.fsdp.fully_shard",
        "device_mesh": mesh,
        "mesh_dim_names": names,
        "min_num_params": max(UNIT_PARAMETERS, _parameters(placed) / MOST_UNITS),
        "reshard_after_forward": "all units but the last",
    }


def dense_notes(placed: Placed) -> tuple[str, ...]:
    """What a trainer has to do with it, in words."""
    strategy = dense_strategy(placed)
    if strategy is None:
        return ()
    if "device_mesh" not in strategy:
        return ("The dense part is wrapped in DistributedDataParallel, its optimizer in ZeroRedundancyOptimizer",)
    sizes, names = tuple(strategy["device_mesh"]), tuple(strategy["mesh_dim_names"])
    return (
        "The dense part is wrapped in fully_shard(unit,"
        f" mesh=init_device_mesh('cuda', {sizes}, mesh_dim_names={names}))"
        f" for each run of layers with {strategy['min_num_params']:,.0f} parameters, the last with"
        f" reshard_after_forward=False",
    )


def expect_replicated(placed: Placed, runtime: str) -> None:
    """Raise InputError for a sharded dense part, of which `runtime` is told nothing."""
    sharding = sharding_of(placed.model.workload)
    if sharding.is_sharded:
        message = f"{sharding.words} is nothing that a file of {runtime} says; export to torchrec"
        raise InputError.at(placed.source, message, path="dense.strategy")


def _parameters(placed: Placed) -> float:
    workload = placed.model.workload
    return sum(layer.parameters for layer in workload.layers) or workload.dense.parameters or 0
