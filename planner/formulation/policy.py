"""What a plan may use: the policy file, the flags that narrow it, and what a runtime can execute.

Limits only ever narrow. Whatever stands at the top of a policy holds for every table, and so do all rules that match a
table, in whatever order they stand, and all flags: a tier must be allowed by each of them, a rank by none forbidden.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from cost_models.amounts import Amount, Reserve
from cost_models.shards import (
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    STASHED_TIERS,
    STATE_PLACES,
    TIERS,
    USUAL_SHARDINGS,
    PlacementTier,
    Sharding,
    StatePlace,
)
from cost_models.stages import VectorExchange
from cost_models.workload import spellings
from cost_models.workload.formats import DTYPES
from cost_models.workload.table_names import Globs
from cost_models.workload.words import Dtype
from planner.formulation.checkpoint_choices import CheckpointingChoice
from planner.formulation.dense_choices import DenseChoices
from planner.formulation.goal_words import Goals
from planner.formulation.loss_tables import read_losses
from planner.formulation.rank_words import parse_ranks, rank_ranges
from planner.formulation.replica_choices import ReplicaChoices
from planner.formulation.robust_aim import RobustAim, as_aim
from planner.formulation.runtimes import RUNTIMES, Runtime
from planner.formulation.stash_words import StashWays
from planner.formulation.variant_words import VariantChoice
from topologies.cluster import Topology
from topologies.document_kinds import expect_kind
from topologies.documents import Document, Record, read_yaml, validate, with_fields
from topologies.errors import ConflictError, InputError, shown
from topologies.flops import LATER
from topologies.shelf import what_is_missing
from topologies.sources import is_file, is_pipe
from topologies.units import MOST_BYTES, Share, parse_fraction, parse_quantity


def _parse_amount(value: object) -> Amount:
    if isinstance(value, Amount):
        return value
    try:
        return Amount(share=parse_fraction(value))
    except ValueError:
        if not isinstance(value, str) or not re.search(r"[A-Za-z]", value):
            raise ValueError(f"{shown(value)} is neither a share nor a size; write 10% or 4GiB") from None
    size = parse_quantity(value, "byte", "10% or 4GiB")
    if not 0 <= size <= MOST_BYTES:
        raise ValueError(f"{shown(value)} must be at least 0 and at most 1 EiB")
    return Amount(size=round(size))


def _in_order(known: Sequence[str]) -> AfterValidator:
    def order(words: tuple[str, ...]) -> tuple[str, ...]:
        if not words:
            raise ValueError("must not be empty")
        return tuple(word for word in known if word in words)

    return AfterValidator(order)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_group(value: object) -> object:
    return {"tables": value} if isinstance(value, list | tuple) else value


def _off(value: object) -> object:
    return OFF if value is False else value  # YAML 1.1 reads off as false


USUAL_TIERS: tuple[PlacementTier, ...] = tuple(
    tier for tier, row in TIERS.items() if row.how not in ("split", "mixed", "stashed")
)
"""No runtime that we know reads a split table, or one of two precisions, and a trainer has to be told what it stashes:
such tiers are used where they are named only."""
Tiers = Annotated[tuple[PlacementTier, ...], BeforeValidator(_as_list), _in_order(PLACEMENT_TIERS)]
Shardings = Annotated[tuple[Sharding, ...], BeforeValidator(_as_list), _in_order(SHARDINGS)]
StatePlaces = Annotated[tuple[StatePlace, ...], BeforeValidator(_as_list), _in_order(STATE_PLACES)]
Dtypes = Annotated[
    tuple[Annotated[Dtype, BeforeValidator(spellings.dtype)], ...], BeforeValidator(_as_list), _in_order(DTYPES)
]
OFF = "off"
PrecisionCaches = Annotated[
    tuple[Annotated[Literal["off"] | Annotated[Share, Field(gt=0)], BeforeValidator(_off)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
]
_RANKS_SCHEMA = {"type": ["integer", "string", "array"], "examples": ["0-7", [0, "4-5"]]}
Ranks = Annotated[
    tuple[int, ...],
    BeforeValidator(parse_ranks),
    PlainSerializer(rank_ranges, return_type=str),
    WithJsonSchema(_RANKS_SCHEMA),
]
Kept = Annotated[
    Amount,
    BeforeValidator(_parse_amount),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["10%", "4GiB"]}),
]
Exchange = VectorExchange | Literal["auto"]


class Limits(Record):
    """What tables may use. A key that is left out limits nothing."""

    tiers: Tiers | None = None
    """Only these."""
    forbid_tiers: Tiers | None = None
    """Where they may not be placed."""
    shardings: Shardings | None = None
    """Only these."""
    tiers_of: dict[Sharding, Tiers] | None = None
    """Only these tiers where a table is held in a sharding; shardings that are left out are limited by `tiers`
    alone."""
    cache_fraction: Annotated[Share, Field(gt=0)] | None = None
    """In tiers that are partly in HBM, HBM holds this share of the rows and no other; left out: the share that makes
    the step shortest."""
    precision_caches: Annotated[PrecisionCaches | None, LATER] = None
    """Beside tables in HBM, a cache in fp32 holds one of these shares of the rows, those read last; `off`: or there is
    none. Whichever makes the step shorter; left out: what the workload says of each table."""
    dtypes: Dtypes | None = None
    """Rows are stored in one of these formats, whichever makes the step shorter; left out: in the workload's."""
    stash: Annotated[StashWays | None, LATER] = None
    """What of tables in HBM is copied to DDR after the lookup and back before the update, so that activations have its
    place: rows (`weights`), optimizer state (`optimizer`), both (`all`), or `none`; whichever of several makes the step
    shorter. `auto`: any of these. Left out: none."""
    optimizer_state: StatePlaces | None = None
    """The optimizer state is in one of these places, whichever makes the step shorter; left out: with the rows
    (with_table)."""
    ranks: Ranks | None = None
    """Every shard of the tables stays on these."""
    nodes: Ranks | None = None
    """Every shard of the tables stays on the ranks of these, numbered from 0 in the order of the topology."""
    forbid_ranks: Ranks | None = None
    """Ranks that hold none of them: numbers and ranges, as 0-3."""
    max_shards: Annotated[int, Field(ge=1)] | None = None
    """Parts that a table may be cut into. Replicas (data_parallel) are one part. Where its columns have more than 64
    partitions into so many parts, its blocks are wider than 1/(max_shards + 1) of them."""
    column_multiple: Annotated[int, Field(ge=1)] | None = None
    """Widths of blocks are multiples of this; a table whose own width is none is not cut by columns."""


