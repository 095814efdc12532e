"""Whether the figures of a plan document are those of its placement."""

from collections.abc import Iterator

import numpy as np

from cost_models.evaluation import Evaluation
from cost_models.model import CostModel
from cost_models.shards import (
    MEMORY_TIERS,
    PARTLY_IN_HBM,
    SHARED_BY,
)
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.document.remaps import numbering_fault
from planner.problem.goals import GIVE
from planner.verification.beyond_step import faults_beyond_step
from planner.verification.coverage import coverage_fault

TOLERANCE = 1e-9
"""Relative difference of seconds that two orders of summation may make."""
ROUNDED = 3
"""Bytes by which sums of three rounded counts may differ."""


def table_faults(plan: Plan, model: CostModel) -> Iterator[str]:
    """Tables, formats and shards that are not those of the workload."""
    workload = model.workload
    planned = [table.name for table in plan.tables]
    expected = [table.name for table in workload.tables]
    if planned != expected:
        missing = [name for name in expected if name not in set(planned)]
        extra = [name for name in planned if name not in set(expected)]
        yield f"tables: missing {missing[:3]}, not in the workload or twice {extra[:3]}, or in another order"
        return
    for table, profile, copies in zip(plan.tables, workload.tables, model.copies.tolist(), strict=True):
        shape = workload.stored_shape(profile)
        nodes, colocated, apart = model.node_of_rank, model.node_colocated_shardings, model.copies_apart
        one_domain = model.topology.is_one_domain
        problem = coverage_fault(table, shape, nodes, colocated, copies, apart=apart, one_domain=one_domain)
        if problem:
            yield f"table {table.name}: {problem}"
        if (table.tier in PARTLY_IN_HBM) != (table.cache_fraction is not None):
            yield f"table {table.name}: a cache fraction goes with the tiers that are partly in HBM, and only with them"
        elif table.cache_fraction is not None and not 0 < table.cache_fraction <= 1:
            yield f"table {table.name}: its cache fraction {table.cache_fraction!r} is no share above 0 and at most 1"
        elif fault := numbering_fault(table, shape[0]):
            yield f"table {table.name}: {fault}"


