"""What `planner run` prints: the findings, then the stages; 80 columns."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.reports.tables import TextGrid
from planner.runs.results import RunGrid, RunPoint, RunResult, StageCosts
from planner.runs.run import FIGURES, Figure
from planner.runs.words import amount, duration, figure_text, figures_text
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 40
Record = dict[str, str | int | float | None]


def render(result: RunResult, console: "Console") -> None:
    """Print what a run takes, stage by stage."""
    console.print(f"{result.name}: {result.description}" if result.description else result.name)
    console.print()
    _paragraphs(result.findings, console)
    if result.stages:
        console.print()
        console.print(
            _table(result.stages[:MOST_ROWS], has_prices=result.takes is not None and result.takes.usd is not None)
        )
        if len(result.stages) > MOST_ROWS:
            console.print(f"… and {len(result.stages) - MOST_ROWS:,} more: --output run.json, or --format csv")
    if result.notes:
        console.print()
        _paragraphs([f"Note: {note}." for note in result.notes], console)


def render_grid(grid: RunGrid, console: "Console") -> None:
    """Print what each of several runs takes."""
    console.print(f"{grid.name}: {grid.description}" if grid.description else grid.name)
    console.print()
    if grid.best is not None and grid.best.result is not None and grid.best.result.takes is not None:
        _paragraphs([f"Best: {_at(grid.best)}: {figures_text(grid.best.result.takes)}."], console)
        console.print()
    names = list(dict.fromkeys(name for point in grid.points for name in point.at))
    known = [name for name in FIGURES if any(_taken(point)[name] is not None for point in grid.points)]
    columns = [(name.split(".", 1)[-1].replace(".", "\n"), "left") for name in names]
    table = TextGrid(*columns, *((name.replace("_", "\n"), "right") for name in known))
    for point in grid.points:
        cells = [figure_text(name, _taken(point)[name]) if _has_figures(point) else "" for name in known]
        cells = cells if _has_figures(point) else ["no way", *cells[1:]]
        table.add_row(*(str(point.at.get(name, "")) for name in names), *cells)
    console.print(table)
    reasons = {_reason(point): None for point in grid.points if not _has_figures(point)}
    _paragraphs([f"No way: {reason}." for reason in reasons], console)


def records(result: RunResult) -> list[Record]:
    """A record for each stage."""
    return [
        {
            **stage.model_dump(exclude={"passes_s", "migration", "takes"}),
            **{f"{name}_s": stage.passes_s.get(name, 0.0) for name in ("line_search", "lbfgs", "hessian_products")},
            "moved_bytes": 0 if stage.migration is None else stage.migration.moved_bytes,
            "migration_s": 0.0 if stage.migration is None else stage.migration.seconds,
            **stage.takes.model_dump(),
        }
        for stage in result.stages
    ]


def grid_records(grid: RunGrid) -> list[Record]:
    """A record for each run."""
    return [
        {
            **point.at,
            "status": "error" if point.result is None else point.result.status,
            **{str(name): value for name, value in _taken(point).items()},
            "steps": None if point.result is None else point.result.steps,
            "migrations_s": None if point.result is None else point.result.migrations_s,
            "lower_bound_s": None if point.result is None else point.result.lower_bound_s,
            "reason": _reason(point),
        }
        for point in grid.points
    ]


def _paragraphs(sentences: Sequence[str], console: "Console") -> None:
    for sentence in sentences:
        console.print(textwrap.fill(sentence, console.width, subsequent_indent="  ", break_on_hyphens=False))


def _table(stages: Sequence[StageCosts], *, has_prices: bool) -> TextGrid:
    columns = [("stage", "left"), ("batch", "right"), ("nodes", "right"), ("steps", "right"), ("step", "right")]
    columns += [("with\npasses", "right")] if any(stage.passes_s for stage in stages) else []
    columns += [("moved\nbefore", "right")] if any(stage.migration for stage in stages) else []
    columns += [("takes", "right")] + ([("USD", "right")] if has_prices else [])
    table = TextGrid(*columns)
    for stage in stages:
        cells = [stage.name, f"{stage.global_batch:,}", f"{stage.nodes:,}", f"{stage.steps:,}"]
        cells.append(format_seconds(stage.step_s))
        if any(each.passes_s for each in stages):
            cells.append(format_seconds(stage.step_s + sum(stage.passes_s.values())))
        if any(each.migration for each in stages):
            cells.append("" if stage.migration is None else format_bytes(stage.migration.moved_bytes))
        cells.append(duration(stage.takes.seconds))
        if has_prices:
            cells.append("unknown" if stage.takes.usd is None else amount(stage.takes.usd, digits=1))
        table.add_row(*cells)
    return table


def _at(point: RunPoint) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.at.items())


def _has_figures(point: RunPoint) -> bool:
    return point.result is not None and point.result.takes is not None


def _taken(point: RunPoint) -> dict[Figure, float | None]:
    takes = None if point.result is None else point.result.takes
    return {name: None if takes is None else takes.named(name) for name in FIGURES}


def _reason(point: RunPoint) -> str:
    return point.reason if point.result is None else point.result.reason
