"""What files of embedding runtimes cannot say of a sharded dense part."""

from cost_models.dense_sharding import sharding_of
from planner.exporters.refusals import Placed
from topologies.errors import InputError


def dense_notes(placed: Placed) -> tuple[str, ...]:
    """Where the strategy of a sharded dense part is written, which is no part of a ShardingPlan."""
    sharding = sharding_of(placed.model.workload)
    if not sharding.is_sharded:
        return ()
    return (f"The dense part is planned as {sharding.words}: export --to fsdp2 writes it as PyTorch takes it",)


def expect_replicated(placed: Placed, runtime: str) -> None:
    """Raise InputError for a sharded dense part, of which `runtime` is told nothing."""
    sharding = sharding_of(placed.model.workload)
    if sharding.is_sharded:
        message = f"{sharding.words} is nothing that a file of {runtime} says; export to torchrec and fsdp2"
        raise InputError.at(placed.source, message, path="dense.strategy")
