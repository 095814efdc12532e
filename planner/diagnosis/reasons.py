"""Why a plan is as it is, as data: reasons for stages, memories, tables and their options."""

from dataclasses import dataclass

from cost_models.error_bars import Cause
from cost_models.model import CostModel
from cost_models.resources import Resource
from cost_models.shards import Floats, MemoryTier, PlacedShards, PlacementTier, Sharding
from planner.diagnosis.exchanges import ExchangeReasons
from planner.diagnosis.fixed_part import FixedCost, FixedSeconds
from planner.diagnosis.forbidden_ways import ForbiddenWay
from planner.diagnosis.network_sums import NetworkSums
from planner.diagnosis.sensitivity import Gain
from planner.document.plan import StageTime, TablePlan


@dataclass(frozen=True)
class Contributor:
    """What takes time of the resource that binds a stage."""

    table: str | None
    """None for what no placement changes: launches and the dense part."""
    seconds: float


@dataclass(frozen=True)
class StageReasons:
    """Why a stage takes as long as it does."""

    stage: StageTime
    resource: Resource | None
    """What binds it, at the critical rank; None where only a constant does."""
    constant_s: float
    hidden_s: float
    """What of its work other stages hide, as the dense stage does of the exchange of the next ids."""
    contributors: tuple[Contributor, ...]
    """The largest first; with the constant they sum to the stage's time and what is hidden of it."""
    bound_s: float | None
    """The stage's part of the lower bound; None where the plan has no proof."""


@dataclass(frozen=True)
class MemoryValue:
    """What more of a scarce memory is worth."""

    tier: MemoryTier
    group: str
    seconds_per_gib: float
    """What the bound falls by at most for 1 GiB more of each pool of the group (each accelerator's, each node's)."""


@dataclass(frozen=True)
class TailStage:
    """A stage in the longest of the scenarios that were sampled."""

    name: str
    seconds: float
    """At the profiles' means."""
    tail_s: float
    """On the mean of the scenarios at the quantile and beyond."""


@dataclass(frozen=True)
class PlanReasons:
    """The plan as a whole."""

    model: CostModel
    stages: tuple[StageReasons, ...]
    memory_bound_s: float | None
    """The part of the bound that memory has: multipliers times (bytes - capacity)."""
    branching_bound_s: float | None
    """What branch nodes, or another proof over whole blocks, add to the bound; None where the plan has no proof."""
    other_protocols_s: float | None
    """What the bound is lower because plans whose exchanges take other protocols may be faster: 0 or less."""
    memory: tuple[MemoryValue, ...]
    gains: tuple[Gain, ...]
    fixed: tuple[FixedCost, ...] = ()
    """Fixed costs of the step; ratings have none."""
    exchange: ExchangeReasons | None = None
    """None where the policy asks for the flat exchange of vectors."""
    tail: tuple[TailStage, ...] = ()
    """Of a plan that was asked for in scenarios."""
    seconds_per_loss: float | None = None
    """What a unit more of the budget of losses would lower the bound by, at most; None without a budget."""
    network_sums: NetworkSums | None = None
    """None where no switches sum."""


@dataclass(frozen=True)
class OptionReasons:
    """One way to hold a table, at the multipliers of the bound."""

    sharding: Sharding
    tier: PlacementTier
    cache_fraction: float | None
    blocks: int
    """Column blocks that the table is cut into."""
    seconds: float
    """Its cost at the multipliers."""
    by_stage: dict[str, float]
    """Its parts; `memory` is that of its bytes."""
    bytes: dict[str, int]
    """In each memory, all shards together."""
    variant: str | None = None
    """What the table becomes, where a policy names variants."""
    is_too_long: bool = False
    """Whether one of its blocks alone makes a step as long as the proof's threshold."""


@dataclass(frozen=True)
class TableReasons:
    """One table."""

    model: CostModel
    table: TablePlan
    stage_seconds: dict[str, float]
    """What it takes of the resource that binds each stage."""
    own_seconds: dict[str, float]
    """The most that it takes of any resource in each stage, on whatever rank."""
    id_sort_s: float
    """The most that sorting its ids takes of the update on any rank: by ids, whatever their number of columns."""
    ids: float
    """Ids that a step looks up over all ranks, after deduplication."""
    distinct_rows: float
    """Rows that these are expected to be."""
    chosen: OptionReasons | None
    """None where the plan has no proof."""
    others: tuple[OptionReasons, ...]
    """The best of each other sharding, tier and cut, the cheapest first."""
    forbidden: tuple[ForbiddenWay, ...] = ()
    """Every other sharding in every tier; none where the plan has no proof, and hence no options to compare with."""


@dataclass(frozen=True)
class RankStage:
    """A stage on one rank."""

    name: str
    seconds: float
    """Of this rank: the others wait for it, or it for them."""
    stage_s: float
    """Of the rank that takes longest."""
    resource: Resource | None
    """What it waits for; None where only a constant, or nothing, takes time."""
    constant_s: float
    hidden_s: float
    contributors: tuple[Contributor, ...]
    """As `StageReasons` has them; of a resource that ranks share, what all of them load it with."""


@dataclass(frozen=True)
class HeldShard:
    """A shard that a rank holds."""

    table: TablePlan
    number: int
    """Its index among the shards of its table."""


@dataclass(frozen=True)
class RankReasons:
    """One rank."""

    model: CostModel
    placed: PlacedShards
    """All shards of the plan."""
    rank: int
    stages: tuple[RankStage, ...]
    shards: tuple[HeldShard, ...]
    rank_bytes: Floats
    """[W, M] of every rank, with the dense part."""


@dataclass(frozen=True)
class StageResource:
    """What a stage asks of one resource, at the slowest rank of a node group."""

    group: str
    resource: Resource
    rank: int
    """The first of the ranks that share the instance that is busy longest."""
    fixed_s: float
    """Launches, the dense part and constants."""
    tables_s: float
    hidden_s: float
    """What other stages hide of it."""

    @property
    def seconds(self) -> float:
        """What shows of it."""
        return max(self.fixed_s + self.tables_s - self.hidden_s, 0.0)


@dataclass(frozen=True)
class StageDetail:
    """What one stage is made of."""

    model: CostModel
    reasons: StageReasons
    resources: tuple[StageResource, ...]
    """The longest first."""
    causes: tuple[Cause, ...]
    """What the seconds of the resource that binds it come from; none of ratings."""
    fixed: tuple[FixedSeconds, ...]
    """Its part of what no placement changes."""
    hidden: tuple[str, ...]
    """Stages whose work runs beside it, and shows in it where it outlasts what hides it."""
    network_sums: NetworkSums | None = None
    """What switches that sum save; None where none do, or no second of this stage."""
