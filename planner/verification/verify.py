"""Whether a plan document says the truth: recomputed from the inputs it carries, without a solver.

Nothing here knows how a plan was found. Shards are read from the document, checked as rectangles, costed one by one
by the cost model and summed; then every figure of the document is compared.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cost_models.model import CostModel, Evaluation
from cost_models.shards import (
    MEMORY_TIERS,
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    SHARDINGS,
    SHARED_BY,
    STATE_PLACES,
)
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import Workload
from planner.document.migration import migration_from, plan_fingerprint
from planner.document.origin import Provenance, Source
from planner.document.plan import Plan, TablePlan
from planner.document.provenance import (
    coefficient_sources,
    faults_of_cuts,
    faults_of_fractions,
    planned_options,
    tried_fractions,
)
from planner.document.remaps import faults_of_files, numbering_fault
from planner.formulation.allowed_choices import Held, Permits, planning_model, violations
from planner.formulation.choice_rules import permits_of
from planner.formulation.option_space import Space
from planner.formulation.options import build_problem, fixed_fractions
from planner.formulation.software import software_warnings
from planner.verification.coverage import coverage_fault
from planner.verification.error_bars import faults_of_error_bars
from planner.verification.infeasibility import faults_of_reason
from planner.verification.planned import placed_shards, planned_inputs
from planner.verification.proof import (
    faults_of,
    faults_of_cases,
    faults_of_packing,
    faults_of_trial,
    recomputed_bound_s,
)
from planner.verification.simulation import play, simulated
from topologies.cluster import Topology, fingerprint
from topologies.errors import InputError

GIVE = 1e-3
"""Share of the best step that a plan may give up, as its document says."""
TOLERANCE = 1e-9
"""Relative difference of seconds that two orders of summation may make."""
SIMULATED_TOLERANCE = 1e-6
"""Relative difference that rounding may make of a simulation: events may change places."""
OPTIMAL_GAP = 1e-6
"""The largest gap of a plan that may be called optimal."""
ROUNDED = 3
"""Bytes by which sums of three rounded counts may differ."""


def verify(plan: Plan, former: Plan | None = None, folder: str | Path | None = None) -> list[str]:
    """Everything that does not hold, in words; empty for a plan that is right.

    Checked: the inputs are those of the fingerprints; every table is covered exactly once, the way its sharding
    says; bytes of shards and ranks, and no memory over its capacity; stage times, critical ranks, their sum, their
    error bars and the gap; the bound is not above the objective, and is proven; the policy is kept; the status goes
    with them; split tables have as many hot rows as their bytes hold; of a plan that places nothing, that nothing fits
    and why. What moved is checked against the `former` plan, and the files of remapped ids in the plan's `folder`,
    where these are given. What is not checked, `planner.verification.unchecked` lists. Raises InputError if the inputs
    in the document cannot be read.
    """
    topology, workload = planned_inputs(plan)
    found = [*_sources(plan.provenance, topology, workload), *_status(plan)]
    policy = plan.provenance.policy
    model = planning_model(plan.provenance.cost_model, topology, workload, policy)
    found += _coefficients(plan, model)
    found += _warnings(plan, workload)
    fractions = list(faults_of_fractions(plan.provenance, model))
    if fractions:
        return [*found, *fractions]
    try:
        permits = permits_of(model, policy)
    except InputError as error:
        return [*found, *(f"policy: {fault.path}: {fault.message}" for fault in error.faults)]
    found += faults_of_cuts(plan.provenance, model, permits)
    if plan.objective is None:
        options = planned_options(plan.provenance, model, permits)
        found += faults_of_reason(plan, model, options)
        return [*found, *(() if plan.tables else _moves(plan, model, permits, former))]
    placed = list(_shape(plan, model)) or list(_policy(plan, permits))
    found += placed
    if placed:
        return found
    evaluation = model.evaluate(placed_shards(plan))
    found += _shard_bytes(plan, model)
    found += _ranks(plan, model, evaluation)
    found += _capacities(plan, model, evaluation)
    found += _stages(plan, model, evaluation)
    found += _objective(plan)
    found += _options(plan, model, permits)
    found += faults_of_error_bars(plan, model)
    found += _proof(plan, model, permits)
    found += _moves(plan, model, permits, former)
    found += _simulated(plan)
    found += [] if folder is None else faults_of_files(plan, Path(folder))
    return found


def shape_faults(plan: Plan, model: CostModel) -> list[str]:
    """What keeps a document from being a plan of its own inputs at all, whatever its figures are, in words.

    Where this is empty, every table, rank and stage of the inputs is there once, and every shard on a rank.
    """
    return [*_status(plan), *(_shape(plan, model) if plan.objective is not None else ())]


def verify_limits(plan: Plan, model: CostModel) -> list[str]:
    """What does not keep to the policy, or else to the memory, in words.

    For a plan whose tables are covered and whose figures the `model` computed a moment ago; `verify` checks these, too.
    """
    broken = list(_policy(plan, permits_of(model, plan.provenance.policy)))
    return broken or list(_capacities(plan, model, model.evaluate(placed_shards(plan))))


def _policy(plan: Plan, permits: Permits) -> Iterator[str]:
    yield from violations(permits, [_held(table) for table in plan.tables])


def _options(plan: Plan, model: CostModel, permits: Permits) -> Iterator[str]:
    """Whether every table is held in a way that the bound covers, or is said not to be."""
    assert plan.objective is not None
    found, stated = outside_options(plan, model, permits), plan.objective.outside
    for name, words in found.items():
        if name not in stated:
            yield f"table {name}: the bound does not cover how it is held: {words}"
    for name in stated:
        if name not in found:
            yield f"objective: table {name} is said to be held in a way that the bound does not cover"
    if len(set(stated)) < len(stated):
        yield "objective: a table is said twice to be held in a way that the bound does not cover"
    if plan.status == "optimal" and stated:
        yield "status: optimal, though the bound does not cover how tables are held"


def outside_options(plan: Plan, model: CostModel, permits: Permits) -> dict[str, str]:
    """Of each table that is held in a way that is no option, its name and why, in words."""
    space = Space(model, permits, plan.provenance.cuts)
    fractions = fixed_fractions(tried_fractions(plan.provenance, model), permits)
    found = {}
    for number, table in enumerate(plan.tables):
        tier, sharding = PLACEMENT_TIERS.index(table.tier), SHARDINGS.index(table.sharding)
        _, first, ranks = np.unique(table.shards.column_start, return_index=True, return_counts=True)
        words = space.outside(number, tier, sharding, table.shards.columns[first], int(ranks.max()))
        if (
            words is None
            and table.cache_fraction is not None
            and not (fractions[table.tier][number] == table.cache_fraction).any()
        ):
            words = f"a cache of {table.cache_fraction:g} of its rows is not tried"
        if words is not None:
            found[table.name] = f"{table.sharding} in {table.tier}: {words}"
    return found


def _held(table: TablePlan) -> Held:
    """How the plan holds a table, in the words of the permits."""
    shards = table.shards
    replicated = table.sharding == "data_parallel"
    return Held(
        table.name,
        PLACEMENT_TIERS.index(table.tier),
        SHARDINGS.index(table.sharding),
        DTYPES.index(table.dtype),
        STATE_PLACES.index(table.optimizer_state),
        shards.rank,
        1 if replicated else len(shards),
        shards.columns[np.unique(shards.column_start, return_index=True)[1]],
        table.cache_fraction,
    )


def _moves(plan: Plan, model: CostModel, permits: Permits, former: Plan | None) -> Iterator[str]:
    """Whether what moves keeps to the limit, and follows from the former plan."""
    moves = plan.moves
    if moves is None:
        if former is not None:
            yield "moves: the plan does not say that it follows another"
        return
    if plan.objective is not None and moves.limit_bytes is not None and moves.moved_bytes > moves.limit_bytes + ROUNDED:
        yield f"moves: {moves.moved_bytes} bytes move, the limit is {moves.limit_bytes}"
    if plan.objective is not None and moves.moved_bytes < moves.least_bytes - ROUNDED:
        yield f"moves: {moves.moved_bytes} bytes move, and no plan is said to move less than {moves.least_bytes}"
    if former is None:
        return
    if plan_fingerprint(former) != moves.former.fingerprint:
        yield "moves: the plan given with --from is not the one that this plan follows"
        return
    options = planned_options(plan.provenance, model, permits)
    problem = build_problem(model, options)
    migration = migration_from(former, model, moves.former.lost_nodes)
    least = migration.homes(options, problem).least_moved_bytes(problem)
    found = migration.measure(
        plan.tables, least, moves.limit_bytes, moves.pay_back_steps, None if plan.tables else moves.found_bytes
    )
    for name, stated in moves:
        if getattr(found, name) != stated:
            yield f"moves: {name} is {getattr(found, name)!r}, the document says {stated!r}"


def _warnings(plan: Plan, workload: Workload) -> Iterator[str]:
    expected = software_warnings(workload, plan.provenance.policy)
    if plan.provenance.warnings != expected:
        yield f"warnings: the document has {list(plan.provenance.warnings)}, its inputs give {list(expected)}"


def _coefficients(plan: Plan, model: CostModel) -> Iterator[str]:
    if plan.provenance.coefficients != coefficient_sources(model.coefficients):
        yield "coefficients: the plan was costed with others than this planner has"


def _sources(origin: Provenance, topology: Topology, workload: Workload) -> Iterator[str]:
    """Whether the inputs are those whose names and fingerprints the document states."""
    yield from _source("topology", origin.topology, topology)
    yield from _source("workload", origin.workload, workload)
    found = fingerprint(origin.policy)
    if origin.policy_fingerprint not in (None, found):
        yield f"policy: the content hashes to {found}, the document says {origin.policy_fingerprint}"
    if origin.wall_s is not None:
        yield f"provenance: wall_s is {origin.wall_s!r}; a document states none"


def _source(kind: str, source: Source, record: Topology | Workload) -> Iterator[str]:
    found = fingerprint(record)
    if found != source.fingerprint:
        yield f"{kind}: the content hashes to {found}, the document says {source.fingerprint}"
    if record.name != source.name:
        yield f"{kind}: is called {record.name!r}, the document says {source.name!r}"


def _status(plan: Plan) -> Iterator[str]:
    is_placed = plan.status in ("optimal", "feasible")
    if is_placed != (plan.objective is not None):
        yield f"status: {plan.status} {'without' if is_placed else 'with'} an objective"
    if plan.objective is None and (plan.stages or plan.tables or plan.ranks):
        yield "status: stages, tables or ranks without an objective"
    if plan.objective is None and (plan.simulated or plan.proof):
        yield "status: a simulated step or the proof of a bound without an objective"
    if plan.status == "optimal" and plan.objective is not None and plan.objective.gap > OPTIMAL_GAP + TOLERANCE:
        yield f"status: optimal, with a gap of {plan.objective.gap!r}"
    for status, reason, key in (
        ("infeasible", plan.infeasibility, "infeasibility"),
        ("timeout", plan.unplaced, "unplaced"),
    ):
        if (plan.status == status) != (reason is not None):
            yield f"status: {plan.status} {'with' if reason else 'without'} {key}"


def _shape(plan: Plan, model: CostModel) -> Iterator[str]:
    """Whether there are all tables, ranks and stages that there should be, and no others."""
    yield from _tables(plan, model)
    world, stages = model.topology.world_size, model.stages
    if [rank.rank for rank in plan.ranks] != list(range(world)):
        yield f"ranks: not 0 to {world - 1} in order"
    if tuple(stage.name for stage in plan.stages) != stages:
        yield f"stages: {[stage.name for stage in plan.stages]}, not {list(stages)}"
    for rank in plan.ranks:
        if rank.seconds.keys() != set(stages):
            yield f"rank {rank.rank}: has seconds of {list(rank.seconds)}, not of {list(stages)}"
    for stage in plan.stages:
        if stage.critical_rank is not None and not 0 <= stage.critical_rank < world:
            yield f"stage {stage.name}: there is no rank {stage.critical_rank}"


def _tables(plan: Plan, model: CostModel) -> Iterator[str]:
    workload = model.workload
    planned = [table.name for table in plan.tables]
    expected = [table.name for table in workload.tables]
    if planned != expected:
        missing = [name for name in expected if name not in set(planned)]
        extra = [name for name in planned if name not in set(expected)]
        yield f"tables: missing {missing[:3]}, not in the workload or twice {extra[:3]}, or in another order"
        return
    node_start = np.concatenate([[0], np.cumsum(np.bincount(model.node_of_rank))])
    for table, profile in zip(plan.tables, workload.tables, strict=True):
        problem = coverage_fault(table, profile, node_start, model.tied_shardings)
        if problem:
            yield f"table {table.name}: {problem}"
        if (table.tier in PARTLY_IN_HBM) != (table.cache_fraction is not None):
            yield f"table {table.name}: a cache fraction goes with the tiers that are partly in HBM, and only with them"
        elif table.cache_fraction is not None and not 0 < table.cache_fraction <= 1:
            yield f"table {table.name}: its cache fraction {table.cache_fraction!r} is no share above 0 and at most 1"
        elif fault := numbering_fault(table, profile.rows):
            yield f"table {table.name}: {fault}"


def _shard_bytes(plan: Plan, model: CostModel) -> Iterator[str]:
    placed = placed_shards(plan)
    expected = model.shard_bytes(placed)
    stated = np.concatenate([table.shards.bytes for table in plan.tables])
    counted = [MEMORY_TIERS.index(tier) for tier in model.memories]
    elsewhere = np.delete(stated, counted, axis=1).any(axis=1)
    wrong = np.flatnonzero((np.abs(stated[:, counted] - expected) > 1).any(axis=1) | elsewhere)
    if len(wrong):
        first = int(wrong[0])
        name = plan.tables[int(placed.blocks.table[first])].name
        yield f"bytes of {len(wrong)} shards; first: {name} on rank {placed.rank[first]}"


def _ranks(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    absent = [tier for tier in MEMORY_TIERS if tier not in model.memories]
    for rank in plan.ranks:
        if any(getattr(rank.bytes, tier) or getattr(rank.capacity, tier) for tier in absent):
            yield f"rank {rank.rank}: has bytes in a memory that its costs do not know"
        stored = np.array([getattr(rank.bytes, tier) for tier in model.memories])
        if np.abs(stored - evaluation.rank_bytes[rank.rank]).max() > 1:
            taken = evaluation.rank_bytes[rank.rank].round().astype(int).tolist()
            yield f"rank {rank.rank}: takes {taken} bytes, the document says {stored.tolist()}"
        stated = np.array([rank.seconds[stage] for stage in model.stages])
        if not np.allclose(stated, evaluation.rank_stage_seconds[rank.rank], rtol=TOLERANCE, atol=1e-15):
            yield f"rank {rank.rank}: its seconds per stage are not what its shards cost"
        if rank.node != model.host_of_rank[rank.rank]:
            yield f"rank {rank.rank}: stands on node {model.host_of_rank[rank.rank]}, not {rank.node}"


def _capacities(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    pairs = zip(model.memories, model.memory_pool_of_rank, model.memory_capacity, strict=True)
    for m, (tier, pool, capacity) in enumerate(pairs):
        taken = np.bincount(pool, weights=evaluation.rank_bytes[:, m])
        for k in np.flatnonzero(taken > capacity + 1).tolist():
            where = "rank" if len(capacity) == len(pool) else SHARED_BY[tier]
            yield f"{tier} of {where} {k}: {taken[k]:.0f} bytes placed, {capacity[k]:.0f} usable"
        stated = np.array([getattr(rank.capacity, tier) for rank in plan.ranks])
        if len(stated) == len(pool) and np.abs(stated - capacity[pool]).max() > 1:
            yield f"{tier}: the capacity in the document is not the topology's less its reserve"


def _stages(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    parts = zip(plan.stages, evaluation.stage_seconds, evaluation.rank_stage_seconds.T, model.constants, strict=True)
    for stage, seconds, busy, constant in parts:
        if not np.isclose(stage.seconds, seconds, rtol=TOLERANCE, atol=1e-15):
            yield f"stage {stage.name}: takes {float(seconds)!r} s, the document says {stage.seconds!r}"
        rank = stage.critical_rank
        if rank is None and busy.max() > constant * (1 + TOLERANCE):
            yield f"stage {stage.name}: some rank binds it, the document names none"
        if rank is not None and not (busy.max() > constant and np.isclose(busy[rank], busy.max(), rtol=TOLERANCE)):
            yield f"stage {stage.name}: rank {rank} does not bind it"


def _proof(plan: Plan, model: CostModel, permits: Permits) -> Iterator[str]:
    assert plan.objective is not None
    if plan.proof is None:
        yield "proof: the lower bound comes without one"
        return
    problem = build_problem(model, planned_options(plan.provenance, model, permits))
    faults = [*faults_of(plan.proof, model, problem), *faults_of_packing(plan.proof, model, problem)]
    yield from (f"proof: {fault}" for fault in faults)
    if faults:
        return
    faults = [*faults_of_cases(plan.proof, model, problem), *faults_of_trial(plan.proof, model, problem)]
    yield from (f"proof: {fault}" for fault in faults)
    if faults:
        return
    proven = model.whole_step_s(recomputed_bound_s(plan.proof, model, problem))
    if proven < plan.objective.lower_bound_s * (1 - TOLERANCE):
        yield f"proof: its multipliers prove {proven!r}, the document says {plan.objective.lower_bound_s!r}"
    if plan.status == "feasible" and plan.objective.gap <= OPTIMAL_GAP - TOLERANCE and not plan.objective.outside:
        yield "status: feasible, though the bound proves the plan optimal"


def _simulated(plan: Plan) -> Iterator[str]:
    if plan.simulated is None:
        return
    for name, found in simulated(play(plan)):
        stated = getattr(plan.simulated, name)
        if not np.isclose(stated, found, rtol=SIMULATED_TOLERANCE, atol=0.0):
            yield f"simulated: {name} is {stated!r}; played again, it is {found!r}"


def _objective(plan: Plan) -> Iterator[str]:
    objective = plan.objective
    assert objective is not None
    total = sum(stage.seconds for stage in plan.stages)
    if not np.isclose(objective.step_s, total, rtol=TOLERANCE):
        yield f"objective: step_s is {objective.step_s!r}, its stages sum to {total!r}"
    best_s, given_up_s = objective.best_step_s, objective.given_up_s
    if (best_s is None) != (given_up_s is None):
        yield "objective: best_step_s and given_up_s go together"
    elif best_s is not None and given_up_s is not None:
        if (
            not objective.lower_bound_s * (1 - TOLERANCE)
            <= best_s
            <= objective.step_s
            <= best_s * (1 + GIVE + TOLERANCE)
        ):
            yield f"objective: best_step_s {best_s!r} is below the bound, or not up to {GIVE:.1%} below the step"
        if not np.isclose(objective.step_s - best_s, given_up_s, rtol=1e-6, atol=TOLERANCE * objective.step_s):
            yield f"objective: given_up_s is {given_up_s!r}, not step_s - best_step_s"
    step_s, bound_s = objective.step_s, objective.lower_bound_s
    if not 0 <= bound_s <= step_s or (bound_s == 0 and step_s > 0):
        yield f"objective: the bound {bound_s!r} is not between 0 and the step {step_s!r}"
    elif not np.isclose(objective.gap, step_s / bound_s - 1 if bound_s else 0.0, rtol=1e-6, atol=1e-12):
        yield f"objective: gap is {objective.gap!r}, not step_s / lower_bound_s - 1"