class TableRule(Limits):
    """Limits of the tables whose names match."""

    match: Globs
    """Names or patterns of the tables that the rule is for."""
    unless: Globs | None = None
    """Names that the rule spares."""


class Group(Record):
    """Tables that are to be together or apart. A plain list of names means `on: rank`."""

    tables: Globs
    """Their names, or patterns."""
    on: Literal["rank", "node"] = "rank"
    """What they share or do not share: a rank, or a node."""


@with_fields({memory: Annotated[Kept, Field(default=Amount(), description=f"Of {memory}.")] for memory in MEMORY_TIERS})
class PolicyReserve(Record):
    """Memory that stays free beyond the topology's own reserve: a share of what that leaves, or bytes per rank (HBM),
    per node (DDR, SSD, storage-class memory) and of all hosts of a node group (remote)."""

    def amounts(self) -> Reserve:
        """What is kept free of each memory, as cost models take it."""
        return {tier: getattr(self, tier) for tier in MEMORY_TIERS}


class Policy(Limits):
    """What a plan may use. Limits at the top hold for all tables, those of `tables` for the ones that match."""

    kind: Literal["policy"] = "policy"
    """Says what the file is."""
    schema_version: Literal[1] = 1
    """The version of this format."""
    runtime: Runtime = "any"
    """What is to execute the plan: only what it executes correctly is used, and times are those of its software profile
    unless the workload's user chose one."""
    tiers: Tiers = USUAL_TIERS
    """Where tables may be placed."""
    shardings: Shardings = USUAL_SHARDINGS
    """How tables may be cut."""
    exchange: Annotated[Exchange, Field(exclude_if=lambda exchange: exchange == "flat")] = "flat"
    """How vectors come to the ranks of their samples, and gradients back: at once (flat), inside each tower (a scale-up
    domain, or several) first and then among the ranks at one place in all towers (sptt), or whichever makes the step
    shorter (auto). No runtime that we know exchanges as sptt does: with one, auto means flat."""
    reserve: PolicyReserve = PolicyReserve()
    """Memory that stays free beyond the topology's own reserve."""
    tables: tuple[TableRule, ...] = ()
    """Further limits of the tables whose names match; all rules that match hold."""
    colocate: tuple[Annotated[Group, BeforeValidator(_as_group)], ...] = ()
    """Groups of tables whose shards are all on one and the same rank, hence whole tables; or on one node."""
    separate: tuple[Annotated[Group, BeforeValidator(_as_group)], ...] = ()
    """Groups of tables of which no two have shards on the same rank; or on the same node."""
    variants: Annotated[VariantChoice | None, LATER] = None
    """Compressors and formats that tables may have, with what each costs in quality, and the budget for that: whichever
    make the step shortest within it. Unset: tables are what the workload says."""
    replicas: Annotated[ReplicaChoices | None, LATER] = None
    """Copies of all tables, each over a group of the ranks, which limits then number within; unset: one world."""
    dense: Annotated[DenseChoices | None, LATER] = None
    """How ranks hold the dense part; unset: as the workload says, which is replicated where it says nothing."""
    checkpointing: Annotated[CheckpointingChoice | None, LATER] = None
    """Whether the layers of the dense part are computed again in the backward pass (full), or not (none), or whichever
    makes the step shorter (auto). Unset: as the workload says."""
    robust: Annotated[RobustAim | None, BeforeValidator(as_aim), LATER] = None
    """A quantile of the step over scenarios that is to be small (`p95`, or more about them). Unset: the step at the
    profiles' means."""

    goals: Annotated[Goals | None, LATER] = None
    """What plans are told apart by, the most important first, each with the share of its best value that may be given
    up for those after it. Unset: step, crowded_ranks, blocks, fullest_rank; with a former plan step, moved_bytes."""

    @model_validator(mode="after")
    def _exchange_of_runtime(self) -> Self:
        if self.runtime != "any" and self.exchange not in ("auto", *RUNTIMES[self.runtime].exchanges):
            message = f"{self.exchange} is no exchange of {self.runtime}; give flat, or leave the runtime out"
            raise ConflictError(message, "exchange", "runtime")
        return self

    @model_validator(mode="after")
    def _robust_of_one_world(self) -> Self:
        for name, words, is_there in (
            ("goals", "a robust plan is the one with the least quantile", self.goals is not None),
            ("replicas", "robust plans are those of one world", self.replicas is not None),
            ("dense", "robust plans are those of a replicated dense part", self.dense is not None),
            ("exchange", "robust plans are of one exchange, flat or sptt", self.exchange == "auto"),
            ("variants", "robust plans are of the tables that the workload says", self.variants is not None),
        ):
            if self.robust is not None and is_there:
                raise ConflictError(f"{words}; leave one of both out", "robust", name)
        return self

    @model_validator(mode="after")
    def _variants_of_one_world(self) -> Self:
        if self.variants is not None and self.replicas is not None:
            message = "which copies a table has is chosen for the tables that the workload says; leave one of both out"
            raise ConflictError(message, "variants", "replicas")
        return self

    @property
    def stashes(self) -> bool:
        """Whether some table may leave HBM between the passes of a step."""
        every = (self, *self.tables)
        named = {tier for limits in every for tier in limits.tiers or ()}
        return any(set(limits.stash or ()) - {"none"} for limits in every) or not named.isdisjoint(STASHED_TIERS)

    def expect_stated_tables(self, what: str) -> None:
        """Raise InputError for a policy that asks `what`, which takes tables as the workload says, to choose others."""
        if self.variants is not None:
            raise InputError.at("policy", f"{what} of the tables that the workload says; leave it out", path="variants")

    def expect_no_moves(self) -> None:
        """Raise InputError for a goal that only plans that follow others have."""
        if any(goal.name == "moved_bytes" for goal in self.goals or ()):
            message = "moved_bytes is of a plan that follows another; give that one (--from), or leave it out"
            raise InputError.at("policy", message, path="goals")

    def expect_no_goals(self, what: str) -> None:
        """Raise InputError for goals that `what` does not pursue."""
        if self.goals is not None:
            raise InputError.at("policy", f"{what}; leave goals out", path="goals")

    def expect_nominal(self, what: str) -> None:
        """Raise InputError for a policy that asks `what`, which knows the profiles' means alone, for a robust plan."""
        if self.robust is not None:
            raise InputError.at("policy", f"{what} of the profiles' means; leave robust out", path="robust")


