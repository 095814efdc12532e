"""From a solver's placement to the plan document."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cost_models.evaluation import critical_rank
from cost_models.model import CostModel
from cost_models.shards import (
    MEMORY_HBM,
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
    TIERS,
    block_rows,
)
from cost_models.workload.formats import DTYPES
from planner.document.certificates import Proof
from planner.document.moves import Moves
from planner.document.origin import Provenance
from planner.document.plan import Objective, Plan, QualityPaid, RankPlan, Remap, StageTime, TablePlan
from planner.document.planned import held_model, placed_tables
from planner.document.reasons import Remedy
from planner.document.remaps import hot_row_count, hot_rows_of_shards
from planner.document.shards import Shards, TierBytes
from planner.document.smallest_shards import SmallestShards, explain_unplaced
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options
from planner.formulation.variants import Variants
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement
from planner.problem.row_shares import part_at
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome
from planner.verification.beyond_step import with_beyond_step
from planner.verification.error_bars import with_error_bars
from planner.verification.infeasibility import explain_exhaustive_search, explain_limit, explain_shortage


def document(
    formulation: Formulation,
    outcome: Outcome,
    proof: Proof | None,
    origin: Provenance,
    incumbent: IncumbentPlacement | None = None,
    remedies: tuple[Remedy, ...] = (),
    best_step_s: float | None = None,
) -> Plan:
    """The plan document of a search's outcome: a placement with its figures and proof, or why there is none.

    The formulation is at the protocols of the placement; the search, and thus the proof, may have been at others.

    Columns are dealt out so that ranks keep what they hold, as `incumbent` says. `remedies` are what would help where
    there is no placement. `best_step_s` is that of the best placement found, where the outcome's is another.
    """
    if outcome.ran_out_of_time:
        origin = origin.model_copy(update={"ended_by_time": (*origin.ended_by_time, "search")})
    bound_s = outcome.bound_s
    if outcome.placement is None or bound_s is None:
        reason, unplaced = None, None
        if outcome.shortage is not None:
            reason = explain_shortage(formulation, outcome.shortage)
            reason = reason.model_copy(update={"remedies": remedies})
        elif outcome.tried:
            reason = explain_exhaustive_search(formulation, remedies)
        elif outcome.status == "timeout":
            unplaced = explain_unplaced(SmallestShards(formulation), remedies)
        return Plan(
            status=outcome.status,
            objective=None,
            simulated=None,
            stages=(),
            tables=(),
            ranks=(),
            provenance=origin,
            infeasibility=reason,
            unplaced=unplaced,
        )
    model = formulation.model
    tables, ranks, stages, objective = placed_plan(formulation, outcome.placement, bound_s, incumbent)
    best_step_s = None if best_step_s is None else model.whole_step_s(best_step_s)
    word_s = 0.0 if outcome.solver_bound_s is None else model.whole_step_s(outcome.solver_bound_s)
    if word_s > objective.lower_bound_s:
        objective = objective.model_copy(update={"solver_bound_s": min(word_s, objective.step_s)})
    if best_step_s is not None and best_step_s < objective.step_s:
        given_up = {"best_step_s": best_step_s, "given_up_s": objective.step_s - best_step_s}
        objective = objective.model_copy(update=given_up)
    model = held_model(model, tables)
    plan = Plan(
        status="optimal" if objective.gap <= OPTIMAL_GAP else "feasible",
        objective=objective,
        simulated=None,
        stages=stages,
        tables=tables,
        ranks=ranks,
        provenance=origin,
        proof=proof,
        quality=_quality(formulation.options.choices.variants, tables),
    )
    return with_beyond_step(with_error_bars(plan, model), model)


def with_moves(plan: Plan, moves: Moves) -> Plan:
    """The plan with what moves; where more must move than may, with that as the reason that there is none."""
    reason = plan.infeasibility
    if plan.status == "infeasible" and reason is None and moves.limit_bytes is not None:
        reason = explain_limit(moves.least_bytes, moves.limit_bytes)
    return plan.model_copy(update={"moves": moves, "infeasibility": reason})


def placed_plan(
    formulation: Formulation, placement: Placement, bound_s: float, incumbent: IncumbentPlacement | None = None
) -> tuple[tuple[TablePlan, ...], tuple[RankPlan, ...], tuple[StageTime, ...], Objective]:
    """The parts of the document that a placement fills; all sums by the solver's own arrays."""
    model, problem = formulation.model, formulation.problem
    tables, rank_bytes = _tables(formulation, placement, incumbent)
    if model.stashes:
        returned = model.returned_bytes(placed_tables(tables))
        rank_bytes[:, MEMORY_HBM] = np.maximum(rank_bytes[:, MEMORY_HBM], returned)
    state = load_state(problem, placement)
    busy = np.zeros((problem.world, len(model.stages)))
    for column, stage in zip(state.load, problem.stage_of_column, strict=True):
        busy[:, stage] = np.maximum(busy[:, stage], column)
    model.show_floor(busy)
    stages = tuple(
        StageTime(
            name=name,
            seconds=float(seconds),
            critical_rank=critical_rank(load),
        )
        for name, seconds, load in zip(model.stages, busy.max(axis=0) + problem.stage_constants, busy.T, strict=True)
    )
    step_s = float(sum(stage.seconds for stage in stages))
    bound_s = min(model.whole_step_s(bound_s), step_s)
    gap = 0.0
    if step_s > bound_s:
        gap = step_s / bound_s - 1 if bound_s > 0 else math.inf
    objective = Objective(step_s=step_s, lower_bound_s=bound_s, gap=gap)
    ranks = rank_plans(model, rank_bytes, busy + problem.stage_constants)
    return tables, ranks, stages, objective


