"""The plan document: what is placed where, what it costs, and what it was computed for. Stable JSON.

Shards are kept as arrays, because a replicated table has one on every rank: 10,000 tables on 1,024 ranks make
millions. In JSON they are a list of objects.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from cost_models.shards import EVERYWHERE, MEMORY_TIERS, Ints, MemoryTier, PlacementTier, Sharding, StatePlace
from cost_models.workload.models import Dtype
from planner.document.files import faults_located, read_json, write_file
from planner.formulation.option_space import FEW_CUTS, Cuts
from planner.formulation.policy import Policy, Ranks
from topologies.documents import Document, Record, validate
from topologies.errors import InputError

SCHEMA_VERSION: Literal[1] = 1
_SHARD_KEYS = ("rank", "row_start", "rows", "column_start", "columns", "bytes")
_HOT_ROWS = "hot_rows"
"""The key that only shards of split tables have."""

Status = Literal["optimal", "feasible", "infeasible", "timeout"]


@dataclass(frozen=True, eq=False)
class Shards:
    """The shards of one table as arrays of [n], in the order of their columns, then rows."""

    rank: Ints
    row_start: Ints
    rows: Ints
    column_start: Ints
    columns: Ints
    bytes: Ints
    """[n, M] in each memory: weights, optimizer state, cache, and the ids and outputs in flight."""
    hot_rows: Ints | None = None
    """Of a split table: the first so many rows of the shard are in HBM, the others at home; None of any other."""

    def __len__(self) -> int:
        return len(self.rank)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shards) or (self.hot_rows is None) != (other.hot_rows is None):
            return False
        own, theirs = self._hot_rows(), other._hot_rows()
        return np.array_equal(self.as_matrix(), other.as_matrix()) and np.array_equal(own, theirs)

    def _hot_rows(self) -> Ints:
        """[n, 1] what is written of them, [n, 0] where nothing is."""
        return np.zeros((len(self), 0), dtype=np.int64) if self.hot_rows is None else self.hot_rows[:, None]

    def as_matrix(self, *, named: bool = False) -> Ints:
        """[n, 5 + M] in the order of the keys of the document; with the memories that it names only, if so wanted."""
        own = np.stack([self.rank, self.row_start, self.rows, self.column_start, self.columns], axis=1)
        kept = [MEMORY_TIERS.index(tier) for tier in (self._tiers() if named else MEMORY_TIERS)]
        return np.concatenate([own, self.bytes[:, kept]], axis=1)

    @classmethod
    def from_matrix(cls, matrix: Ints, memories: Sequence[MemoryTier] | None = None) -> "Shards":
        """The inverse of `as_matrix`; of a matrix with the bytes in some `memories` only, else the first ones."""
        rank, row_start, rows, column_start, columns = matrix[:, :5].T
        size = np.zeros((len(matrix), len(MEMORY_TIERS)), dtype=np.int64)
        held = MEMORY_TIERS[: matrix.shape[1] - 5] if memories is None else memories
        size[:, [MEMORY_TIERS.index(tier) for tier in held]] = matrix[:, 5:]
        return cls(rank, row_start, rows, column_start, columns, size)

    def to_json(self) -> str:
        """The list of objects of the document, one to a line."""
        tiers = self._tiers()
        sizes = ",".join(f'"{tier}":%d' for tier in tiers)
        hot = "" if self.hot_rows is None else f',"{_HOT_ROWS}":%d'
        line = '{"rank":%d,"row_start":%d,"rows":%d,"column_start":%d,"columns":%d,"bytes":{' + sizes + "}" + hot + "}"
        matrix = np.concatenate([self.as_matrix(named=True), self._hot_rows()], axis=1)
        if len(matrix) > 1 and (matrix[:, 1:] == matrix[0, 1:]).all():  # replicas differ in their rank only
            head, tail = line.split("%d", maxsplit=1)
            rest = tail % tuple(matrix[0, 1:].tolist())
            return head + f"{rest},\n{head}".join(map(str, self.rank.tolist())) + rest
        return ",\n".join(line % tuple(row) for row in matrix.tolist())

    def _tiers(self) -> list[MemoryTier]:
        """Whose bytes are written."""
        used: list[bool] = np.asarray(self.bytes.any(axis=0)).tolist()
        return [tier for tier, any_bytes in zip(MEMORY_TIERS, used, strict=True) if tier in EVERYWHERE or any_bytes]

    def to_list(self) -> list[dict[str, Any]]:
        """The list of objects of the document."""
        tiers, hot_rows = self._tiers(), self._hot_rows().tolist()
        return [
            dict(zip(_SHARD_KEYS, (*row[:5], dict(zip(tiers, row[5:], strict=True))), strict=True))
            | dict(zip((_HOT_ROWS,), hot, strict=False))
            for row, hot in zip(self.as_matrix(named=True).tolist(), hot_rows, strict=True)
        ]

    @classmethod
    def _from_list(cls, items: Any) -> "Shards":
        if isinstance(items, Shards):
            return items
        if not isinstance(items, list):
            raise ValueError("must be a list of shards")
        rows = []
        keys = (*_SHARD_KEYS, _HOT_ROWS) if any(map(_is_split, items[:1])) else _SHARD_KEYS
        for number, item in enumerate(items):
            try:
                size = item["bytes"]
                row = [item[key] for key in _SHARD_KEYS[:5]] + [size[tier] for tier in EVERYWHERE]
                row += [size.get(tier, 0) for tier in MEMORY_TIERS[len(EVERYWHERE) :]]
                row += [item[key] for key in keys[len(_SHARD_KEYS) :]]
            except (KeyError, TypeError) as error:
                raise ValueError(f"shard {number} lacks {error} or is no mapping") from None
            if not all(type(value) is int and 0 <= value < 2**63 for value in row):
                raise ValueError(f"shard {number} must hold whole numbers, none below 0")
            if len(item) != len(keys) or not set(size) <= set(MEMORY_TIERS):
                raise ValueError(f"shard {number} has unknown keys")
            rows.append(row)
        width = 5 + len(MEMORY_TIERS)
        matrix = np.array(rows, dtype=np.int64).reshape(len(rows), width + len(keys) - len(_SHARD_KEYS))
        shards = cls.from_matrix(matrix[:, :width])
        return shards if keys == _SHARD_KEYS else replace(shards, hot_rows=matrix[:, width])

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._from_list, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_list)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = {"type": "integer", "minimum": 0}
        size = {"type": "object", "properties": dict.fromkeys(MEMORY_TIERS, whole), "required": list(EVERYWHERE)}
        words = "Of a split table: the first so many rows of the shard are in HBM, the others at home; else unset."
        properties = {**dict.fromkeys(_SHARD_KEYS[:5], whole), "bytes": size}
        properties[_HOT_ROWS] = {**whole, "description": words}
        return {
            "type": "array",
            "items": {"type": "object", "properties": properties, "required": list(_SHARD_KEYS)},
        }


def _is_split(shard: object) -> bool:
    return isinstance(shard, dict) and _HOT_ROWS in shard


class ErrorBar(Record):
    """Where a predicted time would be measured: `coverage` of the measurements lie between `low_s` and `high_s`."""

    low_s: float
    high_s: float
    coverage: float
    basis: str
    """What the prediction rests on: coefficients with data, whole steps that were measured."""
    spec_only: tuple[str, ...] = ()
    """Devices, links and networks of which there are no data, only a data sheet and what others achieve of theirs."""


class Objective(Record):
    """What the planner minimised: the step in seconds, or the rating of the cost model (hugectr: without a unit)."""

    step_s: float
    lower_bound_s: float
    """No placement is faster that the policy allows and that is one of the options: `provenance.cuts` and
    `provenance.cache_fractions` say which these are."""
    gap: float
    """step_s / lower_bound_s - 1."""
    outside: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Tables that this plan holds in ways that are no options, so that it may be faster than the bound; of imported
    plans only."""
    error_bar: ErrorBar | None = None
    """Of step_s; null where `no_error_bar` says why."""
    no_error_bar: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    best_step_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """The shortest step found, where up to 0.1 % of it was given up for what else is wanted: with a former plan fewer
    moved bytes; else no rank above 90 % of its usable HBM, then few blocks, then a fullest rank that is less full."""
    given_up_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """step_s - best_step_s."""


