"""Groups of ranks in a plan document: which copies of the tables there are, and what was found of other choices."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from cost_models.model import CostModel
from cost_models.replicas import ReplicaRule, Replicas, SyncStrategy, groups_in_words
from topologies.documents import Record
from topologies.errors import InputError
from topologies.hardware import Count
from topologies.replica_groups import Layout

Rejected = Literal["bound", "plan", "infeasible", "timeout"]
"""Why a choice of replicas was not taken: by its bound no plan of it is faster; the one that was found is not; nothing
fits; no plan was found in time."""


class OtherReplicas(Record):
    """A choice of replicas that the policy allows and the plan does not take."""

    factor: Count
    """Groups, each with a copy of all tables."""
    layout: Layout | None
    """Which ranks a group has: see `replicas.layout`; null for one world."""
    rejected: Rejected
    """Why the plan does not take it."""
    lower_bound_s: float | None
    """No plan of it is faster; null where nothing fits."""
    step_s: float | None
    """The best step that was found; null where its bound sufficed, or nothing was found."""
    stages: Annotated[dict[str, float] | None, Field(exclude_if=lambda value: value is None)] = None
    """Seconds of its stages; unset without a step."""
    fullest_bytes: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """HBM in use on its fullest rank."""


class PlannedReplicas(Record):
    """The groups of ranks that a plan is for. Its ranks are those of one group, from 0; every other group has the same
    shards on its own."""

    factor: Count
    """Groups, each with a copy of all tables. 1: all ranks are one world."""
    layout: Layout | None
    """intra: group i has the ranks i, M + i, 2 M + i, ...; inter: a run of ranks. Null for one world."""
    strategy: SyncStrategy | None
    """How copies are brought together; null for one world."""
    sync_every: Count | None
    """Steps from one averaging of weights to the next."""
    state_every: Count | None
    """The same of optimizer state; null where it is never averaged."""
    group_ranks: Count
    """Ranks of a group."""
    rules: Annotated[tuple[ReplicaRule, ...], Field(exclude_if=lambda rules: not rules)] = ()
    """Tables with more copies than `factor`: so many ranks of a group have the same shards of them."""
    others: Annotated[tuple[OtherReplicas, ...], Field(exclude_if=lambda value: not value)] = ()
    """What was found of the policy's other choices. The bound of the plan is one on its own choice."""

    @classmethod
    def of(cls, model: CostModel, others: Sequence[OtherReplicas] = ()) -> "PlannedReplicas":
        """Those of a cost model."""
        chosen, ranks = model.replicas, model.topology.world_size
        if chosen is None:
            one = dict.fromkeys(("layout", "strategy", "sync_every", "state_every"))
            return cls(factor=1, group_ranks=ranks, others=tuple(others), **one)
        return cls(**chosen.model_dump(), group_ranks=ranks, others=tuple(others))

    @property
    def is_one_world(self) -> bool:
        """Whether no table has copies."""
        return self.factor == 1 and not self.rules

    @property
    def words(self) -> str:
        """`4 replicas (intra)`, `one world`."""
        return groups_in_words(self.chosen)

    @property
    def chosen(self) -> Replicas | None:
        """As cost models take them; None for one world. Raises ValueError for what cannot be."""
        if self.is_one_world:
            return None
        fields = self.model_dump(include=set(Replicas.model_fields), exclude_none=True)
        return Replicas.model_validate(fields)


def expect_one_world(replicas: PlannedReplicas | None, source: str, what: str) -> None:
    """Raise InputError for a plan in groups of ranks, where `what` is about to be done that knows one world only."""
    if replicas is None or replicas.is_one_world:
        return
    groups = f"has {replicas.factor} groups of {replicas.group_ranks} ranks"
    if replicas.factor == 1:
        groups = f"has copies of tables ({', '.join(rule.words for rule in replicas.rules)})"
    raise InputError.at(source, f"{groups}, and {what}")
