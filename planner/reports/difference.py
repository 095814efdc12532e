"""What two plans differ in, in words, tables and records."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from planner.document.plan_differences import PlanDifference, StageDifference
from planner.document.table_differences import TableDifference, dense_of, groups_of, restarted
from planner.reports.robustness import scenario_words
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

NAMED = 5
"""Tables in a sentence."""


def as_document(difference: PlanDifference, before: str, after: str) -> dict[str, object]:
    """The difference as plain data. Steps and stages in the unit of their plan: s, or that of a rating."""
    units = dict(zip(("before", "after"), difference.units, strict=True))
    return {
        "kind": "difference",
        "before": before,
        "after": after,
        "unit": units,
        "step": _stage_document(difference.step),
        "stages": [_stage_document(stage) for stage in difference.stages],
        "tiers": [{"before": each.before, "after": each.after, "tables": each.tables} for each in difference.tiers],
        "tables": list(difference.tables),
        "moved_bytes": difference.moved_bytes,
        "notes": notes(difference),
    }


def _stage_document(stage: StageDifference) -> dict[str, object]:
    return {"stage": stage.name, "before": stage.before, "after": stage.after, "change": stage.change}


def headline(difference: PlanDifference) -> str:
    """How many tables differ, and what moves."""
    count = len(difference.tables)
    if not count:
        return "the plans place all tables alike"
    return (
        f"{count:,} {'table differs' if count == 1 else 'tables differ'}; {format_bytes(difference.moved_bytes)} move"
    )


def notes(difference: PlanDifference) -> list[str]:
    """What else is different: groups of ranks, scenarios, the dense part, and what checkpoints do not survive."""
    before, after = difference.before, difference.after
    said = []
    if groups_of(before) != groups_of(after):
        said.append(f"groups of ranks: {groups_of(before)} before, {groups_of(after)} after")
    if words := scenario_words(before.robust, after.robust):
        said.append(words)
    if dense_of(before) != dense_of(after):
        said.append(f"the dense part was {dense_of(before)} and is {dense_of(after)}: trainers wrap it in another way")
    if names := restarted(before, after):
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
        said.append(
            f"warning: {shown}: between data_parallel and sharded; TorchRec's checkpoints store these differently and"
            " do not resume across the change: load such tables by hand, or keep their sharding (policy: shardings)"
        )
    return said


def render(difference: PlanDifference, console: "Console", most: int | None = None) -> None:
    """Print the stages, the changes of tiers, and the tables: all, or the `most` into which most bytes move."""
    console.print(_stage_table(difference))
    if difference.tiers:
        grid = TextGrid(("tier before", "left"), ("tier after", "left"), ("tables", "right"))
        for each in difference.tiers:
            grid.add_row(each.before, each.after, f"{len(each.tables):,}")
        console.print()
        console.print(grid)
    tables = difference.tables
    if most is not None:
        tables = tuple(sorted(tables, key=_moved_bytes, reverse=True)[:most])
    if tables:
        console.print()
        console.print(_table_grid(tables))
    if left := len(difference.tables) - len(tables):
        console.print(f"{left:,} more {'table moves' if left == 1 else 'tables move'} less; --format csv lists all.")


def _moved_bytes(table: TableDifference) -> int:
    return int(table["moved_bytes"] or 0)


def _table_grid(tables: Iterable[TableDifference]) -> TextGrid:
    grid = TextGrid(("table", "left"), ("before", "left"), ("after", "left"), ("moved", "right"))
    for table in tables:
        moved = "unknown" if table["moved_bytes"] is None else format_bytes(_moved_bytes(table))
        grid.add_row(str(table["table"]), str(table["before"]), str(table["after"]), moved)
    return grid


def _stage_table(difference: PlanDifference) -> TextGrid:
    grid = TextGrid(("stage", "left"), ("before", "right"), ("after", "right"), ("change", "right"), ("", "right"))
    writers = [_writer(unit) for unit in difference.units]
    comparable = len(set(difference.units)) == 1
    for stage in (*difference.stages, difference.step):
        cells = [
            "none" if value is None else write(value)
            for value, write in zip((stage.before, stage.after), writers, strict=True)
        ]
        change, share = _change(stage, writers[0]) if comparable else ("", "")
        grid.add_row(stage.name, *cells, change, share)
    return grid


def _writer(unit: str) -> Callable[[float], str]:
    return format_seconds if unit == "s" else "{:,.3f}".format


def _change(stage: StageDifference, write: Callable[[float], str]) -> tuple[str, str]:
    """By how much, and which share of what was."""
    sign = "-" if stage.change < 0 else "+"
    amount = f"{sign}{write(abs(stage.change))}" if stage.change else "0"
    return amount, f"{stage.change / stage.before:+.2%}" if stage.before and stage.change else ""
