"""A placement that another planner made, as a plan document: costed by our model, beside our bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import Ints, PlacementTier, Sharding, StatePlace
from cost_models.workload.dense_part import Dtype
from cost_models.workload.models import Workload
from planner.certificates.shortage import Shortage
from planner.document.certificates import Proof
from planner.document.origin import Provenance
from planner.document.plan import Objective, Plan, StageTime, TablePlan
from planner.document.planned import placed_tables
from planner.document.provenance import provenance
from planner.document.shards import Shards
from planner.formulation.allowed_choices import planning_model
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.dense_choices import expect_one_strategy
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.formulation.software import priced_as_run
from planner.planning import planning as api
from planner.planning.assembly import rank_plans
from planner.planning.protocols import bounds_elsewhere
from planner.solvers.incumbent import OPTIMAL_GAP
from planner.solvers.search import relaxed
from planner.verification.beyond_step import with_beyond_step
from planner.verification.coverage import coverage_fault
from planner.verification.error_bars import with_error_bars
from planner.verification.infeasibility import explain_shortage
from planner.verification.proof import write_proof
from planner.verification.simulation import with_simulation
from planner.verification.verify import outside_options
from topologies.cluster import Topology
from topologies.errors import Fault, InputError

RELAXED_BOUND_ABOVE = 200
"""Tables above which an import without effort takes the bound of the relaxation alone: what a search adds to it is a
share of a per cent where tables are many, and takes longer than the rest of the import."""


@dataclass(frozen=True)
class AdoptionInputs:
    """What a placement is read against."""

    topology: Topology
    given_workload: Workload
    cost_model: str
    policy: Policy

    @cached_property
    def workload(self) -> Workload:
        """The workload with the software profile of the policy's runtime, unless it names one."""
        return priced_as_run(self.given_workload, self.policy)

    @cached_property
    def model(self) -> CostModel:
        """The costs, with the policy's reserve kept free. Raises InputError for a policy of replicas."""
        self.policy.expect_no_goals("plans are imported as they are")
        self.policy.expect_nominal("imported plans are judged by the step")
        self.policy.expect_stated_tables("imported plans are")
        expect_one_strategy(self.policy.dense, "imported plans are those")
        if self.policy.replicas is not None:
            raise InputError.at(
                "replicas", "plans are imported as those of one world; leave replicas out of the policy"
            )
        return planning_model(self.cost_model, self.topology, self.workload, self.policy)


@dataclass(frozen=True)
class AdoptedTable:
    """How another planner holds one table; the arrays are [n], in any order."""

    sharding: Sharding
    tier: PlacementTier
    cache_fraction: float | None
    rank: Ints
    row_start: Ints
    rows: Ints
    column_start: Ints
    columns: Ints
    dtype: Dtype | None = None
    """The stored format; None: the workload's."""
    optimizer_state: StatePlace = "with_table"


def adopted(
    placed: Sequence[AdoptedTable],
    inputs: AdoptionInputs,
    origin: str,
    source: str,
    *,
    effort: int = 0,
    simulate: bool = True,
) -> Plan:
    """The plan document of a placement, one `held` for each table in the order of the workload.

    `origin` says who made it. The lower bound is that of a search of our own, of `effort` passes (see also
    `RELAXED_BOUND_ABOVE`). A placement that is better than it has a gap of 0, as it may be where tables are held in
    ways that the bound does not cover (`Objective.outside`). Raises InputError with every table that is not covered the
    way its sharding says, and where the inputs have no plan at all.
    """
    tables = costed(placed, inputs, source)
    model = inputs.model.linearised_at(placed_tables(tables))
    try:
        bound = _bound(inputs, effort)
    except ValueError as error:
        raise InputError.at(source, f"has no bound: {error}; check the inputs") from None
    plan = _costed_plan(_with_counted_bytes(tables, model), model, bound, origin)
    assert plan.objective is not None
    outside = tuple(outside_options(plan, inputs.model, allowed_choices(inputs.model, inputs.policy)))
    told: dict[str, object] = {"objective": plan.objective.model_copy(update={"outside": outside})}
    if plan.objective.gap <= OPTIMAL_GAP and not outside:
        told["status"] = "optimal"
    plan = with_beyond_step(with_error_bars(plan.model_copy(update=told), inputs.model), inputs.model)
    return with_simulation(plan) if simulate else plan


def costed(placed: Sequence[AdoptedTable], inputs: AdoptionInputs, source: str) -> tuple[TablePlan, ...]:
    """The tables in the words that costs know, without bytes. Raises InputError with every one that is not covered."""
    tables = [
        TablePlan(
            name=profile.name,
            sharding=table.sharding,
            tier=table.tier,
            dtype=table.dtype or inputs.workload.dtype_of(profile),
            cache_fraction=table.cache_fraction,
            optimizer_state=table.optimizer_state,
            shards=_shards(table),
        )
        for table, profile in zip(placed, inputs.workload.tables, strict=True)
    ]
    costed = tuple(_as_costed(table, inputs.model) for table in tables)
    _expect_covered(costed, inputs.model, source)
    return costed


