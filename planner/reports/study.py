"""What `planner study` prints: the findings, then the best points; 80 columns."""

import textwrap
from typing import TYPE_CHECKING

import pandas as pd

from planner.reports.words import grid
from planner.studies.findings import shown
from planner.studies.results import Axis, StudyResults
from planner.studies.study import LARGER_IS_BETTER
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 20
WIDEST = 18
"""Characters of a cell that says which point it is."""


def render(results: StudyResults, console: "Console") -> None:
    """Print the findings and the points, the best first; those without a plan last."""
    console.print(f"{results.name}: {results.description}" if results.description else results.name)
    console.print()
    for sentence in results.findings:
        console.print(textwrap.fill(sentence, console.width, subsequent_indent="  ", break_on_hyphens=False))
    console.print()
    rows = _ordered(results)
    _table(results, rows.head(MOST_ROWS), console)
    if len(rows) > MOST_ROWS:
        console.print(f"… and {len(rows) - MOST_ROWS:,} more: --output results.csv, or --format csv")
    _reasons(rows, console)


def _ordered(results: StudyResults) -> pd.DataFrame:
    """The order of the table: few points as the study lists them, many by what is best."""
    frame = results.frame
    if len(frame) <= MOST_ROWS:
        return frame
    sign = -1 if results.objective in LARGER_IS_BETTER else 1
    keys = frame.assign(_no=~frame["meets"].astype(bool), _value=sign * frame[results.objective])
    return keys.sort_values(["_no", "_value", "point"]).drop(columns=["_no", "_value"])


def _table(results: StudyResults, rows: pd.DataFrame, console: "Console") -> None:
    names = [("scenario", Axis("scenario", "scenario", "", False))] if "scenario" in rows else []
    names += [(axis.column, axis) for axis in results.axes]
    with_price = bool(rows["usd_per_billion_samples"].notna().any())
    columns = [(axis.label, "right" if axis.is_number else "left") for _, axis in names]
    columns += [("ranks", "right"), ("samples/s", "right"), ("step", "right"), ("gap", "right"), ("limit", "left")]
    if with_price:
        columns.insert(-1, ("USD/1e9", "right"))
    if _width(rows, names, with_price) > console.width:
        columns = [("point", "right"), *columns[len(names) :]]
    table = grid(*columns)
    for _, row in rows.iterrows():
        cells = [_short(shown(row[column], axis.unit)) for column, axis in names]
        if len(columns) - len(names) != 5 + with_price:
            cells = [str(row["point"])]
        table.add_row(*cells, *_figures(row, with_price=with_price))
    console.print(table)


def _width(rows: pd.DataFrame, names: list[tuple[str, Axis]], with_price: bool) -> int:
    """Columns that the whole table would take, about."""
    own = [max([len(axis.label), *(len(_short(shown(v, axis.unit))) for v in rows[column])]) for column, axis in names]
    return sum(own) + 2 * len(own) + 46 + 11 * with_price


def _figures(row: pd.Series, *, with_price: bool) -> list[str]:
    ranks = "" if pd.isna(row["ranks"]) else f"{row['ranks']:,.0f}"
    if pd.isna(row["samples_per_s"]):
        words = {"infeasible": "does not fit", "error": "failed", "timeout": "no plan"}[row["status"]]
        return [ranks, words, "", "", *([""] if with_price else []), ""]
    price = "unknown" if pd.isna(row["usd_per_billion_samples"]) else f"{row['usd_per_billion_samples']:,.2f}"
    limit = row["limit"] if row["meets"] else f"{row['limit']} *"
    cells = [ranks, f"{row['samples_per_s']:,.0f}", format_seconds(row["step_s"]), f"{row['gap']:.1%}"]
    return [*cells, *([price] if with_price else []), limit]


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _reasons(rows: pd.DataFrame, console: "Console") -> None:
    """Why points do not count, each reason once."""
    if (rows["samples_per_s"].notna() & ~rows["meets"].astype(bool)).any():
        console.print("* does not keep the constraints")
    failed = rows[rows["status"] == "error"]
    for reason, part in failed.groupby("reason", sort=False):
        numbers = ", ".join(map(str, part["point"].head(5)))
        more = f" and {len(part) - 5} more" if len(part) > 5 else ""
        text = f"point {numbers}{more}: {reason}"
        console.print(textwrap.fill(text, console.width, subsequent_indent="  ", break_on_hyphens=False))
