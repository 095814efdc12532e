"""The plan document: what is placed where, what it costs, and what it was computed for. Stable JSON.

Shards are kept as arrays, because a replicated table has one on every rank: 10,000 tables on 1,024 ranks make
millions. In JSON they are a list of objects, one for all consecutive ranks that hold the same.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from cost_models.shards import PlacementTier, Sharding, StatePlace
from cost_models.stages import VectorExchange
from cost_models.workload.dense_part import Dtype
from planner.document.certificates import Proof
from planner.document.dense import PlannedDense
from planner.document.files import faults_located, read_json, write_file
from planner.document.moves import Moves
from planner.document.origin import Provenance
from planner.document.reasons import Infeasibility, Unplaced
from planner.document.replicas import PlannedReplicas
from planner.document.robustness import Robustness
from planner.document.shards import Shards, TierBytes
from planner.document.versions import SCHEMA_VERSION, in_present_version
from planner.problem.goals import GoalName
from topologies.document_kinds import expect_kind
from topologies.documents import Document, Record, read_yaml, validate
from topologies.errors import InputError

Status = Literal["optimal", "feasible", "infeasible", "timeout"]


class ErrorBar(Record):
    """Where a predicted time would be measured: `coverage` of the measurements lie between `low_s` and `high_s`."""

    low_s: float
    """The lower end, in seconds."""
    high_s: float
    """The upper end, in seconds."""
    coverage: float
    """Share of measurements between the two."""
    basis: str
    """What the prediction rests on: coefficients with data, whole steps that were measured."""
    spec_only: tuple[str, ...] = ()
    """Devices, links and networks of which there are no data, only a data sheet and what others achieve of theirs."""


class Objective(Record):
    """What the planner minimised: the step in seconds, or the rating of the cost model (hugectr: without a unit)."""

    step_s: float
    """The step, or rating, of the plan: the sum of its stages."""
    lower_bound_s: float
    """No placement is faster that the policy allows and that is one of the options: `provenance.cuts` and
    `provenance.cache_fractions` say which these are."""
    gap: float
    """step_s / lower_bound_s - 1."""
    solver_bound_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """No such placement is faster, says the solver of the integer programme, where that is more than lower_bound_s: its
    bound, rounded down by its tolerances. It is a solver's word, which nothing here proves: neither gap nor status rest
    on it."""
    outside: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Tables that this plan holds in ways that are no options, so that it may be faster than the bound; of imported
    plans only."""
    error_bar: ErrorBar | None = None
    """The band of step_s; null where `no_error_bar` says why."""
    no_error_bar: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Why the step has no band."""
    best_step_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """The shortest step found, where up to 0.1 % of it, or what the policy's goals allow, was given up for what else
    is wanted: with a former plan fewer moved bytes; else no rank above 90 % of its usable HBM, then few blocks, then a
    fullest rank that is less full."""
    given_up_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """step_s - best_step_s."""
    mixing_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """What several kinds of sharding in use take beyond step_s, on devices where that was measured. It is no sum over
    tables: neither step_s nor the bound has a part of it."""
    cache_launch_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """What launching the search of caches takes beyond step_s, however many tables are cached: no sum over tables
    either."""
    length_imbalance_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """What the rank with the longest histories is expected to work on them beyond step_s, which is that of histories of
    mean length; the same for every placement."""
    hot_rows_s: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """What the step is expected to take beyond step_s, which deals ids evenly to the rows of tables that are cut by
    rows, as the ranks that hold the hottest rows have more of them."""


class Simulated(Record):
    """The step as the event-driven simulator finds it."""

    step_s: float
    """Seconds of the step."""
    samples_per_s: float
    """Samples over all ranks in a second."""
    exposed_comm_fraction: float
    """Share of the step in which ranks exchange and do not compute, mean over ranks."""


class StageTime(Record):
    """One stage of the step."""

    name: str
    """Which stage: see the words of `planner explain`."""
    seconds: float
    """How long it takes; under a rating its part of that."""
    critical_rank: int | None
    """The first rank that makes the stage as long as it is; null where only a constant does."""
    error_bar: ErrorBar | None = None
    """The band of `seconds`."""


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
    """The file of mapped ids: .npy, relative to the plan's folder, int32 or int64: the row of each id."""
    sha256: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """The hash of that file's bytes."""

    @model_validator(mode="after")
    def _file_of_mapped(self) -> Self:
        if {self.path is None, self.sha256 is None} != {self.ids == "ranked"}:
            raise ValueError("path and sha256 go with mapped ids, and only with them")
        return self


class GoalReached(Record):
    """How far the plan reaches one of the goals that its policy names."""

    name: GoalName
    """Which goal."""
    tolerance: float
    """Share of the best value that may be given up for the goals after it."""
    best: float
    """The least that was found while the goals before it kept to their tolerances: seconds, ranks, blocks, the share of
    a rank's usable HBM, bytes."""
    value: float
    """That of this plan."""


