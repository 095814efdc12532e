"""From a solver's placement to the plan document."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, PlacementTier, block_rows
from planner.document import (
    Infeasibility,
    Objective,
    Plan,
    Provenance,
    RankPlan,
    Shards,
    StageTime,
    TableDemand,
    TablePlan,
    TierBytes,
    TierShortage,
)
from planner.options import Options
from planner.problem import NODE, RANK, Floats, Ints, Placement, Problem, load_state
from planner.proof import byte_prices, write_proof
from planner.solvers.infeasible import Shortage
from planner.solvers.search import Outcome

SOLVER = "fluid prices, longest-first"
_BLAMED = 5


def document(model: CostModel, options: Options, problem: Problem, outcome: Outcome, origin: Provenance) -> Plan:
    """The plan document of a search's outcome: a placement with its figures and proof, or why there is none."""
    if outcome.placement is None or outcome.bound is None:
        reason = explain_shortage(model, outcome.shortage, origin.policy.tiers) if outcome.shortage else None
        return Plan(
            status=outcome.status,
            objective=None,
            simulated=None,
            stages=(),
            tables=(),
            ranks=(),
            provenance=origin,
            infeasibility=reason,
        )
    tables, ranks, stages, objective = placed_plan(model, options, problem, outcome.placement, outcome.bound.seconds)
    return Plan(
        status=outcome.status,
        objective=objective,
        simulated=None,
        stages=stages,
        tables=tables,
        ranks=ranks,
        provenance=origin,
        proof=write_proof(model, problem, outcome.bound),
    )


def placed_plan(
    model: CostModel, options: Options, problem: Problem, placement: Placement, bound_s: float
) -> tuple[tuple[TablePlan, ...], tuple[RankPlan, ...], tuple[StageTime, ...], Objective]:
    """The parts of the document that a placement fills; all sums by the solver's own arrays."""
    tables, rank_bytes = _tables(model, options, problem, placement)
    state = load_state(problem, placement)
    stage_seconds = state.stage_seconds()
    busy = np.zeros((problem.world, len(model.stages)))
    for column, stage in zip(state.load, problem.stage_of_column, strict=True):
        busy[:, stage] = np.maximum(busy[:, stage], column)
    stages = tuple(
        StageTime(
            name=name,
            seconds=float(seconds),
            critical_rank=int(load.argmax()) if load.any() else None,
        )
        for name, seconds, load in zip(model.stages, stage_seconds, busy.T, strict=True)
    )
    step_s = float(sum(stage.seconds for stage in stages))
    bound_s = min(bound_s, step_s)
    gap = 0.0
    if step_s > bound_s:
        gap = step_s / bound_s - 1 if bound_s > 0 else math.inf
    objective = Objective(step_s=step_s, lower_bound_s=bound_s, gap=gap)
    ranks = _ranks(model, rank_bytes, busy + problem.stage_constants)
    return tables, ranks, stages, objective


def _tables(
    model: CostModel, options: Options, problem: Problem, placement: Placement
) -> tuple[tuple[TablePlan, ...], Floats]:
    """The tables with their shards, and the bytes [W, M] on each rank with the dense part."""
    rank_bytes = np.tile(problem.base_bytes, (problem.world, 1))
    workload = model.workload
    option_of_table = placement.option_of_table(problem)
    plans = []
    for table, items in enumerate(_items_of_tables(problem, placement)):
        option = int(option_of_table[table])
        matrix = _shard_matrix(problem, options, table, items)
        shards = Shards.from_matrix(np.round(matrix).astype(np.int64))
        np.add.at(rank_bytes, shards.rank, matrix[:, 5:])
        sharding = SHARDINGS[options.block_sharding[items[0][0]]]
        tier = PLACEMENT_TIERS[options.tier[option]]
        profile = workload.tables[table]
        fraction = float(options.cache_fraction[option])
        plans.append(
            TablePlan.model_construct(
                name=profile.name,
                sharding=sharding,
                tier=tier,
                dtype=workload.dtype_of(profile),
                cache_fraction=fraction if tier.endswith("_cached") else None,
                shards=shards,
            )
        )
    return tuple(plans), rank_bytes


