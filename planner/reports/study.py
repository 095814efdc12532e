"""What `planner study` prints: the findings, then the best points; 80 columns."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.reports.words import grid
from planner.scales import value_text
from planner.studies.results import Axis, Row, StudyResults
from planner.studies.study import LARGER_IS_BETTER
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 20
WIDEST = 18
"""Characters of a cell that says which point it is."""
GUTTER = 2
"""Characters between columns."""
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
    """Which point, and its figures; where there is no room for all, without some of them, or with numbers of points."""
    axes = [Axis("scenario", "scenario", "", False)] if "scenario" in results.frame else []
    axes += results.varied
    figures = [_FIGURES[name] for name in _FIGURES if name != "price" or _has_prices(rows)]
    names = [[_short(value_text(row[axis.column], axis.unit)) for axis in axes] for row in rows]
    heads = [(axis.label.replace(" ", "\n"), "right" if axis.is_number else "left") for axis in axes]
    columns = zip(*names, strict=True)
    widths = [max(map(len, (*head.split("\n"), *cells))) for (head, _), cells in zip(heads, columns, strict=True)]
    for spare in _SPARE:
        if (
            sum(widths) + sum(figure.width for figure in figures) + GUTTER * (len(widths) + len(figures))
            > console.width
        ):
            figures = [figure for figure in figures if figure is not _FIGURES[spare]]
    if sum(widths) + sum(figure.width for figure in figures) + GUTTER * (len(widths) + len(figures)) > console.width:
        heads, names = [("point", "right")], [[str(row["point"])] for row in rows]
        figures = [_FIGURES[name] for name in _FIGURES if name != "price" or _has_prices(rows)]
    table = grid(*heads, *((figure.head, figure.side) for figure in figures))
    for cells, row in zip(names, rows, strict=True):
        table.add_row(*cells, *(figure.cell(row) for figure in figures))
    console.print(table)


@dataclass(frozen=True)
class _Figure:
    """A column of figures; `width` as it usually is."""

    head: str
    side: str
    width: int
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
    "ranks": _Figure("ranks", "right", 6, lambda row: "" if row["ranks"] is None else f"{row['ranks']:,.0f}"),
    "speed": _Figure("samples/s", "right", 11, _speed),
    "step": _Figure("step", "right", 9, lambda row: "" if row["step_s"] is None else format_seconds(row["step_s"])),
    "gap": _Figure("gap", "right", 5, lambda row: "" if row["gap"] is None else f"{row['gap']:.1%}"),
    "price": _Figure("USD per\n1e9", "right", 7, _price),
    "limit": _Figure("limit", "left", 9, _limit),
}
_SPARE = ("ranks", "step", "gap")
"""What is left out first where there is no room."""


def _has_prices(rows: list[Row]) -> bool:
    return any(row["usd_per_billion_samples"] is not None for row in rows)


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


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
