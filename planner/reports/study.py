"""What `planner study` prints: the findings, then the best points; 80 columns."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.reports.tables import TextGrid
from planner.studies.results import Axis, Row, StudyResults
from planner.studies.scales import value_text
from planner.studies.study import LARGER_IS_BETTER
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 20
NARROW = 18
"""Characters that words may be folded to, so that more columns stand side by side."""
MOST_NAMED = 5
"""Points that are named for one reason."""


def render(results: StudyResults, console: "Console") -> None:
    """Print the findings and the points, the best first; those without a plan last."""
    console.print(f"{results.name}: {results.description}" if results.description else results.name)
    console.print()
    for sentence in results.findings:
        console.print(textwrap.fill(sentence, console.width, subsequent_indent="  ", break_on_hyphens=False))
    console.print()
    rows = _ordered(results)
    _table(results, rows[:MOST_ROWS], console)
    if len(rows) > MOST_ROWS:
        console.print(f"… and {len(rows) - MOST_ROWS:,} more: --output results.csv, or --format csv")
    _reasons(rows, console)


def _ordered(results: StudyResults) -> list[Row]:
    """The order of the table: few points as the study lists them, many by what is best."""
    rows, objective = results.rows, results.objective
    if len(rows) <= MOST_ROWS:
        return rows
    sign = -1 if objective in LARGER_IS_BETTER else 1

    def rank(row: Row) -> tuple[bool, float, int]:
        value = row[objective]
        return not row["meets"], math.inf if value is None else sign * value, row["point"]

    return sorted(rows, key=rank)


def _table(results: StudyResults, rows: list[Row], console: "Console") -> None:
    """Which point, and its figures; where there is no room for all, without some of them, or as tables in a row."""
    axes = [Axis("scenario", "scenario", "", False)] if "scenario" in results.frame else []
    axes += results.varied
    columns = [_axis_column(axis, rows) for axis in axes]
    left_out = {"price"} if not _has_prices(rows) else set[str]()
    left_out |= {"exchange", "checkpointing", "loss"} - set(results.frame.columns)
    figures = [name for name in _FIGURES if name not in left_out]
    for spare in (None, *_SPARE):
        shown = [name for name in figures if name not in _SPARE[: _SPARE.index(spare) + 1]] if spare else figures
        table = _joined([*columns, *(_figure_column(_FIGURES[name], rows) for name in shown)])
        if table.width(NARROW) <= console.width:
            console.print(table)
            return
    point = _Column("point", "right", [str(row["point"]) for row in rows])
    _print_in_turn(point, [*columns, *(_figure_column(_FIGURES[name], rows) for name in figures)], console)


@dataclass(frozen=True)
class _Column:
    """A column as it is printed."""

    head: str
    side: str
    cells: list[str]


def _axis_column(axis: Axis, rows: list[Row]) -> _Column:
    cells = [value_text(row[axis.column], axis.unit) for row in rows]
    return _Column(axis.label.replace(" ", "\n"), "right" if axis.is_number else "left", cells)


def _figure_column(figure: "_Figure", rows: list[Row]) -> _Column:
    return _Column(figure.head, figure.side, [figure.cell(row) for row in rows])


def _joined(columns: list[_Column]) -> TextGrid:
    table = TextGrid(*((column.head, column.side) for column in columns))
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _print_in_turn(point: _Column, columns: list[_Column], console: "Console") -> None:
    """As many columns as there is room for, then the others below, each time behind the number of the point."""
    shown = [point]
    for number, column in enumerate([*columns, None]):
        if column is None or (number and len(shown) > 1 and _joined([*shown, column]).width(NARROW) > console.width):
            console.print(_joined(shown))
            shown = [point]
            if column is not None:
                console.print()
        if column is not None:
            shown.append(column)


@dataclass(frozen=True)
class _Figure:
    """A column of figures."""

    head: str
    side: str
    cell: Callable[[Row], str]


def _speed(row: Row) -> str:
    if row["samples_per_s"] is None:
        return {"infeasible": "does not fit", "error": "failed", "timeout": "no plan"}[row["status"]]
    return f"{row['samples_per_s']:,.0f}"


def _limit(row: Row) -> str:
    if row["samples_per_s"] is None:
        return ""
    return row["limit"] if row["meets"] else f"{row['limit']} *"


def _price(row: Row) -> str:
    if row["samples_per_s"] is None:
        return ""
    cost = row["usd_per_billion_samples"]
    return "unknown" if cost is None else f"{cost:,.2f}"


_FIGURES = {
    "ranks": _Figure("ranks", "right", lambda row: "" if row["ranks"] is None else f"{row['ranks']:,.0f}"),
    "speed": _Figure("samples/s", "right", _speed),
    "step": _Figure("step", "right", lambda row: "" if row["step_s"] is None else format_seconds(row["step_s"])),
    "loss": _Figure("loss", "right", lambda row: "" if row["loss"] is None else f"{row['loss']:.4g}"),
    "gap": _Figure("gap", "right", lambda row: "" if row["gap"] is None else f"{row['gap']:.1%}"),
    "price": _Figure("USD per\n1e9", "right", _price),
    "exchange": _Figure("exchange\ntaken", "left", lambda row: row["exchange"] or ""),
    "checkpointing": _Figure("checkpointing\ntaken", "left", lambda row: row["checkpointing"] or ""),
    "limit": _Figure("limit", "left", _limit),
}
_SPARE = ("ranks", "step", "gap")
"""What is left out first where there is no room."""


def _has_prices(rows: list[Row]) -> bool:
    return any(row["usd_per_billion_samples"] is not None for row in rows)


def _reasons(rows: list[Row], console: "Console") -> None:
    """Why points do not count, each reason once."""
    if any(row["samples_per_s"] is not None and not row["meets"] for row in rows):
        console.print("* does not keep the constraints")
    numbers: dict[str, list[int]] = {}
    for row in rows:
        if row["status"] == "error":
            numbers.setdefault(row["reason"], []).append(row["point"])
    for reason, points in numbers.items():
        more = f" and {len(points) - MOST_NAMED:,} more" if len(points) > MOST_NAMED else ""
        text = f"point {', '.join(map(str, points[:MOST_NAMED]))}{more}: {reason}"
        console.print(textwrap.fill(text, console.width, subsequent_indent="  ", break_on_hyphens=False))