def _items_of_tables(problem: Problem, placement: Placement) -> Iterator[list[tuple[int, int]]]:
    """For each table its (block, place) pairs in the order of their block types, then by place."""
    order = np.lexsort((placement.item_place, placement.item_block))
    table = problem.option_table[problem.block_option[placement.item_block[order]]]
    bounds = np.searchsorted(table, np.arange(problem.tables + 1))
    for start, stop in itertools.pairwise(bounds):
        index = order[start:stop]
        yield list(zip(placement.item_block[index].tolist(), placement.item_place[index].tolist(), strict=True))


def _shard_matrix(problem: Problem, options: Options, table: int, items: list[tuple[int, int]]) -> Floats:
    """[n, 8] the shards of a table in the order of the document's keys; bytes not yet rounded."""
    rows = int(problem.table_rows[table])
    parts, column = [], 0
    for block, place in items:
        width = int(options.block_columns[block])
        ranks, row_start, held = _rank_rows(problem, block, place, rows)
        kinds = problem.kind_of_rank[ranks]
        size = problem.bytes_fixed[kinds, block] + problem.bytes_by_rows[kinds, block] * (held / rows)[:, None]
        columns = np.tile([column, width], (len(ranks), 1))
        parts.append(np.column_stack([ranks, row_start, held, columns, size]))
        column += width
    return np.concatenate(parts)


def _rank_rows(problem: Problem, block: int, place: int, rows: int) -> tuple[Ints, Ints, Ints]:
    """Ranks, first rows and row counts of one placed block."""
    if problem.block_extent[block] == RANK:
        return np.array([place]), np.array([0]), np.array([rows])
    if problem.block_extent[block] == NODE:
        ranks = np.arange(problem.node_start[place], problem.node_start[place + 1])
    else:
        ranks = np.arange(problem.world)
    if problem.block_replicated[block]:
        return ranks, np.zeros_like(ranks), np.full_like(ranks, rows)
    held = block_rows(np.array(rows), len(ranks), np.arange(len(ranks)))
    return ranks, np.cumsum(held) - held, held


def _ranks(model: CostModel, rank_bytes: Floats, busy: Floats) -> tuple[RankPlan, ...]:
    pools = zip(model.memory_capacity, model.memory_pool_of_rank, strict=True)
    capacity = np.stack([of_pool[pool] for of_pool, pool in pools], axis=1).astype(np.int64)
    return tuple(
        RankPlan(
            rank=rank,
            node=int(model.host_of_rank[rank]),
            bytes=_tier_bytes(rank_bytes[rank].round().astype(int).tolist()),
            capacity=_tier_bytes(capacity[rank].tolist()),
            seconds=dict(zip(model.stages, busy[rank].tolist(), strict=True)),
        )
        for rank in range(len(busy))
    )


def _tier_bytes(values: list[int]) -> TierBytes:
    return TierBytes(**dict(zip(MEMORY_TIERS, values, strict=True)))


def explain_shortage(model: CostModel, shortage: Shortage, allowed: Sequence[PlacementTier]) -> Infeasibility:
    """A solver's proof in the user's words."""
    tables = model.workload.tables
    of = model.tables
    every = np.arange(len(tables))
    sizes = of.rows.astype(float) * (of.row_bytes(every, of.dim) + of.row_state_bytes(every, of.dim))
    capacity = [float(of_pool.sum()) for of_pool in model.memory_capacity]
    tiers = tuple(
        TierShortage(
            tier=tier,
            capacity_bytes=int(capacity[m]),
            short_bytes=None if np.isnan(shortage.bytes_short[m]) else int(np.ceil(shortage.bytes_short[m])),
        )
        for m, tier in enumerate(MEMORY_TIERS)
    )
    if len(shortage.homeless):
        blamed = shortage.homeless
        summary = f"{len(blamed)} of {len(tables)} tables fit nowhere, whatever else is placed"
        reason = "no allowed sharding and tier fits it on empty hardware"
    else:
        blamed = np.argsort(-sizes, kind="stable")
        held_in = {"hbm", *(tier.removesuffix("_cached") for tier in allowed)}
        fits = sizes.sum() <= sum(size for tier, size in zip(MEMORY_TIERS, capacity, strict=True) if tier in held_in)
        what = "the tables with what they bring (caches, ids and outputs in flight)" if fits else "the tables"
        summary = f"{what} need more memory than the tiers that may hold them have"
        reason = "among the largest"
    demand = tuple(
        TableDemand(name=tables[i].name, bytes=int(sizes[i]), reason=reason) for i in blamed[:_BLAMED].tolist()
    )
    return Infeasibility(summary=summary, tiers=tiers, tables=demand, byte_prices=byte_prices(model, shortage.byte))
