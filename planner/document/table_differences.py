"""Tables that two plans hold otherwise, and the bytes that move between them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.shards import DATA_PARALLEL, SHARDINGS
from planner.document.migration import migration_from
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_model
from planner.document.traffic import moved_bytes_of_tables
from topologies.errors import InputError


def table_differences(
    before: Plan, after: Plan, source: str, lost_nodes: Sequence[int] = ()
) -> list[dict[str, str | int | None]]:
    """Tables that two plans hold otherwise: how both do, and the bytes that move; None where a plan lacks the table.

    Raises InputError where a plan places nothing, or the two have no table in common.
    """
    model = planned_model(after)
    if not after.tables:
        raise InputError.at("the second plan", f"is {after.status!r}: it places no tables", path="status")
    groups = 1 if model.replicas is None else model.replicas.factor
    moved = moved_bytes_of_tables(migration_from(before, model, lost_nodes, source), after.tables) * groups
    old = {table.name: table for table in before.tables}
    new = {table.name: table for table in after.tables}
    moved_of = dict(zip(new, moved.tolist(), strict=True))
    return [
        {
            "table": name,
            "before": _form(old.get(name)),
            "after": _form(new.get(name)),
            "moved_bytes": round(moved_of[name]) if name in new else None,
        }
        for name in old | new
        if _placement(old.get(name)) != _placement(new.get(name))
    ]


def restarted(before: Plan, after: Plan) -> list[str]:
    """Tables that one plan replicates and the other cuts or places: a trainer's checkpoint holds them otherwise."""
    replicated = {table.name: table.sharding == SHARDINGS[DATA_PARALLEL] for table in before.tables}
    return [
        table.name
        for table in after.tables
        if replicated.get(table.name, table.sharding == SHARDINGS[DATA_PARALLEL])
        != (table.sharding == SHARDINGS[DATA_PARALLEL])
    ]


def _placement(table: TablePlan | None) -> TablePlan | None:
    """How a table is held, but for which of its rows an id has, and for the bytes that a cost model counts."""
    if table is None:
        return None
    shards = replace(table.shards, bytes=np.zeros_like(table.shards.bytes))
    return table.model_copy(update={"remap": None, "shards": shards})


def _form(table: TablePlan | None) -> str:
    """How a table is held, in one cell."""
    if table is None:
        return "none"
    state = "" if table.optimizer_state == "with_table" else f" (state in {table.optimizer_state})"
    shards = "shard" if len(table.shards) == 1 else "shards"
    return f"{table.sharding} in {table.tier}{state}, {len(table.shards):,} {shards}"