def policy_document(source: Policy | str | Path | None) -> Document:
    """The policy as data that flags may narrow: of a file, of a model, or of nothing. Raises InputError."""
    if source is None:
        return Document({}, "policy")
    if isinstance(source, Policy):
        return Document(source.model_dump(mode="json", exclude_defaults=True), "policy")
    path = Path(source)
    if not (is_file(path) or is_pipe(path)):
        raise InputError.at(str(source), what_is_missing(str(source), "a policy", ()))
    document = read_yaml(path)
    expect_kind(document, "policy")
    read_losses(document)
    return document


def offered(policy: Policy, topology: Topology, cost_model: str) -> Policy:
    """The policy with the shardings that none but its runtime has, where it leaves open which there are.

    Rows over several nodes need three nodes with as many ranks each, rows over several ranks a single node, or scale-up
    domain, with three, and both the cost model of steps.
    """
    is_open = policy.runtime != "any" and "shardings" not in policy.model_fields_set
    if not is_open or cost_model != "physical":
        return policy
    unusual = (sharding for sharding in RUNTIMES[policy.runtime].shardings if sharding not in USUAL_SHARDINGS)
    own = [sharding for sharding in unusual if has_sites(sharding, topology)]
    return policy.model_copy(update={"shardings": (*policy.shardings, *own)}) if own else policy


