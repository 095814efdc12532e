"""Whether a plan document says the truth: recomputed from the inputs it carries, without a solver.

Nothing here knows how a plan was found. Shards are read from the document, checked as rectangles, costed one by one
by the cost model and summed; then every figure of the document is compared.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cost_models import error_bars
from cost_models.model import CostModel, Evaluation
from cost_models.shards import (
    DATA_PARALLEL,
    GRID_SHARD,
    MEMORY_TIERS,
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    ROW_WISE,
    SHARDINGS,
    SHARED_BY,
    STATE_PLACES,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Ints,
    block_rows,
)
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import TableProfile, Workload
from planner.document import ErrorBar, Plan, Shards, Source, TablePlan
from planner.migration import is_limit_too_small, migration_from, plan_fingerprint
from planner.options import build_problem
from planner.permits import Held, Permits, permits_of, planning_model, violations
from planner.planned import placed_shards, planned_inputs
from planner.proof import (
    faults_of,
    faults_of_cases,
    faults_of_packing,
    faults_of_trial,
    is_infeasible,
    nothing_fits,
    recomputed_bound_s,
)
from planner.provenance import coefficient_sources, faults_of_fractions, planned_options, tried_fractions
from planner.remaps import faults_of_files, numbering_fault
from planner.simulation import play, simulated
from planner.space import Space
from topologies.cluster import Topology, fingerprint
from topologies.errors import InputError

TOLERANCE = 1e-9
"""Relative difference of seconds that two orders of summation may make."""
SIMULATED_TOLERANCE = 1e-6
"""Relative difference that rounding may make of a simulation: events may change places."""
OPTIMAL_GAP = 1e-6
"""The largest gap of a plan that may be called optimal."""
COLUMN_UNIT = 4
ROUNDED = 3
"""Bytes by which sums of three rounded counts may differ."""


def verify(plan: Plan, former: Plan | None = None, folder: str | Path | None = None) -> list[str]:
    """Everything that does not hold, in words; empty for a plan that is right.

    Checked: the inputs are those of the fingerprints; every table is covered exactly once, the way its sharding
    says; bytes of shards and ranks, and no memory over its capacity; stage times, critical ranks, their sum, their
    error bars and the gap; the bound is not above the objective; the policy is kept; the status goes with them; split
    tables have as many hot rows as their bytes hold. What moved is checked against the `former` plan, and the files of
    remapped ids in the plan's `folder`, where these are given. Raises InputError if the inputs in the document cannot
    be read.
    """
    topology, workload = planned_inputs(plan)
    found = [
        *_source("topology", plan.provenance.topology, topology),
        *_source("workload", plan.provenance.workload, workload),
        *_status(plan),
    ]
    policy = plan.provenance.policy
    model = planning_model(plan.provenance.cost_model, topology, workload, policy)
    found += _coefficients(plan, model)
    fractions = list(faults_of_fractions(plan.provenance, model))
    if fractions:
        return [*found, *fractions]
    try:
        permits = permits_of(model, policy)
    except InputError as error:
        return [*found, *(f"policy: {fault.path}: {fault.message}" for fault in error.faults)]
    if plan.objective is None:
        return [*found, *_infeasibility(plan, model, permits), *_moves(plan, model, permits, former)]
    placed = list(_tables(plan, model)) or list(_policy(plan, permits))
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
    found += _error_bars(plan, model)
    found += _proof(plan, model, permits)
    found += _moves(plan, model, permits, former)
    found += _simulated(plan)
    found += [] if folder is None else faults_of_files(plan, Path(folder))
    return found


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
    if plan.status == "optimal" and stated:
        yield "status: optimal, though the bound does not cover how tables are held"


def outside_options(plan: Plan, model: CostModel, permits: Permits) -> dict[str, str]:
    """Of each table that is held in a way that is no option, its name and why, in words."""
    space = Space(model, permits, plan.provenance.cuts)
    fractions = tried_fractions(plan.provenance, model)
    found = {}
    for number, table in enumerate(plan.tables):
        tier, sharding = PLACEMENT_TIERS.index(table.tier), SHARDINGS.index(table.sharding)
        _, first = np.unique(table.shards.column_start, return_index=True)
        words = space.outside(number, tier, sharding, table.shards.columns[first])
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


def _coefficients(plan: Plan, model: CostModel) -> Iterator[str]:
    if plan.provenance.coefficients != coefficient_sources(model.coefficients):
        yield "coefficients: the plan was costed with others than this planner has"


def _infeasibility(plan: Plan, model: CostModel, permits: Permits) -> Iterator[str]:
    """Whether the prices of an infeasibility claim prove it, or its homeless tables have no option indeed."""
    if plan.infeasibility is None:
        if plan.status == "infeasible":
            yield "infeasible: without a reason"
        return
    if is_limit_too_small(plan):
        return
    problem = build_problem(model, planned_options(plan.provenance, model, permits))
    if plan.infeasibility.tried:
        if not nothing_fits(problem):
            yield "infeasible: trying all placements does not show that none fits"
    elif not is_infeasible(plan.infeasibility.byte_prices, model, problem):
        yield "infeasible: its prices do not prove that the tables need more memory than there is"


def _source(kind: str, source: Source, record: Topology | Workload) -> Iterator[str]:
    found = fingerprint(record)
    if found != source.fingerprint:
        yield f"{kind}: the content hashes to {found}, the document says {source.fingerprint}"


def _status(plan: Plan) -> Iterator[str]:
    is_placed = plan.status in ("optimal", "feasible")
    if is_placed != (plan.objective is not None):
        yield f"status: {plan.status} {'without' if is_placed else 'with'} an objective"
    if plan.objective is None and (plan.stages or plan.tables or plan.ranks):
        yield "status: stages, tables or ranks without an objective"
    if plan.status == "optimal" and plan.objective is not None and plan.objective.gap > OPTIMAL_GAP + TOLERANCE:
        yield f"status: optimal, with a gap of {plan.objective.gap!r}"


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
        elif fault := numbering_fault(table, profile.rows):
            yield f"table {table.name}: {fault}"


def coverage_fault(table: TablePlan, profile: TableProfile, node_start: Ints, tied: tuple[int, ...]) -> str | None:
    """What is wrong with how a table's shards cover it; None when every element is held as the sharding says.

    `node_start` is [N + 1] the first rank of each node, and the number of ranks; `tied` are the shardings whose blocks
    are on different ranks of one node.
    """
    shards, world = table.shards, int(node_start[-1])
    sharding = SHARDINGS.index(table.sharding)
    if not len(shards) or shards.rank.max() >= world:
        return "has no shards, or one on a rank that does not exist"
    blocks = _column_blocks(shards)
    if blocks is None or blocks[0][0] != 0 or blocks[-1][1] != profile.dim:
        return "its column blocks do not tile the columns"
    if fault := _block_fault(table, blocks):
        return fault
    nodes = np.searchsorted(node_start, shards.rank, side="right") - 1
    if sharding in tied and (len(set(nodes.tolist())) != 1 or len(set(shards.rank.tolist())) != len(shards)):
        return f"{table.sharding} needs different ranks of one node"
    for _, _, index in blocks:
        node = int(nodes[index[0]])
        if sharding in (ROW_WISE, DATA_PARALLEL):
            ranks = np.arange(world)
        elif sharding in (TABLE_ROW_WISE, GRID_SHARD):
            ranks = np.arange(node_start[node], node_start[node + 1])
        else:
            ranks = shards.rank[index][:1]
        if not np.array_equal(shards.rank[index], ranks):
            return f"{table.sharding} needs one shard on each of its ranks, in their order"
        held = block_rows(np.array(profile.rows), len(ranks), np.arange(len(ranks)))
        start = np.cumsum(held) - held
        if sharding == DATA_PARALLEL:
            held, start = np.full(len(ranks), profile.rows), np.zeros(len(ranks), dtype=np.int64)
        if not (np.array_equal(shards.rows[index], held) and np.array_equal(shards.row_start[index], start)):
            return f"its row blocks are not those of {table.sharding}: ceil(rows / ranks) each, in order"
    return None


def _block_fault(table: TablePlan, blocks: list[tuple[int, int, Ints]]) -> str | None:
    """What is wrong with the column blocks of a table that tile it; see `_column_blocks`."""
    sharding, columns = SHARDINGS.index(table.sharding), table.shards.columns
    if any(np.unique(columns[index]).size != 1 or (stop - start) % COLUMN_UNIT for start, stop, index in blocks):
        return f"a column block is not a multiple of {COLUMN_UNIT} columns wide"
    if sharding in (TABLE_WISE, ROW_WISE, TABLE_ROW_WISE, DATA_PARALLEL):
        if len(blocks) != 1:
            return f"{table.sharding} has one column block, not {len(blocks)}"
    elif sharding == GRID_SHARD and len(blocks) == 1:
        return "grid_shard has two column blocks at least; one is table_row_wise"
    if sharding == DATA_PARALLEL and table.tier != "hbm":
        return "replicas are held in HBM"
    return None


def _column_blocks(shards: Shards) -> list[tuple[int, int, Ints]] | None:
    """(first column, last + 1, shards) of each column block from the left; None where blocks overlap or leave gaps."""
    starts = np.unique(shards.column_start)
    found, reached = [], 0
    for start in starts.tolist():
        index = np.flatnonzero(shards.column_start == start)
        if start != reached:
            return None
        reached = start + int(shards.columns[index[0]])
        found.append((start, reached, index))
    return found


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
    if [rank.rank for rank in plan.ranks] != list(range(model.topology.world_size)):
        yield f"ranks: not 0 to {model.topology.world_size - 1} in order"
        return
    for rank in plan.ranks:
        stored = np.array([getattr(rank.bytes, tier) for tier in model.memories])
        if np.abs(stored - evaluation.rank_bytes[rank.rank]).max() > 1:
            taken = evaluation.rank_bytes[rank.rank].round().astype(int).tolist()
            yield f"rank {rank.rank}: takes {taken} bytes, the document says {stored.tolist()}"
        stated = np.array([rank.seconds.get(stage, np.nan) for stage in model.stages])
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
    if tuple(stage.name for stage in plan.stages) != model.stages:
        yield f"stages: {[stage.name for stage in plan.stages]}, not {list(model.stages)}"
        return
    for stage, seconds, busy in zip(
        plan.stages, evaluation.stage_seconds, evaluation.rank_stage_seconds.T, strict=True
    ):
        if not np.isclose(stage.seconds, seconds, rtol=TOLERANCE, atol=1e-15):
            yield f"stage {stage.name}: takes {float(seconds)!r} s, the document says {stage.seconds!r}"
        rank = stage.critical_rank
        if rank is None and busy.max() > model.constants[model.stages.index(stage.name)] * (1 + TOLERANCE):
            yield f"stage {stage.name}: some rank binds it, the document names none"
        if rank is not None and not (rank < len(busy) and np.isclose(busy[rank], busy.max(), rtol=TOLERANCE)):
            yield f"stage {stage.name}: rank {rank} does not bind it"


def error_bar(bar: error_bars.ErrorBar, seconds: float) -> ErrorBar:
    """A band in the words of the document."""
    low_s, high_s = bar.around(seconds)
    return ErrorBar(low_s=low_s, high_s=high_s, coverage=error_bars.COVERAGE, basis=bar.basis, spec_only=bar.spec_only)


def _error_bars(plan: Plan, model: CostModel) -> Iterator[str]:
    """Whether the bands are those of the cost model; a plan that states none is not asked for any."""
    assert plan.objective is not None
    stated = [("step", plan.objective.step_s, plan.objective.error_bar)]
    stated += [(f"stage {stage.name}", stage.seconds, stage.error_bar) for stage in plan.stages]
    if all(bar is None for _, _, bar in stated) or len(plan.stages) != len(model.stages):
        return
    bars = model.error_bars(placed_shards(plan))
    if bars is None:
        yield f"error bars: {model.without_error_bars}"
        return
    for (name, seconds, of_document), bar in zip(stated, (bars.step, *bars.stages), strict=True):
        found = error_bar(bar, seconds)
        if of_document is None:
            yield f"{name}: has no error bar"
        elif not (
            np.isclose([of_document.low_s, of_document.high_s], [found.low_s, found.high_s], rtol=1e-6).all()
            and (of_document.coverage, of_document.basis, of_document.spec_only)
            == (found.coverage, found.basis, found.spec_only)
        ):
            yield f"{name}: its error bar is not the cost model's"


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
    proven = recomputed_bound_s(plan.proof, model, problem)
    if proven < plan.objective.lower_bound_s * (1 - TOLERANCE):
        yield f"proof: its multipliers prove {proven!r}, the document says {plan.objective.lower_bound_s!r}"


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
    step_s, bound_s = objective.step_s, objective.lower_bound_s
    if not 0 <= bound_s <= step_s or (bound_s == 0 and step_s > 0):
        yield f"objective: the bound {bound_s!r} is not between 0 and the step {step_s!r}"
    elif not np.isclose(objective.gap, step_s / bound_s - 1 if bound_s else 0.0, rtol=1e-6, atol=1e-12):
        yield f"objective: gap is {objective.gap!r}, not step_s / lower_bound_s - 1"