class TablePlan(Record):
    """Where one table lives."""

    name: str
    """Its name in the workload."""
    sharding: Sharding
    """How it is cut. `multi_node_row_wise`: a part of ceil(rows / nodes) rows on each of several nodes, in any order of
    the nodes, is cut over the ranks of the node. `multi_rank_row_wise`: a part of ceil(rows / ranks) rows is on each of
    several ranks of the only node, or scale-up domain, in any order."""
    tier: PlacementTier
    """Where its rows are at home, and whether a cache in HBM serves them."""
    dtype: Dtype
    """The format in which rows are stored."""
    cache_fraction: float | None
    """Share of the rows that the HBM cache holds; null where there is none."""
    optimizer_state: Annotated[StatePlace, Field(exclude_if=lambda place: place == "with_table")] = "with_table"
    """Where the optimizer state is; unset: where the rows are at home."""
    remap: Annotated[Remap | None, Field(exclude_if=lambda value: value is None)] = None
    """How the rows of a split table are numbered; unset for any other."""
    variant: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """What the table has become of the policy's variants; unset where it names none. Shards are of what is stored: of
    two parts, of the quotient table, with all rows of the remainder table beside each."""
    shards: Shards
    """Its parts: rank, rows, columns and bytes of each; consecutive ranks that hold the same are one part with
    `replicas`."""


class RankPlan(Record):
    """What one rank holds and how long it is busy."""

    rank: int
    """Its number, from 0."""
    node: int
    """The node that it is on, from 0."""
    bytes: TierBytes
    """All that the rank takes, the dense part included."""
    capacity: TierBytes
    """Usable bytes, after the reserve: its own HBM, and the memories that it shares with its node or its node group (or
    its own part of them, where the cost model gives each rank one)."""
    seconds: dict[str, float]
    """Per stage, on the resources that the rank uses."""


class QualityPaid(Record):
    """What the variants of all tables lose together."""

    loss: float
    """The sum over tables, in the unit of the budget."""
    budget: float
    """The most that the policy allows."""


class OtherExchange(Record):
    """The best plan and the bound under the other exchange of vectors that the policy leaves open."""

    exchange: VectorExchange
    """The exchange that the plan does not take."""
    step_s: float
    """The shortest step that was found under it."""
    lower_bound_s: float
    """No placement under it is faster."""
    proof: Proof
    """Why no placement is faster than that, from the options of this plan."""


class Plan(Record):
    """A plan, or the proof that there is none."""

    kind: Literal["plan"] = "plan"
    """Says what the file is."""
    schema_version: Literal[3] = SCHEMA_VERSION
    """The version of this format; older ones are read, too."""
    status: Status
    """optimal: proven so. feasible: a plan with a gap. infeasible: proven that there is none. timeout: none found,
    nothing proven."""
    objective: Objective | None
    """What was minimised, and its bound; null without a plan."""
    simulated: Simulated | None
    """The step as simulated; null where it was not."""
    stages: tuple[StageTime, ...]
    """Stages of the step, in its order; those that others hide are left out."""
    tables: tuple[TablePlan, ...]
    """Where each table is, in the order of the workload."""
    ranks: tuple[RankPlan, ...]
    """What each rank holds; of one group, where ranks are in groups."""
    quality: Annotated[QualityPaid | None, Field(exclude_if=lambda value: value is None)] = None
    """Where the policy names variants: what those of the plan lose, of the budget."""
    replicas: Annotated[PlannedReplicas | None, Field(exclude_if=lambda value: value is None)] = None
    """The groups of ranks, where the policy speaks of any."""
    dense: Annotated[PlannedDense | None, Field(exclude_if=lambda value: value is None)] = None
    """How ranks hold the dense part, where the policy speaks of it or they shard it; unset: each has all of it."""
    robust: Annotated[Robustness | None, Field(exclude_if=lambda value: value is None)] = None
    """What it takes in scenarios, where the policy asks for a small quantile of these."""
    goals: Annotated[tuple[GoalReached, ...], Field(exclude_if=lambda value: not value)] = ()
    """Where the policy names goals: how far each is reached, in their order."""
    provenance: Provenance
    """What the plan was computed for, with and by."""
    proof: Annotated[Proof | None, Field(exclude_if=lambda value: value is None)] = None
    """Why no placement is faster than the lower bound."""
    other_exchange: Annotated[OtherExchange | None, Field(exclude_if=lambda value: value is None)] = None
    """Of a policy that leaves the exchange open: what is proven under the other one, which the lower bound covers,
    too."""
    infeasibility: Annotated[Infeasibility | None, Field(exclude_if=lambda value: value is None)] = None
    """Why there is no plan; with status infeasible."""
    unplaced: Annotated[Unplaced | None, Field(exclude_if=lambda value: value is None)] = None
    """Why none was found; with status timeout."""
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
        optional = {"quality": self.quality, "replicas": self.replicas, "dense": self.dense, "robust": self.robust}
        parts += [f'"{name}":{_dump(record)}' for name, record in optional.items() if record is not None]
        if self.goals:
            parts.append(f'"goals":{_lines(map(_dump, self.goals))}')
        parts.append(f'"provenance":{_dump(self.provenance)}')
        if self.proof is not None:
            parts.append(f'"proof":{_dump(self.proof)}')
        if self.other_exchange is not None:
            parts.append(f'"other_exchange":{_dump(self.other_exchange)}')
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
    if table.variant is not None:
        head["variant"] = table.variant
    if table.remap is not None:
        head["remap"] = table.remap.model_dump(mode="json")
    return f'{_dumps(head)[:-1]},"shards":[\n{table.shards.to_json()}\n]}}'


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write the document. Raises InputError if the place cannot be written."""
    write_file(path, plan.to_json().encode())


def read_plan(path: str | Path) -> Plan:
    """Read a plan document. Raises InputError for anything that is not one."""
    source, other = str(path), 'is not a plan document (no "kind": "plan")'
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        expect_kind(read_yaml(Path(path)), "plan")
    data = read_json(path, other)
    with faults_located(path):
        if data.get("kind") != "plan":
            raise InputError.at(source, other, path="kind")
        return validate(Document(in_present_version(data, source), source), Plan)