class Simulated(Record):
    """The step as the event-driven simulator plays it."""

    step_s: float
    samples_per_s: float
    exposed_comm_fraction: float


class StageTime(Record):
    """One stage of the step."""

    name: str
    seconds: float
    critical_rank: int | None
    """The first rank that makes the stage as long as it is; null where only a constant does."""
    error_bar: ErrorBar | None = None
    """Of `seconds`."""


class TierBytes(Record):
    """Bytes in each memory tier."""

    hbm: int
    ddr: int
    ssd: int
    scm: Annotated[int, Field(exclude_if=lambda size: size == 0)] = 0
    remote: Annotated[int, Field(exclude_if=lambda size: size == 0)] = 0

    @classmethod
    def of(cls, memories: Iterable[MemoryTier], sizes: Iterable[float]) -> "TierBytes":
        """Of the bytes in each of some memories, rounded."""
        return cls(**dict(zip(memories, (round(size) for size in sizes), strict=True)))

    @property
    def total(self) -> int:
        """In all tiers."""
        return sum(getattr(self, tier) for tier in MEMORY_TIERS)


class Remap(Record):
    """How the rows of a split table are numbered: a shard's hot ones first, then its others.

    Every shard of the same rows has the same hot ones, so that one numbering serves all column blocks.
    """

    hot_rows: int
    """Rows in HBM, of all shards of a column block together."""
    ids: Literal["ranked", "mapped"]
    """ranked: ids are ranks, 0 is read most. The first hot_rows are hot; these are dealt to the row blocks in turn, and
    then the others: with one row block, an id is its row. mapped: the file has the row of every id."""
    path: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Of mapped ids: a .npy file, relative to the plan's folder, int32 or int64: the row of each id."""
    sha256: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Of that file's bytes."""

    @model_validator(mode="after")
    def _file_of_mapped(self) -> Self:
        if {self.path is None, self.sha256 is None} != {self.ids == "ranked"}:
            raise ValueError("path and sha256 go with mapped ids, and only with them")
        return self