def _tables(
    formulation: Formulation, placement: Placement, incumbent: IncumbentPlacement | None
) -> tuple[tuple[TablePlan, ...], Floats]:
    """The tables with their shards, and the bytes [W, M] on each rank with the dense part."""
    model, options, problem = formulation.model, formulation.options, formulation.problem
    option_of_table, variants = placement.option_of_table(problem), options.choices.variants
    workload, base_bytes, chosen = model.workload, model.base_bytes, None
    if variants is not None:
        chosen = options.profile[option_of_table].tolist()
        workload = workload.with_compressors([variants.compressors[v] for v in chosen])
        base_bytes = model.compressed_as(workload).base_bytes
    rank_bytes = np.tile(base_bytes, (problem.world, 1))
    plans = []
    for table, items in enumerate(_items_of_tables(problem, placement, incumbent)):
        option = int(option_of_table[table])
        matrix = _shard_matrix(problem, options, items)[:, : 5 + len(model.memories)]
        shards = Shards.from_matrix(np.round(matrix).astype(np.int64), model.memories)
        np.add.at(rank_bytes, shards.rank, matrix[:, 5:])
        sharding = SHARDINGS[options.block_sharding[items[0][0]]]
        tier = PLACEMENT_TIERS[options.tier[option]]
        profile = workload.tables[table]
        fraction, remap = float(options.cache_fraction[option]), None
        if TIERS[tier].how == "split":
            rows = workload.stored_rows(profile)
            remap = Remap(hot_rows=hot_row_count(rows, fraction), ids="ranked")
            shards = replace(shards, hot_rows=hot_rows_of_shards(shards, remap.hot_rows, rows))
        plans.append(
            TablePlan.model_construct(
                name=profile.name,
                sharding=sharding,
                tier=tier,
                dtype=DTYPES[options.dtype[option]],
                cache_fraction=fraction if tier in PARTLY_IN_HBM else None,
                optimizer_state=STATE_PLACES[options.state[option]],
                remap=remap,
                variant=None if variants is None or chosen is None else variants.words[chosen[table]],
                shards=shards,
            )
        )
    return tuple(plans), rank_bytes


def _quality(variants: Variants | None, tables: Sequence[TablePlan]) -> QualityPaid | None:
    """What the variants of a plan's tables lose; None where there are none to choose from."""
    if variants is None:
        return None
    return QualityPaid(loss=variants.loss_of([table.variant for table in tables]), budget=variants.budget)


def _items_of_tables(
    problem: Problem, placement: Placement, incumbent: IncumbentPlacement | None
) -> Iterator[list[tuple[int, int]]]:
    """For each table its (block, place) pairs in the order of their columns, or rows: by block and place, or as the
    incumbent placement says."""
    order = np.lexsort((placement.item_place, placement.item_block))
    block, place = placement.item_block[order], placement.item_place[order]
    if incumbent is not None:
        block, place = incumbent.in_column_order(problem, placement)
    table = problem.option_table[problem.block_option[block]]
    bounds = np.searchsorted(table, np.arange(problem.tables + 1))
    for start, stop in itertools.pairwise(bounds):
        yield list(zip(block[start:stop].tolist(), place[start:stop].tolist(), strict=True))


def _shard_matrix(problem: Problem, options: Options, items: list[tuple[int, int]]) -> Floats:
    """[n, 5 + M] the shards of a table in the order of the document's keys; bytes not yet rounded."""
    parts, column, row = [], 0, 0
    for block, place in items:
        width, rows = int(options.block_columns[block]), int(problem.block_rows[block])
        ranks, row_start, held = rank_rows(problem, block, place)
        kinds = problem.kind_of_rank[ranks]
        share = (held / (rows * problem.block_copies[block]))[:, None]
        size = problem.bytes_fixed[kinds, block] + problem.bytes_by_rows[kinds, block] * share
        columns = np.tile([column, width], (len(ranks), 1))
        parts.append(np.column_stack([ranks, row + row_start, held, columns, size]))
        if problem.option_apart[problem.block_option[block]]:
            row += rows
        else:
            column += width
    return np.concatenate(parts)


def rank_rows(problem: Problem, block: int, place: int) -> tuple[Ints, Ints, Ints]:
    """Ranks, first rows and row counts of one placed block; of its own rows, where these are a part of the table's."""
    rows = int(problem.block_rows[block])
    ranks = problem.sites_of(block).members(place)
    if problem.block_replicated[block]:
        return ranks, np.broadcast_to(0, ranks.shape), np.broadcast_to(rows, ranks.shape)
    copies = int(problem.block_copies[block])
    held = block_rows(np.array(rows), len(ranks) // copies, np.arange(len(ranks) // copies))
    of_part = part_at(np.arange(len(ranks)), np.array(len(ranks)), np.array(copies), apart=problem.copies_apart)
    return ranks, (np.cumsum(held) - held)[of_part], held[of_part]


def rank_plans(model: CostModel, rank_bytes: Floats, busy: Floats) -> tuple[RankPlan, ...]:
    """What each rank holds, of bytes [W, M], and how long it is busy, of seconds [W, S]."""
    pools = zip(model.memory_capacity, model.memory_pool_of_rank, strict=True)
    capacity = np.stack([of_pool[pool] for of_pool, pool in pools], axis=1).astype(np.int64)
    return tuple(
        RankPlan(
            rank=rank,
            node=int(model.host_of_rank[rank]),
            bytes=TierBytes.of(model.memories, rank_bytes[rank].tolist()),
            capacity=TierBytes.of(model.memories, capacity[rank].tolist()),
            seconds=dict(zip(model.stages, busy[rank].tolist(), strict=True)),
        )
        for rank in range(len(busy))
    )
