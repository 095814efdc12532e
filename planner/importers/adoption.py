"""A placement that another planner made, as a plan document: costed by our model, beside our bound."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import Ints, PlacementTier, Sharding
from cost_models.workload.models import Workload
from planner import api
from planner.build import rank_plans, with_error_bars
from planner.document import Objective, Plan, Shards, StageTime, TablePlan
from planner.permits import planning_model
from planner.planned import placed_tables
from planner.policy import Policy
from planner.provenance import provenance
from planner.simulation import with_simulation
from planner.verification import coverage_fault
from topologies.cluster import Topology
from topologies.errors import Fault, InputError

FIRST_BOUND_ABOVE = 500
"""Tables above which an import without effort takes the bound of the first plan; it is that of the prices."""


@dataclass(frozen=True)
class Inputs:
    """What a placement is read against."""

    topology: Topology
    workload: Workload
    cost_model: str
    policy: Policy

    @cached_property
    def model(self) -> CostModel:
        """The costs, with the policy's reserve kept free."""
        return planning_model(self.cost_model, self.topology, self.workload, self.policy)


@dataclass(frozen=True)
class Held:
    """How another planner holds one table; the arrays are [n], in any order."""

    sharding: Sharding
    tier: PlacementTier
    cache_fraction: float | None
    rank: Ints
    row_start: Ints
    rows: Ints
    column_start: Ints
    columns: Ints


def adopted(
    held: Sequence[Held], inputs: Inputs, origin: str, source: str, *, effort: int = 0, simulate: bool = True
) -> Plan:
    """The plan document of a placement, one `held` for each table in the order of the workload.

    `origin` says who made it. The lower bound is that of a search of our own, of `effort` passes; a placement that is
    better than it (our planner does not try every width and cache size) has a gap of 0. Raises InputError with every
    table that is not covered the way its sharding says, and where the inputs have no plan at all.
    """
    model = inputs.model
    tables = tuple(
        TablePlan(
            name=profile.name,
            sharding=one.sharding,
            tier=one.tier,
            dtype=inputs.workload.dtype_of(profile),
            cache_fraction=one.cache_fraction,
            shards=_shards(one),
        )
        for one, profile in zip(held, inputs.workload.tables, strict=True)
    )
    tables = tuple(_as_costed(table, model) for table in tables)
    _expect_covered(tables, model, source)
    ours = _ours(inputs, effort)
    if ours.objective is None:
        reason = ours.infeasibility or ours.unplaced
        raise InputError.at(source, f"has no bound: {reason.summary if reason else ours.status}; check the inputs")
    placed = placed_tables(tables)
    size = np.round(model.shard_bytes(placed)).astype(np.int64)
    opens = np.cumsum([0, *(len(table.shards) for table in tables)])
    tables = tuple(
        table.model_copy(update={"shards": _with_bytes(table.shards, size[start:stop])})
        for table, start, stop in zip(tables, opens[:-1], opens[1:], strict=True)
    )
    found = model.evaluate(placed)
    stages = tuple(
        StageTime(name=name, seconds=float(seconds), critical_rank=rank)
        for name, seconds, rank in zip(model.stages, found.stage_seconds, found.critical_rank, strict=True)
    )
    step_s = float(sum(stage.seconds for stage in stages))
    bound_s = min(ours.objective.lower_bound_s, step_s)
    gap = step_s / bound_s - 1 if bound_s > 0 else 0.0
    plan = Plan(
        status="feasible",
        objective=Objective(step_s=step_s, lower_bound_s=bound_s, gap=gap),
        simulated=None,
        stages=stages,
        tables=tables,
        ranks=rank_plans(model, found.rank_bytes, found.rank_stage_seconds),
        provenance=provenance(model, inputs.policy, 0).model_copy(update={"solver": f"imported: {origin}"}),
        proof=ours.proof,
    )
    plan = with_error_bars(plan, model)
    return with_simulation(plan) if simulate else plan


def _ours(inputs: Inputs, effort: int) -> Plan:
    """A plan of our own, for its bound; of many tables, the first one: the search would take longer than the import."""

    def search(stop: Callable[[], bool] | None) -> Plan:
        return api.plan(
            inputs.topology,
            inputs.workload,
            cost_model=inputs.cost_model,
            policy=inputs.policy,
            effort=effort,
            simulate=False,
            stop=stop,
        )

    if effort == 0 and len(inputs.workload.tables) > FIRST_BOUND_ABOVE:
        first = search(lambda: True)
        if first.objective is not None:
            return first
    return search(None)


def _shards(held: Held) -> Shards:
    """In the order of the document: by columns, then rows; without bytes."""
    order = np.lexsort((held.rank, held.row_start, held.column_start))
    columns = (held.rank, held.row_start, held.rows, held.column_start, held.columns)
    matrix = np.stack([column[order] for column in columns], axis=1).astype(np.int64)
    return Shards.from_matrix(np.concatenate([matrix, np.zeros((len(matrix), 3), dtype=np.int64)], axis=1))


def _with_bytes(shards: Shards, size: Ints) -> Shards:
    return Shards.from_matrix(np.concatenate([shards.as_matrix()[:, :5], size], axis=1))


def _as_costed(table: TablePlan, model: CostModel) -> TablePlan:
    """The table under the word that our costs know: blocks of one node of which two share a rank are column_wise."""
    ranks = table.shards.rank
    one_node = len(set(model.node_of_rank[ranks[ranks < len(model.node_of_rank)]].tolist())) == 1
    if table.sharding == "table_column_wise" and not (one_node and len(set(ranks.tolist())) == len(ranks)):
        return table.model_copy(update={"sharding": "column_wise"})
    return table


def _expect_covered(tables: Sequence[TablePlan], model: CostModel, source: str) -> None:
    node_start = np.concatenate([[0], np.cumsum(np.bincount(model.node_of_rank))])
    faults = [
        Fault(source, 0, 0, table.name, reason)
        for table, profile in zip(tables, model.workload.tables, strict=True)
        if (reason := coverage_fault(table, profile, node_start, model.tied_shardings))
    ]
    if faults:
        raise InputError(faults)