def figure_faults(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    """Bytes, seconds, step and gap that are not those of the placement, whose `evaluation` this is; that the bound is
    one is proven elsewhere."""
    yield from byte_faults(plan, model)
    yield from rank_faults(plan, model, evaluation)
    yield from capacity_faults(plan, model, evaluation)
    yield from stage_faults(plan, model, evaluation)
    yield from objective_faults(plan, model)


def byte_faults(plan: Plan, model: CostModel) -> Iterator[str]:
    """Bytes of shards that are not what the model counts."""
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


def rank_faults(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    """Ranks whose node, bytes, capacity or seconds are not those of the placement."""
    absent = [tier for tier in MEMORY_TIERS if tier not in model.memories]
    for rank in plan.ranks:
        if any(rank.bytes[tier] or rank.capacity[tier] for tier in absent):
            yield f"rank {rank.rank}: has bytes in a memory that its costs do not know"
        stored = np.array([rank.bytes[tier] for tier in model.memories])
        if np.abs(stored - evaluation.rank_bytes[rank.rank]).max() > 1:
            taken = evaluation.rank_bytes[rank.rank].round().astype(int).tolist()
            yield f"rank {rank.rank}: takes {taken} bytes, the document says {stored.tolist()}"
        stated = np.array([rank.seconds[stage] for stage in model.stages])
        if not np.allclose(stated, evaluation.rank_stage_seconds[rank.rank], rtol=TOLERANCE, atol=1e-15):
            yield f"rank {rank.rank}: its seconds per stage are not what its shards cost"
        if rank.node != model.host_of_rank[rank.rank]:
            yield f"rank {rank.rank}: stands on node {model.host_of_rank[rank.rank]}, not {rank.node}"


def overfull(model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    """Memory pools that hold more than they can."""
    pairs = zip(model.memories, model.memory_pool_of_rank, model.memory_capacity, strict=True)
    for m, (tier, pool, capacity) in enumerate(pairs):
        taken = np.bincount(pool, weights=evaluation.rank_bytes[:, m])
        for k in np.flatnonzero(taken > capacity + 1).tolist():
            where = "rank" if len(capacity) == len(pool) else SHARED_BY[tier]
            yield f"{tier} of {where} {k}: {taken[k]:.0f} bytes placed, {capacity[k]:.0f} usable"


def capacity_faults(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    """Memory pools that hold more than they can, and capacities that are stated wrong."""
    yield from overfull(model, evaluation)
    for tier, pool, capacity in zip(model.memories, model.memory_pool_of_rank, model.memory_capacity, strict=True):
        stated = np.array([rank.capacity[tier] for rank in plan.ranks])
        if len(stated) == len(pool) and np.abs(stated - capacity[pool]).max() > 1:
            yield f"{tier}: the capacity in the document is not the topology's less its reserve"


def stage_faults(plan: Plan, model: CostModel, evaluation: Evaluation) -> Iterator[str]:
    """Stages whose time or critical rank is not that of the placement."""
    parts = zip(plan.stages, evaluation.stage_seconds, evaluation.rank_stage_seconds.T, model.constants, strict=True)
    for stage, seconds, busy, constant in parts:
        if not np.isclose(stage.seconds, seconds, rtol=TOLERANCE, atol=1e-15):
            yield f"stage {stage.name}: takes {float(seconds)!r} s, the document says {stage.seconds!r}"
        rank = stage.critical_rank
        if rank is None and busy.max() > constant * (1 + TOLERANCE):
            yield f"stage {stage.name}: some rank binds it, the document names none"
        if rank is not None and not (busy.max() > constant and np.isclose(busy[rank], busy.max(), rtol=TOLERANCE)):
            yield f"stage {stage.name}: rank {rank} does not bind it"


def objective_faults(plan: Plan, model: CostModel) -> Iterator[str]:
    """A step, throughput, bound or gap that does not follow from the rest, and what the step takes beyond."""
    objective = plan.objective
    assert objective is not None
    yield from faults_beyond_step(plan, model)
    total = sum(stage.seconds for stage in plan.stages)
    if not np.isclose(objective.step_s, total, rtol=TOLERANCE):
        yield f"objective: step_s is {objective.step_s!r}, its stages sum to {total!r}"
    best_s, given_up_s = objective.best_step_s, objective.given_up_s
    goals = plan.provenance.policy.goals
    give = GIVE if goals is None else goals[0].share
    if (best_s is None) != (given_up_s is None):
        yield "objective: best_step_s and given_up_s go together"
    elif best_s is not None and given_up_s is not None:
        if (
            not objective.lower_bound_s * (1 - TOLERANCE)
            <= best_s
            <= objective.step_s
            <= best_s * (1 + give + TOLERANCE)
        ):
            yield f"objective: best_step_s {best_s!r} is below the bound, or not up to {give:.1%} below the step"
        if not np.isclose(objective.step_s - best_s, given_up_s, rtol=1e-6, atol=TOLERANCE * objective.step_s):
            yield f"objective: given_up_s is {given_up_s!r}, not step_s - best_step_s"
    word_s, step_s, bound_s = objective.solver_bound_s, objective.step_s, objective.lower_bound_s
    if word_s is not None and not bound_s < word_s <= step_s:
        yield f"objective: solver_bound_s {word_s!r} is not above the bound and up to the step"
    if not 0 <= bound_s <= step_s or (bound_s == 0 and step_s > 0):
        yield f"objective: the bound {bound_s!r} is not between 0 and the step {step_s!r}"
    elif not np.isclose(objective.gap, step_s / bound_s - 1 if bound_s else 0.0, rtol=1e-6, atol=1e-12):
        yield f"objective: gap is {objective.gap!r}, not step_s / lower_bound_s - 1"