class TablePlan(Record):
    """Where one table lives."""

    name: str
    sharding: Sharding
    tier: PlacementTier
    dtype: Dtype
    cache_fraction: float | None
    """Share of the rows that the HBM cache holds; null where there is none."""
    optimizer_state: Annotated[StatePlace, Field(exclude_if=lambda place: place == "with_table")] = "with_table"
    """Where the optimizer state is; unset: where the rows are at home."""
    remap: Annotated[Remap | None, Field(exclude_if=lambda value: value is None)] = None
    """How the rows of a split table are numbered; unset for any other."""
    shards: Shards


class RankPlan(Record):
    """What one rank holds and how long it is busy."""

    rank: int
    node: int
    bytes: TierBytes
    """All that the rank takes, the dense part included."""
    capacity: TierBytes
    """Usable bytes, after the reserve: its own HBM, and the memories that it shares with its node or its node group (or
    its own part of them, where the cost model gives each rank one)."""
    seconds: dict[str, float]
    """Per stage, on the resources that the rank uses."""


class Source(Record):
    """An input that the plan was computed for."""

    name: str
    fingerprint: str
    """Content hash over all fields."""
    content: dict[str, Any]
    """The input itself, with every override; fields at their default are left out."""


class CoefficientSources(Record):
    """The coefficient files behind the costs."""

    fingerprint: str
    software: str
    devices: tuple[str, ...]
    links: tuple[str, ...]
    kinds: dict[str, int]
    """How many of the coefficients are spec, measured, fitted or assumed."""


def _dump_policy(policy: Policy) -> dict[str, Any]:
    """Tiers and shardings, and what else is not at its default."""
    words = {"tiers": list(policy.tiers), "shardings": list(policy.shardings)}
    return words | policy.model_dump(mode="json", exclude_defaults=True)


Fractions = tuple[Annotated[float, Field(gt=0, le=1)], ...]
"""Shares of a table's rows, ascending."""


TimedWork = Literal["cache sizes", "search"]
"""The search is that for plans and for the bound."""


