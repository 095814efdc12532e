"""Whether a policy has the dense part checkpointed, or leaves that to the step: the candidates that a plan is sought
for."""

from typing import Literal

from cost_models.activations import expect_checkpointable, is_checkpointable
from cost_models.workload.checkpoints import Checkpointing, in_words
from cost_models.workload.models import Workload
from topologies.errors import InputError

CheckpointingChoice = Literal["none", "full", "auto"]


def with_checkpointing(workload: Workload, checkpointing: Checkpointing | None) -> Workload:
    """The workload whose dense part is checkpointed so."""
    stated = None if checkpointing == "none" else checkpointing
    return workload.model_copy(update={"dense": workload.dense.model_copy(update={"checkpointing": stated})})


def with_settled_checkpointing(workload: Workload, choice: CheckpointingChoice | None) -> Workload:
    """The workload as the policy has it checkpointed; as it is where that says nothing, or leaves it open.

    Raises InputError for a workload that states something else.
    """
    if choice is None or choice == "auto":
        return workload
    _expect_unstated(workload, choice)
    return with_checkpointing(workload, choice)


def checkpoint_candidates(choice: CheckpointingChoice | None, workload: Workload) -> tuple[Workload, ...]:
    """The workload in each way that the policy leaves open, not checkpointed first. A workload that states one has that
    one. Raises InputError for what cannot be had."""
    if choice != "auto" or workload.dense.checkpointing is not None:
        expect_checkpointable(workload)
        return (workload,)
    full = with_checkpointing(workload, "full")
    return (workload, full) if is_checkpointable(full) else (workload,)


def checkpointed_as_found(
    workload: Workload, choice: CheckpointingChoice | None, found: Checkpointing | None
) -> Workload:
    """The workload in the way that a plan has, where the policy leaves it open and the workload states none."""
    is_open = choice == "auto" and workload.dense.checkpointing is None
    return with_checkpointing(workload, found) if is_open else workload


def expect_settled_checkpointing(choice: CheckpointingChoice | None, workload: Workload, cost_model: str) -> None:
    """Raise InputError for a dense part that is not checkpointed as a policy says, and for one in a rating."""
    own = workload.dense.checkpointing or "none"
    if own != "none" and cost_model != "physical":
        message = f"{in_words(own)}: {cost_model} rates tables alone; use the cost model physical"
        raise InputError.at("dense", message, path="checkpointing")
    if choice is None:
        return
    _expect_unstated(workload, choice)
    if choice not in ("auto", own):
        raise InputError.at("dense", f"checkpointing {choice} is not applied here; state it in the workload")


def _expect_unstated(workload: Workload, choice: CheckpointingChoice | None) -> None:
    stated = workload.dense.checkpointing
    if stated is not None and choice not in ("auto", stated):
        message = f"the workload states {in_words(stated)} (dense.checkpointing), the policy {choice}; leave one out"
        raise InputError.at("dense", message, path="checkpointing")
