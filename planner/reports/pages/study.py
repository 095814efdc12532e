"""The report of a study: findings, charts and all points."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from planner.reports.pages.charts import Chart, LeftOut
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.points import TITLES, Points
from planner.reports.pages.study_bars import gains, measured, memories, stages
from planner.reports.pages.study_curves import along_an_axis, pareto, scaling
from planner.reports.pages.study_heat_maps import heat_maps
from planner.studies.results import FIGURES, StudyResults

MOST_ROWS = 5000
"""The most rows of the table: a browser takes seconds to sort more."""
CHARTS: tuple[Callable[[Points], Chart | LeftOut | None], ...] = (
    heat_maps,
    scaling,
    along_an_axis,
    pareto,
    measured,
    stages,
    memories,
    gains,
)
"""From top to bottom of the page; None where the study has nothing of the sort."""


def study_page(results: StudyResults) -> Page:
    """What a study found, as a page."""
    points = Points(results)
    return Page(
        title=results.name,
        description=results.description,
        facts=_facts(points),
        findings=results.findings,
        charts=[chart for make in CHARTS if (chart := make(points)) is not None],
        tables=[_table(points)],
    )


def _facts(points: Points) -> list[str]:
    statuses = points.frame["status"].value_counts()
    order = [name for name in ("optimal", "feasible", "infeasible", "timeout", "error") if name in statuses.index]
    count = len(points.frame)
    words = ", ".join(f"{statuses[name]:,} {name}" for name in order)
    facts = [f"{count:,} point{'s' * (count != 1)}: {words}."]
    if points.axes:
        facts.append(f"Varied: {', '.join(axis.label for axis in points.axes)}.")
    ranked = points.ranked(points.meets)
    objective = points.results.objective
    if ranked and points.has(objective) and count > 1:
        best = ranked[0]
        facts.append(f"Best, by {points.objective_words}: {points.full_name(best)}: {points.texts(objective)[best]}.")
    return facts


def _table(points: Points) -> Table:
    frame, columns = points.frame, [PageColumn("point", "point")]
    note = "A click on a heading sorts."
    if len(frame) > MOST_ROWS:
        ranked = points.ranked()
        others = np.setdiff1d(np.arange(len(frame)), ranked)
        kept = sorted([*ranked, *others.tolist()][:MOST_ROWS])
        note += f" {MOST_ROWS:,} of {len(frame):,} points, the best by {points.objective_words}."
        frame = frame.iloc[kept]
    columns += [PageColumn(axis.column, axis.label, axis.unit) for axis in points.axes]
    columns.append(PageColumn("status", "status"))
    if not points.meets[points.planned].all():
        columns.append(PageColumn("meets", "keeps constraints"))
    shown = [name for name in FIGURES if points.has(name)]
    said = [points.values_of[axis.column] for axis in points.axes]
    columns += [
        PageColumn(name, TITLES[name], FIGURES[name]) for name in shown if points.frame[name].tolist() not in said
    ]
    unknown = [TITLES.get(name, name) for name in FIGURES if name not in shown and name in frame]
    told = {"exchange": "exchange", "limit": "limited by", "on_pareto": "on the Pareto front", "reason": "reason"}
    for name, title in told.items():
        if name in frame and _says_something(frame[name]):
            columns.append(PageColumn(name, title))
    if unknown:
        note += f" Unknown for every point: {', '.join(unknown)}."
    title = "All points" if frame is points.frame else "Points"
    return Table("points", title, frame, columns, f"{note} More columns are in the file of the results.")


def _says_something(values: "pd.Series[Any]") -> bool:
    return any(not pd.isna(value) and bool(value) for value in values)
