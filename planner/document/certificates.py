"""Proofs of bounds, as the document carries them."""

from typing import Annotated, Literal

from pydantic import Field

from cost_models.shards import MemoryTier
from planner.formulation.policy import Ranks
from topologies.documents import Record

Confinement = Annotated[
    Ranks | None,
    Field(
        exclude_if=lambda value: value is None,
        description="Of the group's ranks only these, to which the policy confines tables; unset: all that it leaves.",
    ),
]


class ResourceWeight(Record):
    """The share of a stage's weight that lies on one kind of resource, spread evenly over its instances."""

    stage: str
    """The stage."""
    resource: str
    """The kind of resource."""
    group: str | None
    """Node group whose ranks' resource it is; null for a resource that ranks of several groups share."""
    share: float
    """Of the stage's weight; what all resources and tables have of it is 1 at most."""
    ranks: Confinement = None


class TableWeight(Record):
    """The share of a stage's weight that lies on one table: the stage lasts at least as long as its largest block."""

    stage: str
    """The stage."""
    table: str
    """The table."""
    share: float
    """Of the stage's weight."""
    resource: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Where it is named, the stage lasts as long as the resource that the block loads most is busy: with the block, and
    with what each such resource has of all tables in any case. Only in cases of plans, and where all ranks
    are alike. Unset: the block alone, on whichever resource it takes longest."""


class MemoryMultiplier(Record):
    """The dual multiplier of a memory tier: what a byte of it is worth in the proof."""

    tier: MemoryTier | Literal["loss", "hbm_returned", "hbm_stashed"]
    """The memory; `loss`: the policy's budget of losses, one memory of all ranks; `hbm_returned`: HBM when everything
    that was stashed is back, `hbm_stashed`: what of it is stashed."""
    group: str
    """The node group whose memory it is."""
    seconds_per_byte: float
    """The multiplier."""
    ranks: Confinement = None


class BusyResource(Record):
    """A resource that is busy in a stage."""

    stage: str
    """The stage."""
    resource: str
    """The kind of resource."""


class FunctionMultiplier(Record):
    """A dual feasible function of the shares that blocks take of what the threshold leaves of one resource's stage, and
    the multiplier of one of its instances; or of several stages together, on each rank."""

    stage: str
    """The stage that the resource is busy in."""
    resource: str
    """The kind of resource."""
    group: str
    """The ranks of the node group: blocks that are placed there, and the instances that they use."""
    family: Literal["fekete_schepers", "martello_toth", "burdett_johnson", "carlier_clautiaux_moukrim"]
    """The family of functions, by those who published it."""
    parameter: float
    """Which function of the family."""
    seconds: float
    """The multiplier: seconds that one whole instance is worth."""
    beside: Annotated[tuple[BusyResource, ...], Field(exclude_if=lambda value: not value)] = ()
    """Resources of other stages, where a rank's seconds of all these stages count together, as shares of what the
    threshold leaves of all of them. Each rank has its own of every one of these resources. Unset: none."""


class MemoryFunctionMultiplier(Record):
    """A dual feasible function of the shares that blocks take of one memory pool, and the multiplier of a pool."""

    tier: str
    """The memory tier, as in `memory_multipliers`."""
    group: str
    """The ranks of the node group: blocks that are placed there, and the pools that they use."""
    family: Literal["fekete_schepers", "martello_toth", "burdett_johnson", "carlier_clautiaux_moukrim"]
    """The family of functions, by those who published it."""
    parameter: float
    """Which function of the family."""
    seconds: float
    """The multiplier: seconds that one whole pool is worth."""


class ProofPacking(Record):
    """Why no plan is faster than a threshold: its blocks would not pack into the ranks.

    Below the threshold, the transformed shares of the blocks on one instance sum to one at most; those of the blocks in
    one memory pool do in any case. At these weights and multipliers of memory, of instances and of pools, the cheapest
    options cost at least the threshold, splittable ones cut into whole blocks.
    """

    threshold_s: float
    """No plan is faster than this."""
    weights: tuple[ResourceWeight, ...]
    """Shares of resources, as in the proof that this is part of."""
    memory_multipliers: tuple[MemoryMultiplier, ...]
    """Those of memory that are not 0."""
    functions: tuple[FunctionMultiplier, ...]
    """The dual feasible functions of resources and their multipliers."""
    memory_functions: Annotated[tuple[MemoryFunctionMultiplier, ...], Field(exclude_if=lambda value: not value)] = ()
    """Those of memory."""


class NodeDecision(Record):
    """What a branch node decides: a block of a table, by the numbers of block types in the planner's enumeration."""

    first: int
    """The first of the block types."""
    last: int
    """The block is of one of the types from `first` to `last`."""
    place: int | None
    """Rank, or node of a block that spans one, or -1 for the whole cluster; null: not decided."""


class BranchedTable(Record):
    """What the children of a branch node decide."""

    table: str
    """Its name."""
    part: int
    """0 for the table's widest block (a fixed option's first one), 1 for the next one, and so on."""


class ProofNode(Record):
    """A node of the branch tree: plans that have something in common."""

    parent: int | None
    """Number of the node that it is a child of; null for the root, which holds every plan."""
    decision: NodeDecision | None
    """A block of the table and the part on which the parent branches."""
    branches_on: BranchedTable | None
    """Null for a leaf, which is proven by its own multipliers."""
    weights: tuple[tuple[str, str, int, float], ...] | None
    """(stage, resource, rank, weight of a second on the instance that each rank from this one up to the next entry's
    uses); null where the parent's multipliers hold, here and below."""
    memory_multipliers: tuple[tuple[str, int, float], ...] | None
    """(tier, rank, seconds per byte of the pool that each rank from this one up to the next entry's uses)."""


