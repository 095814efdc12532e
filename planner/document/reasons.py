"""Why there is no plan, as the document says it."""

from typing import Annotated, Literal

from pydantic import Field

from cost_models.shards import MemoryTier
from planner.document.certificates import MemoryMultiplier
from topologies.documents import Record


class TierShortage(Record):
    """What one tier lacks."""

    tier: MemoryTier
    """The memory."""
    capacity_bytes: int
    """Usable bytes of the whole cluster."""
    short_bytes: int | None
    """How much more of this tier alone would do; null where no amount of it alone does."""


class TableDemand(Record):
    """A table that is to blame."""

    name: str
    """Its name."""
    bytes: int
    """Weights and optimizer state."""
    reason: str
    """Why it is to blame."""


RemedyKind = (
    Literal[
        "tiers",
        "nodes",
        "reserve",
        "dtype",
        "optimizer",
        "optimizer_state",
        "stash",
        "shardings",
        "dense",
        "checkpointing",
    ]
    | MemoryTier
)
"""What a remedy changes: a field of the inputs or the policy, or a memory."""


class Remedy(Record):
    """One change of the inputs, everything else as it is."""

    change: RemedyKind
    """What changes: a field of the inputs or the policy, or a memory."""
    group: str | None
    """The node group that changes; null where it is not the cluster."""
    was: str
    """Its value now, in words."""
    value: str | None
    """The smallest change that makes the tables fit, in whole steps; null where none does."""
    flags: str | None
    """What makes `planner plan` plan with it; null where no value helps."""
    least: str | None
    """The step before this one is proven not to suffice; below `value` where nothing could be placed in between."""
    words: str
    """The change and what it does in one sentence."""


class Infeasibility(Record):
    """Why there is no plan."""

    summary: str
    """The reason in one sentence."""
    tiers: tuple[TierShortage, ...]
    """What each memory lacks."""
    tables: tuple[TableDemand, ...]
    """The tables that are to blame."""
    memory_multipliers: tuple[MemoryMultiplier, ...]
    """At these multipliers even the cheapest options of all tables cost more than all memory; none where a table has no
    option that fits, and after an exhaustive search."""
    exhaustive_search: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether an exhaustive search found that no placement fits; whoever checks it searches again."""
    remedies: tuple[Remedy, ...] = ()
    """Single changes that help, and those that do not."""


class Unplaced(Record):
    """Why a search ended without a plan, though nothing proves that there is none."""

    summary: str
    """The reason in one sentence."""
    tables: tuple[TableDemand, ...]
    """Those whose smallest shards are the largest."""
    remedies: tuple[Remedy, ...] = ()
    """Single changes that help, and those that do not."""
