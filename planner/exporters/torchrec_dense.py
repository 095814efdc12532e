"""What files of embedding runtimes cannot say of a dense part that is sharded or checkpointed."""

from planner.document.dense import TrainedDense
from planner.exporters.refusals import Placed
from topologies.errors import InputError


def dense_notes(placed: Placed) -> tuple[str, ...]:
    """Where it is written how the dense part is sharded and checkpointed, which is no part of a ShardingPlan."""
    dense = TrainedDense.stated_by(placed.model.workload)
    if dense.is_usual:
        return ()
    return (f"The dense part is planned as {dense.words}: export --to fsdp2 writes it as PyTorch takes it",)


def expect_replicated(placed: Placed, runtime: str) -> None:
    """Raise InputError for a sharded or checkpointed dense part, of which `runtime` is told nothing."""
    dense = TrainedDense.stated_by(placed.model.workload)
    if not dense.is_usual:
        message = f"{dense.words} is nothing that a file of {runtime} says; export to torchrec and fsdp2"
        raise InputError.at(
            placed.source, message, path="dense.strategy" if dense.is_sharded else "dense.checkpointing"
        )