class ProofTree(Record):
    """Branch nodes that together hold every plan faster than a threshold; the leaves have multipliers."""

    threshold_s: float
    """Its nodes together hold every plan faster than this."""
    nodes: tuple[ProofNode, ...]
    """Each after its parent; the first is the root."""


class DividedCase(Record):
    """A case of plans that is divided by the widest block of a table, or the first one of an option that is not cut."""

    table: str
    """Its name."""
    first: int
    """The first of the block types inside."""
    last: int
    """Inside are the plans where it is one of the block types from `first` to `last` in the planner's enumeration."""


class RefutedCase(Record):
    """A case that has no plan faster than a threshold, as these prices show."""

    threshold_s: float
    """The case has no plan faster than this."""
    prices: tuple[tuple[int, float], ...]
    """(block type, seconds that each block from this one up to the next entry's is worth on a rank, or on all ranks of
    a node; 0 before the first)."""
    memory_multipliers: tuple[MemoryMultiplier, ...]
    """Those of memory that are not 0."""


class ProofPatterns(Record):
    """Why no plan is faster than the least of some thresholds, case by case: below it, what all nodes may hold is worth
    less than the cheapest options of all tables.

    A case that is divided is followed by the part inside, then by all other plans.
    """

    cells: int
    """Into which a threshold is divided: loads are rounded down to whole cells."""
    cases: tuple[DividedCase | RefutedCase, ...]
    """The parts of the cases, each divided one before its two parts."""


class Proof(Record):
    """The multipliers that prove the lower bound: anyone can recompute it from them without a solver.

    Over the blocks that a plan faster than `threshold_s` may hold, each table costs at least what its cheapest option
    costs at these multipliers; less what they make of all memory, that is a lower bound on the step.
    """

    threshold_s: float | None
    """Blocks that alone make the step this long are left out; null: none are. The bound is at most the threshold."""
    weights: tuple[ResourceWeight, ...]
    """Shares that are not 0. Per stage they sum to one at most, together with those of tables; what is missing counts
    the seconds that the stage takes in any case, as its loads are whole multiples of one amount."""
    memory_multipliers: tuple[MemoryMultiplier, ...]
    """Those that are not 0."""
    table_weights: Annotated[tuple[TableWeight, ...], Field(exclude_if=lambda value: not value)] = ()
    """Shares of tables whose largest block alone may outlast the rest of a stage; unset: none."""
    packing: Annotated[ProofPacking | None, Field(exclude_if=lambda value: value is None)] = None
    """Where blocks leave holes on the ranks, what else proves a threshold. The multipliers above say what every stage
    lasts at least."""
    branching: Annotated[ProofTree | None, Field(exclude_if=lambda value: value is None)] = None
    """Where few tables decide, more is proven by branching: the least of the leaves' bounds holds."""
    exhaustive_search_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """An exhaustive search of a small problem found no plan faster than this. Whoever checks it searches again."""
    patterns: Annotated[ProofPatterns | None, Field(exclude_if=lambda value: value is None)] = None
    """Where ranks hold few blocks, what else proves that no plan is faster."""
    stage_cases: Annotated["ProofCases | None", Field(exclude_if=lambda value: value is None)] = None
    """Where a stage's time decides, two cases that prove more: the lesser of their bounds holds."""
    reach_cases: Annotated["ProofReachCases | None", Field(exclude_if=lambda value: value is None)] = None
    """Where it decides how far one table reaches, two such cases."""
    memory_cases: Annotated["ProofMemoryCases | None", Field(exclude_if=lambda value: value is None)] = None
    """Where it decides in which memory one table is, two such cases."""
    protocols: dict[str, int] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Of each stage whose collective has several, the protocol at which costs are proven: 0 has the least latency, the
    next one more and a higher rate, and so on. As `prefetch`, by number, the share of prefetched ids and misses that
    shows beside the lookup."""
    at_other_protocols: Annotated[tuple["Proof", ...], Field(exclude_if=lambda value: not value)] = ()
    """Proofs at other protocols. Where there is none, the weights and multipliers above prove enough there, too; the
    bound is the least over all protocols."""


class ProofCases(Record):
    """What is proven of the plans whose stage is shorter than a time, and of all others.

    In the first case no block is used that alone makes the stage so long, and what fits into it shares so much; in the
    second the stage lasts as long as that, whatever is placed.
    """

    stage: str
    """The stage whose seconds tell the two cases apart."""
    seconds: float
    """Without what of the stage no placement changes."""
    below: Proof
    """The proof of the first case."""
    above: Proof
    """The proof of the second case."""


class ProofReachCases(Record):
    """What is proven of the plans that hold a table by an option of one reach, and of all others."""

    table: str
    """Its name."""
    reach: Literal["rank", "group", "world"]
    """How far the option's first block reaches: one rank, the ranks of one node, or all ranks."""
    inside: Proof
    """The proof of the plans that hold the table so."""
    outside: Proof
    """The proof of all others."""


class ProofMemoryCases(Record):
    """What is proven of the plans that hold a table by an option that takes bytes of one memory, and of all others."""

    table: str
    """Its name."""
    tier: str
    """The memory, as in `memory_multipliers`."""
    inside: Proof
    """The proof of the plans that hold the table so."""
    outside: Proof
    """The proof of all others."""


Proof.model_rebuild()
