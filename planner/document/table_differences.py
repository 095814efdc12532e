"""Tables that two plans hold otherwise, and the bytes that move between them."""

from collections.abc import Mapping, Sequence

import numpy as np

from cost_models.replicas import groups_in_words
from cost_models.shards import DATA_PARALLEL, SHARDINGS
from planner.document.all_ranks import copies_of_tables, on_all_ranks
from planner.document.migration import migration_from
from planner.document.plan import Plan, TablePlan
from planner.document.planned import planned_model, planned_replicas
from planner.document.traffic import moved_bytes_of_tables
from topologies.errors import InputError
from topologies.sentences import counted

COLUMNS = ("table", "before", "after", "moved_bytes")
"""The keys of each of them."""

TableDifference = dict[str, str | int | None]
"""The table, how it was held and is, and the bytes that move."""


def table_differences(before: Plan, after: Plan, source: str, lost_nodes: Sequence[int] = ()) -> list[TableDifference]:
    """Tables that two plans hold otherwise: how both do, and the bytes that move into all ranks; None where a plan
    lacks the table. Plans for different groups of ranks are compared on the ranks of the whole cluster.

    Raises InputError where a plan places nothing, or the two have no table in common.
    """
    if not after.tables:
        raise InputError.at("the second plan", f"is {after.status!r}: it places no tables", path="status")
    copies_before, copies_after = copies_of_tables(before), copies_of_tables(after)
    if groups_of(before) == groups_of(after):
        copies_before = copies_after = {}
    before, after = _on_the_same_ranks(before, after)
    model = planned_model(after)
    groups = 1 if model.replicas is None else model.replicas.factor
    moved = moved_bytes_of_tables(migration_from(before, model, lost_nodes, source), after.tables) * groups
    old = {table.name: table for table in before.tables}
    new = {table.name: table for table in after.tables}
    moved_of = dict(zip(new, moved.tolist(), strict=True))
    return [
        {
            "table": name,
            "before": _form(old.get(name), copies_before.get(name, 1)),
            "after": _form(new.get(name), copies_after.get(name, 1)),
            "moved_bytes": round(moved_of[name]) if name in new else None,
        }
        for name in _held_otherwise(old, new)
    ]


def tables_held_otherwise(before: Plan, after: Plan) -> list[str]:
    """The names of the tables that two plans hold otherwise, on the ranks of the whole cluster where their groups of
    ranks differ."""
    old, new = ({table.name: table for table in plan.tables} for plan in _on_the_same_ranks(before, after))
    return _held_otherwise(old, new)


def _on_the_same_ranks(before: Plan, after: Plan) -> tuple[Plan, Plan]:
    return (before, after) if groups_of(before) == groups_of(after) else (on_all_ranks(before), on_all_ranks(after))


def _held_otherwise(old: Mapping[str, TablePlan], new: Mapping[str, TablePlan]) -> list[str]:
    return [name for name in {**old, **new} if _placement(old.get(name)) != _placement(new.get(name))]


def groups_of(plan: Plan) -> str:
    """The groups of ranks of a plan in words: `one world`."""
    return groups_in_words(planned_replicas(plan))


def dense_of(plan: Plan) -> str:
    """How ranks hold the dense part, in words: `replicate`."""
    return "replicate" if plan.dense is None else plan.dense.words


def restarted(before: Plan, after: Plan) -> list[str]:
    """Tables that one plan replicates and the other cuts or places: a trainer's checkpoint holds them otherwise."""
    replicated = {table.name: table.sharding == SHARDINGS[DATA_PARALLEL] for table in before.tables}
    return [
        table.name
        for table in after.tables
        if replicated.get(table.name, table.sharding == SHARDINGS[DATA_PARALLEL])
        != (table.sharding == SHARDINGS[DATA_PARALLEL])
    ]


def _placement(table: TablePlan | None) -> tuple[object, ...]:
    """How a table is held, but for which of its rows an id has, and for the bytes that a cost model counts."""
    if table is None:
        return ()
    head = tuple(value for name, value in table if name not in ("remap", "shards"))
    shards = table.shards
    of_each = (shards.rank, shards.row_start, shards.rows, shards.column_start, shards.columns)
    places = np.stack(of_each, dtype=np.int64)
    return *head, places.tobytes(), None if shards.hot_rows is None else shards.hot_rows.tobytes()


def _form(table: TablePlan | None, copies: int) -> str:
    """How a table is held, in one cell; so many copies of it."""
    if table is None:
        return "none"
    state = "" if table.optimizer_state == "with_table" else f" (state in {table.optimizer_state})"
    shards = counted(len(table.shards) // copies, "shard") + (f" x {copies} copies" if copies > 1 else "")
    return f"{table.sharding} in {table.tier}{state}, {shards}"