class Provenance(Record):
    """What the plan was computed for, with and by."""

    planner_version: str
    topology: Source
    workload: Source
    coefficients: CoefficientSources
    cost_model: str
    solver: str
    seed: int
    wall_s: float | None = None
    """Always null in a file: the same inputs give the same bytes. The command line prints the time."""
    policy: Annotated[Policy, PlainSerializer(_dump_policy, return_type=dict[str, Any], when_used="json")]
    """What the plan was allowed to use; keys at their default are left out."""
    policy_fingerprint: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Content hash over all fields of the policy; unset in plans from before there was one."""
    cuts: Cuts = Field(default_factory=lambda: FEW_CUTS)
    """The column cuts that were options. The lower bound is one on plans of these cuts."""
    warnings: Annotated[tuple[str, ...], Field(default=(), exclude_if=lambda value: not value)]
    """What a reader must know of how the inputs go together: a runtime other than the software that is priced."""
    ended_by_time: Annotated[tuple[TimedWork, ...], Field(exclude_if=lambda value: not value)] = ()
    """What a time limit ended before it was done: the same inputs may then give another plan."""
    cache_fractions: Annotated[
        dict[PlacementTier, dict[str, Fractions]], Field(default_factory=dict, exclude_if=lambda value: not value)
    ]
    """By tier and table, the cache sizes that were options, in shares of its rows, the same few of every table among
    them; unset: these few alone. The lower bound is one on plans of these sizes."""


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
    resource: str
    group: str | None
    """Node group whose ranks' resource it is; null for a resource that ranks of several groups share."""
    share: float
    ranks: Confinement = None


class TableWeight(Record):
    """The share of a stage's weight that lies on one table: the stage lasts at least as long as its largest block."""

    stage: str
    table: str
    share: float


class BytePrice(Record):
    """What a byte of a memory tier is worth in the proof."""

    tier: MemoryTier
    group: str
    seconds_per_byte: float
    ranks: Confinement = None


class FunctionPrice(Record):
    """A dual feasible function of the shares that blocks take of what the threshold leaves of one resource's stage, and
    what the room of one of its instances is worth."""

    stage: str
    resource: str
    group: str
    """The ranks of the node group: blocks that are placed there, and the instances that they use."""
    family: Literal["fekete_schepers", "martello_toth", "burdett_johnson", "carlier_clautiaux_moukrim"]
    parameter: float
    seconds: float


class ProofPacking(Record):
    """Why no plan is faster than a threshold: its blocks would not pack into the ranks.

    Below the threshold, the transformed shares of the blocks on one instance sum to one at most. At these weights and
    prices of bytes and of that room, the cheapest options cost at least the threshold, free ones cut into whole blocks.
    """

    threshold_s: float
    weights: tuple[ResourceWeight, ...]
    byte_prices: tuple[BytePrice, ...]
    functions: tuple[FunctionPrice, ...]


class CasePart(Record):
    """What a case decides: a block of a table, by the numbers of the block types in the planner's enumeration."""

    first: int
    last: int
    """The block is of one of the types from `first` to `last`."""
    place: int | None
    """Rank, or node of a block that spans one, or -1 for the whole cluster; null: not decided."""


class Division(Record):
    """By what a case is divided."""

    table: str
    part: int
    """0 for the table's widest block (a fixed option's first one), 1 for the next one, and so on."""


class ProofCase(Record):
    """A case of the proof: plans that have something in common."""

    parent: int | None
    """Number of the case that it is a part of; null for the first, which holds every plan."""
    decides: CasePart | None
    """Of the table and the part by which the parent is divided."""
    divided_by: Division | None
    """Null for a case that is proven by its own multipliers."""
    weights: tuple[tuple[str, str, int, float], ...] | None
    """(stage, resource, rank, weight of a second on the instance that each rank from this one up to the next entry's
    uses); null where the parent's multipliers hold, here and below."""
    byte_prices: tuple[tuple[str, int, float], ...] | None
    """(tier, rank, seconds per byte of the pool that each rank from this one up to the next entry's uses)."""


class ProofCases(Record):
    """Cases that together hold every plan faster than a threshold, each with multipliers."""

    threshold_s: float
    cases: tuple[ProofCase, ...]