def _with_counted_bytes(tables: Sequence[TablePlan], model: CostModel) -> tuple[TablePlan, ...]:
    """The tables with the bytes of each shard, as the cost model counts them."""
    size = np.round(model.shard_bytes(placed_tables(tables))).astype(np.int64)
    opens = np.cumsum([0, *(len(table.shards) for table in tables)])
    return tuple(
        table.model_copy(update={"shards": _with_bytes(table.shards, size[start:stop])})
        for table, start, stop in zip(tables, opens[:-1], opens[1:], strict=True)
    )


def _costed_plan(tables: tuple[TablePlan, ...], model: CostModel, bound: "_Bound", origin: str) -> Plan:
    """The document of tables with their bytes, beside a bound; not yet simulated."""
    placed = placed_tables(tables)
    evaluation = model.evaluate(placed)
    stages = tuple(
        StageTime(name=name, seconds=float(seconds), critical_rank=rank)
        for name, seconds, rank in zip(model.stages, evaluation.stage_seconds, evaluation.critical_rank, strict=True)
    )
    step_s = float(sum(stage.seconds for stage in stages))
    bound_s = min(model.whole_step_s(bound.seconds), step_s)
    gap = step_s / bound_s - 1 if bound_s > 0 else 0.0
    return Plan(
        status="feasible",
        objective=Objective(step_s=step_s, lower_bound_s=bound_s, gap=gap),
        simulated=None,
        stages=stages,
        tables=tables,
        ranks=rank_plans(model, evaluation.rank_bytes, evaluation.rank_stage_seconds),
        provenance=bound.provenance.model_copy(update={"solver": f"imported: {origin}", "seed": 0}),
        proof=bound.proof,
    )


@dataclass(frozen=True)
class _Bound:
    """A lower bound on every plan of our own."""

    seconds: float
    proof: Proof | None
    provenance: Provenance
    """With the options that the bound covers."""


def _bound(inputs: AdoptionInputs, effort: int) -> _Bound:
    """The bound of a search, or of the relaxation alone. Raises ValueError where the inputs have no plan."""
    if effort == 0 and len(inputs.workload.tables) > RELAXED_BOUND_ABOVE:
        return _priced_bound(inputs)
    own = api.plan(
        inputs.topology,
        inputs.workload,
        cost_model=inputs.cost_model,
        policy=inputs.policy,
        effort=effort,
        simulate=False,
        solver="search",
    )
    if own.objective is None:
        reason = own.infeasibility or own.unplaced
        raise ValueError(reason.summary if reason else own.status)
    return _Bound(own.objective.lower_bound_s, own.proof, own.provenance)


def _priced_bound(inputs: AdoptionInputs) -> _Bound:
    """The bound of the relaxation: no search for a plan."""
    formulation = Formulation.of(inputs.model, inputs.policy)
    bound = relaxed(formulation.problem)
    if isinstance(bound, Shortage):
        raise ValueError(explain_shortage(formulation, bound).summary)
    elsewhere = bounds_elsewhere(formulation, bound)
    proof = write_proof(formulation.model, formulation.problem, bound, elsewhere)
    least_s = min(each.seconds for each in (bound, *(other.bound for other in elsewhere)))
    return _Bound(least_s, proof, provenance(formulation, inputs.policy, 0))


def _shards(table: AdoptedTable) -> Shards:
    """In the order of the document: by columns, then rows; without bytes."""
    order = np.lexsort((table.rank, table.row_start, table.column_start))
    columns = (table.rank, table.row_start, table.rows, table.column_start, table.columns)
    matrix = np.stack([column[order] for column in columns], axis=1).astype(np.int64)
    return Shards.from_matrix(np.concatenate([matrix, np.zeros((len(matrix), 3), dtype=np.int64)], axis=1))


def _with_bytes(shards: Shards, size: Ints) -> Shards:
    return Shards.from_matrix(np.concatenate([shards.as_matrix()[:, :5], size], axis=1))


def _as_costed(table: TablePlan, model: CostModel) -> TablePlan:
    """The table under the word that our costs know: a grid of one block is table_row_wise, and blocks of one node
    of which two share a rank are column_wise."""
    ranks, sharding = table.shards.rank, table.sharding
    is_one_block = bool((table.shards.column_start == table.shards.column_start[:1]).all())
    one_node = len(set(model.node_of_rank[ranks[ranks < len(model.node_of_rank)]].tolist())) == 1
    if sharding == "grid_shard" and is_one_block:
        sharding = "table_row_wise"
    elif sharding == "table_column_wise" and not (one_node and len(set(ranks.tolist())) == len(ranks)):
        sharding = "column_wise"
    return table if sharding == table.sharding else table.model_copy(update={"sharding": sharding})


def _expect_covered(tables: Sequence[TablePlan], model: CostModel, source: str) -> None:
    shapes = [model.workload.stored_shape(profile) for profile in model.workload.tables]
    nodes, colocated, one_domain = model.node_of_rank, model.node_colocated_shardings, model.topology.is_one_domain
    faults = [
        Fault(source, 0, 0, table.name, reason)
        for table, shape in zip(tables, shapes, strict=True)
        if (reason := coverage_fault(table, shape, nodes, colocated, one_domain=one_domain))
    ]
    if faults:
        raise InputError(faults)
