"""The strategy of the dense part in a plan document: the one taken, and what was found of others."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from cost_models.activations import are_any_checkpointed
from cost_models.dense_sharding import sharding_of
from cost_models.workload.checkpoints import Checkpointing, in_words
from cost_models.workload.dense_sharding import DenseSharding
from cost_models.workload.models import Workload
from planner.document.replicas import Rejected
from topologies.documents import Record
from topologies.flops import LATER


class TrainedDense(DenseSharding):
    """How a dense part is held, and what of it is computed again."""

    checkpointing: Annotated[Checkpointing | None, LATER] = None
    """Its activation checkpointing; unset: none."""

    @classmethod
    def stated_by(cls, workload: Workload) -> Self:
        """That of a workload."""
        checkpointing = workload.dense.checkpointing if are_any_checkpointed(workload) else None
        return cls(**sharding_of(workload).model_dump(), checkpointing=checkpointing)

    @property
    def words(self) -> str:
        """`fsdp over node, checkpointing full`."""
        held = super().words
        return held if self.checkpointing is None else f"{held}, checkpointing {in_words(self.checkpointing)}"

    @property
    def is_usual(self) -> bool:
        """Whether every rank holds all of it, and nothing is computed again."""
        return not self.is_sharded and self.checkpointing is None

    @property
    def alone(self) -> "TrainedDense":
        """The same, without what a record says beside it."""
        return TrainedDense(
            strategy=self.strategy, over=self.over, layers=self.layers, checkpointing=self.checkpointing
        )


class OtherDense(TrainedDense):
    """A strategy that the policy allows and the plan does not take."""

    rejected: Rejected
    """Why the plan does not take it."""
    lower_bound_s: float | None
    """No plan of it is faster; null where nothing fits."""
    step_s: float | None
    """The best step that was found; null where its bound sufficed, or nothing was found."""
    fullest_bytes: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """HBM in use on its fullest rank."""


class LayerStrategies(Record):
    """That each layer may have a strategy of its own, and what is proven of all of them."""

    lower_bound_s: float
    """No strategies of layers make a shorter step, with any placement of the tables under the plan's exchange of
    vectors: by the multipliers of the plan's proof and a dynamic programme over the layers. What does not add up over
    layers counts as nothing: waits for gathers and sums, and whole weights while they are gathered."""


class PlannedDense(TrainedDense):
    """The strategy that a plan is for, which its workload states, too (`dense.sharding`, `dense.checkpointing`)."""

    others: Annotated[tuple[OtherDense, ...], Field(exclude_if=lambda value: not value)] = ()
    """What was found of the others that the policy allows, of one strategy for all layers each. The bound of the plan
    is one on its own strategy."""
    by_layer: Annotated[LayerStrategies | None, Field(exclude_if=lambda value: value is None)] = None
    """Where layers may have strategies of their own, and there is a plan."""

    @classmethod
    def of(cls, workload: Workload, others: Sequence[OtherDense] = ()) -> "PlannedDense":
        """That of a workload."""
        return cls(**TrainedDense.stated_by(workload).model_dump(), others=tuple(others))