NEEDED_SITES: dict[Sharding, str] = {
    "multi_node_row_wise": "multi_node_row_wise needs three nodes or more with as many ranks each; on a single node,"
    " multi_rank_row_wise",
    "multi_rank_row_wise": "multi_rank_row_wise needs a single node, or scale-up domain, of three ranks or more; beyond"
    " it, multi_node_row_wise",
}
"""What `has_sites` asks of a cluster, and what takes its place on another."""


def has_sites(sharding: Sharding, topology: Topology) -> bool:
    """Whether the rows of a table can be on some, but not all, of the sites of a sharding that cuts them into parts."""
    if SHARDING_ROWS[sharding].is_within_domain:
        return topology.is_one_domain and topology.world_size > 2
    return topology.node_count > 2 and len({group.accelerators.count for group in topology.nodes}) == 1


def narrow(document: Document, key: str, value: Any, words: str, match: str | None = None) -> None:
    """One more limit: for the tables that match, or for all. `words` is how the user said it."""
    if not isinstance(document.data, dict):
        return  # said when it is validated
    origin = (Document(None, words), ())
    if match is None and document.data.get(key) is None:
        document.data[key] = value
        document.overridden[(key,)] = origin
        return
    rules = document.data.get("tables")
    rules = [] if rules is None else rules
    if isinstance(rules, list):
        document.data["tables"] = [*rules, {"match": match or "*", key: value}]
        document.overridden[("tables", len(rules))] = origin


def replace(document: Document, path: Sequence[str], value: Any, words: str) -> None:
    """Say a value anew; `words` is how the user said it."""
    here = document.data
    for key in path[:-1]:
        if isinstance(here, dict):
            here[key] = here.get(key) or {}
            here = here[key]
    if isinstance(here, dict):
        here[path[-1]] = value
        document.overridden[tuple(path)] = (Document(None, words), ())


def load_policy(source: str | Path) -> Policy:
    """The policy of a file. Raises InputError with every fault of it.

    Whether its names are those of tables and its ranks exist is seen when it meets a workload and a topology.
    """
    return validate(policy_document(source), Policy)
