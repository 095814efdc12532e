"""How far a plan reaches the goals of its policy, as the document says it and as its tables and ranks have it."""

from math import isclose

import numpy as np

from cost_models.shards import MEMORY_DDR, SHARDING_ROWS, STASHED_TIERS, Ints, sites_with_parts
from planner.document.plan import GoalReached, Plan
from planner.problem.goals import CROWDED, GoalName, Reached

ROUNDING = 1e-7
"""Relative difference that rounded bytes make."""


def goals_reached(plan: Plan, reached: tuple[Reached, ...]) -> tuple[GoalReached, ...]:
    """What the document says of goals: the best values are those of the search, the others those of the document."""
    return tuple(
        GoalReached(
            name=each.goal.name,
            tolerance=each.goal.share,
            best=value if isclose(each.best, value, rel_tol=ROUNDING) else min(each.best, value),
            value=value,
        )
        for each in reached
        for value in (goal_value(plan, each.goal.name),)
    )


def goal_value(plan: Plan, name: GoalName, crowded: float = CROWDED) -> float:
    """How far a plan that places something reaches a goal."""
    if name == "step":
        assert plan.objective is not None
        return plan.objective.step_s
    if name == "moved_bytes":
        return 0.0 if plan.moves is None else float(plan.moves.moved_bytes)
    if name == "blocks":
        return float(sum(_blocks(plan)))
    if name == "largest_stash":
        return float(stash_of_ranks(plan).max(initial=0))
    shares = [rank.bytes["hbm"] / max(rank.capacity["hbm"], 1) for rank in plan.ranks]
    return float(sum(share > crowded for share in shares)) if name == "crowded_ranks" else max(shares)


def stash_of_ranks(plan: Plan) -> Ints:
    """[W] bytes that each rank stashes: what its shards of stashed tables have in DDR."""
    size = np.zeros(len(plan.ranks), dtype=np.int64)
    for table in plan.tables:
        if table.tier in STASHED_TIERS:
            np.add.at(size, table.shards.rank, table.shards.bytes[:, MEMORY_DDR])
    return size


def _blocks(plan: Plan) -> list[int]:
    """Pieces of each table: column blocks, or the parts of its rows that are on different nodes or ranks."""
    node_of_rank = np.array([rank.node for rank in plan.ranks])
    return [
        len(sites_with_parts(table.sharding, table.shards.rank, node_of_rank))
        if SHARDING_ROWS[table.sharding].cuts_into_sites
        else len(set(table.shards.column_start.tolist()))
        for table in plan.tables
    ]