class Proof(Record):
    """The multipliers that prove the lower bound: anyone can recompute it from them without a solver.

    Over the blocks that a plan faster than `threshold_s` may hold, each table costs at least what its cheapest option
    costs at these weights and prices; less the price of all memory, that is a lower bound on the step.
    """

    threshold_s: float | None
    """Blocks that alone make the step this long are left out; null: none are. The bound is at most the threshold."""
    weights: tuple[ResourceWeight, ...]
    """Shares that are not 0. Per stage they sum to one at most, together with those of tables; what is missing counts
    the seconds that the stage takes in any case, as its loads are whole multiples of one amount."""
    byte_prices: tuple[BytePrice, ...]
    """Prices that are not 0."""
    table_weights: Annotated[tuple[TableWeight, ...], Field(exclude_if=lambda value: not value)] = ()
    """Shares of tables whose largest block alone may outlast the rest of a stage; unset: none."""
    packing: Annotated[ProofPacking | None, Field(exclude_if=lambda value: value is None)] = None
    """Where blocks leave holes on the ranks, what else proves a threshold. The multipliers above say what every stage
    lasts at least."""
    branching: Annotated[ProofCases | None, Field(exclude_if=lambda value: value is None)] = None
    """Where few tables decide, more is proven case by case: the least of the cases' bounds holds."""
    tried_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """Of a small problem: every plan faster than this was tried, table by table, and there is none. Whoever checks it
    tries them again."""


class TierShortage(Record):
    """What one tier lacks."""

    tier: MemoryTier
    capacity_bytes: int
    """Usable bytes of the whole cluster."""
    short_bytes: int | None
    """How much more of this tier alone would do; null where no amount of it alone does."""


class TableDemand(Record):
    """A table that is to blame."""

    name: str
    bytes: int
    """Weights and optimizer state."""
    reason: str


class Remedy(Record):
    """One change of the inputs, everything else as it is."""

    change: Literal["tiers", "nodes", "reserve", "dtype", "optimizer", "optimizer_state", "shardings"] | MemoryTier
    group: str | None
    """The node group that changes; null where it is not the cluster."""
    was: str
    value: str | None
    """The smallest change that makes the tables fit, in whole steps; null where none does."""
    flags: str | None
    """What makes `planner plan` plan with it; null where no value helps."""
    least: str | None
    """The step before this one is proven not to suffice; below `value` where nothing could be placed in between."""
    words: str


class Infeasibility(Record):
    """Why there is no plan."""

    summary: str
    tiers: tuple[TierShortage, ...]
    tables: tuple[TableDemand, ...]
    byte_prices: tuple[BytePrice, ...]
    """At these prices even the cheapest options of all tables cost more than all memory; none where a table has no
    option that fits, and where everything was tried."""
    tried: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether every placement was tried, and none fits; whoever checks it tries them again."""
    remedies: tuple[Remedy, ...] = ()
    """Single changes that help, and those that do not."""


class Unplaced(Record):
    """Why a search ended without a plan, though nothing proves that there is none."""

    summary: str
    tables: tuple[TableDemand, ...]
    """Those whose smallest pieces are the largest."""
    remedies: tuple[Remedy, ...] = ()


class FormerPlan(Record):
    """The plan that this one follows."""

    fingerprint: str
    """Hash over where it holds its tables."""
    step_s: float | None
    """Its step, for the inputs that it was made for."""
    lost_nodes: tuple[int, ...] = ()
    """Nodes of it that are gone."""


class RankTraffic(Record):
    """Bytes in or out of one rank."""

    rank: int
    bytes: int


class Moves(Record):
    """What changes its place when this plan follows another: weights and optimizer state, as this plan stores them."""

    former: FormerPlan
    limit_bytes: int | None
    """The most that may move (--max-move)."""
    pay_back_steps: int | None
    """Steps within which moves had to pay for themselves; null: they had no price."""
    least_bytes: int
    """No plan for these inputs moves less."""
    found_bytes: int | None = None
    """The fewest moved bytes of any plan found, where none was within the limit."""
    moved: TierBytes
    """Into ranks that did not hold them, by the memory they go to. This is what a limit limits."""
    copied: TierBytes
    """From one memory of a rank's host to another."""
    new: TierBytes
    """Of tables and rows that the former plan did not have: nothing of them moves."""
    lost_bytes: int
    """Those of the moved bytes that no rank holds any more: they come from a checkpoint."""
    tables: int = 0
    """Tables of which something moves."""
    shards: int = 0
    """Shards into which something moves."""
    busiest_in: RankTraffic | None = None
    """The rank of this plan into which the most bytes move."""
    busiest_out: RankTraffic | None = None
    """The rank of the former plan from which the most bytes move."""

    @property
    def moved_bytes(self) -> int:
        """In all tiers."""
        return self.moved.total


class Plan(Record):
    """A plan, or the proof that there is none."""

    kind: Literal["plan"] = "plan"
    schema_version: Literal[1] = SCHEMA_VERSION
    status: Status
    objective: Objective | None
    simulated: Simulated | None
    stages: tuple[StageTime, ...]
    tables: tuple[TablePlan, ...]
    ranks: tuple[RankPlan, ...]
    provenance: Provenance
    proof: Annotated[Proof | None, Field(exclude_if=lambda value: value is None)] = None
    """Why no placement is faster than the lower bound."""
    infeasibility: Annotated[Infeasibility | None, Field(exclude_if=lambda value: value is None)] = None
    unplaced: Annotated[Unplaced | None, Field(exclude_if=lambda value: value is None)] = None
    moves: Annotated[Moves | None, Field(exclude_if=lambda value: value is None)] = None
    """What moves, where the plan follows another."""

    def to_json(self) -> str:
        """The document: one line for each shard, table head, rank and stage; the same plan gives the same bytes."""
        head: dict[str, Any] = {"kind": self.kind, "schema_version": self.schema_version, "status": self.status}
        parts = [_dumps(head)[1:-1]]
        parts.append(f'"objective":{_dump(self.objective)}')
        parts.append(f'"simulated":{_dump(self.simulated)}')
        parts.append(f'"stages":{_lines(map(_dump, self.stages))}')
        parts.append(f'"tables":{_lines(map(_table_json, self.tables))}')
        parts.append(f'"ranks":{_lines(map(_dump, self.ranks))}')
        parts.append(f'"provenance":{_dump(self.provenance)}')
        if self.proof is not None:
            parts.append(f'"proof":{_dump(self.proof)}')
        if self.infeasibility is not None:
            parts.append(f'"infeasibility":{_dump(self.infeasibility)}')
        if self.unplaced is not None:
            parts.append(f'"unplaced":{_dump(self.unplaced)}')
        if self.moves is not None:
            parts.append(f'"moves":{_dump(self.moves)}')
        return "{" + ",\n".join(parts) + "}\n"


def _dumps(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _dump(record: BaseModel | None) -> str:
    return "null" if record is None else _dumps(record.model_dump(mode="json"))


def _lines(items: Iterable[str]) -> str:
    text = ",\n".join(items)
    return f"[\n{text}\n]" if text else "[]"


def _table_json(table: TablePlan) -> str:
    head: dict[str, Any] = {
        "name": table.name,
        "sharding": table.sharding,
        "tier": table.tier,
        "dtype": table.dtype,
        "cache_fraction": table.cache_fraction,
    }
    if table.optimizer_state != "with_table":
        head["optimizer_state"] = table.optimizer_state
    if table.remap is not None:
        head["remap"] = table.remap.model_dump(mode="json")
    return f'{_dumps(head)[:-1]},"shards":[\n{table.shards.to_json()}\n]}}'


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write the document. Raises InputError if the place cannot be written."""
    write_file(path, plan.to_json().encode())


def read_plan(path: str | Path) -> Plan:
    """Read a plan document. Raises InputError for anything that is not one."""
    source, other = str(path), 'is not a plan document (no "kind": "plan")'
    data = read_json(path, other)
    with faults_located(path):
        if data.get("kind") != "plan":
            raise InputError.at(source, other, path="kind")
        if data.get("schema_version") != SCHEMA_VERSION:
            raise InputError.at(
                source,
                f"has version {data.get('schema_version')!r}; this planner reads {SCHEMA_VERSION}",
                path="schema_version",
            )
        return validate(Document(data, source), Plan)
