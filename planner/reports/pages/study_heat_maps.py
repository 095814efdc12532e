"""Heat maps of two axes of a study."""

import math
from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from planner.reports.pages.charts import Chart, Json, LeftOut, View, escaped, heat_map, layout, named_axis
from planner.reports.pages.palette import EMPTY, LIMITS, colours
from planner.reports.pages.points import CHOSEN, TITLES, Points
from planner.studies.results import Axis
from planner.studies.scales import significant, value_text

MOST_SLICES, MOST_COLUMNS = 8, 16
MARKS = {"infeasible": "✕", "timeout": "…", "error": "!"}
"""What stands in a cell without a plan, by its status."""
MARK_WORDS = {"infeasible": "✕ infeasible", "timeout": "… none found in time", "error": "! failed"}
BROKEN = "†"


def heat_maps(points: Points) -> Chart | LeftOut | None:
    """Figures over the two axes that answer most; a view for each value of the others, or the best of them."""
    title = "Two axes"
    if len(points.axes) < 2:
        return None
    own = [axis for axis in points.axes if axis.column != "scenario"]
    if len(own) < 2:
        own = list(points.axes)
    spreads = _spreads(points, own)
    pair = _chosen_axes(points, own, spreads)
    if pair is None:
        first, second = (axis.label for axis in own[:2])
        return LeftOut(title, f"{first} and {second} vary together and make no grid")
    across, down = pair
    if len(points.levels(across)) > MOST_COLUMNS and len(points.levels(down)) < len(points.levels(across)):
        across, down = down, across
    others = [axis for axis in points.axes if axis not in (across, down)]
    slices = points.groups(others)
    if len(slices) > MOST_SLICES:
        slices = {(): list(range(len(points.frame)))}
    views = [
        _heat_view(points, across, down, column, inside, points.group_name(others, key) if key else "")
        for column in CHOSEN
        if points.has(column)
        for key, inside in slices.items()
    ]
    if "limit" in points.frame and points.has("limit"):
        views += [
            _limit_view(points, across, down, inside, points.group_name(others, key) if key else "")
            for key, inside in slices.items()
        ]
    if not views:
        return LeftOut(title, "no point has a plan")
    shown = [name for name in MARKS if (points.frame["status"] == name).any()]
    notes = [_spread_words(points, own, spreads)] if len(own) > 2 else []
    if others and len(slices) == 1:
        notes.append(f"Each cell is the best of all {', '.join(axis.label for axis in others)}.")
    if shown:
        notes.append(f"Grey, no plan: {', '.join(MARK_WORDS[name] for name in shown)}.")
    if (points.planned & ~points.meets).any():
        notes.append(f"{BROKEN} breaks a constraint.")
    title = f"{across.label} and {down.label}".capitalize()
    best = points.ranked()[:1]
    of_best = [number for number, inside in enumerate(slices.values()) if set(best) & set(inside)]
    return Chart("heat-map", title, tuple(views), " ".join(notes), _words(points, across, down), next(iter(of_best), 0))


def _words(points: Points, across: Axis, down: Axis) -> str:
    """What a heat map shows, for those who do not see it."""
    words = f"{across.label} from left to right, {down.label} upwards"
    ranked = points.ranked(points.meets)
    best = f"; {points.objective_words} at {points.full_name(ranked[0])}" if ranked else ""
    return f"{words}{best}."


def _spreads(points: Points, own: Sequence[Axis]) -> dict[str, float]:
    """By how many times the objective differs between the values of each axis: of its geometric means there."""
    frame = points.frame[points.planned]
    is_positive = points.has(points.results.objective) and frame[points.results.objective].min() > 0
    values = frame[points.results.objective if is_positive else "step_s"].astype(float).map(math.log)
    means = {axis.column: values.groupby(frame[axis.column], dropna=False).mean() for axis in own}
    return {column: float(np.exp(of.max() - of.min())) if len(of) else 1.0 for column, of in means.items()}


def _chosen_axes(points: Points, own: Sequence[Axis], spreads: dict[str, float]) -> tuple[Axis, Axis] | None:
    """The two axes that move the objective most and make a grid, numeric ones first, in the order of the study; None
    where all axes vary together."""
    ordered = sorted(own, key=lambda axis: (not points.is_numeric(axis), -spreads[axis.column]))
    for pair in combinations(ordered, 2):
        cells = len(points.levels(pair[0])) * len(points.levels(pair[1]))
        if 2 * len(points.groups(pair)) >= cells:
            across, down = sorted(pair, key=own.index)
            return across, down
    return None


def _spread_words(points: Points, own: Sequence[Axis], spreads: dict[str, float]) -> str:
    """How much each axis moves the objective, in words, the most first."""
    what = TITLES.get(points.results.objective, points.results.objective)
    ordered = sorted(own, key=lambda axis: -spreads[axis.column])
    parts = ", ".join(f"{axis.label} {significant(spreads[axis.column], 3)} times" for axis in ordered)
    return f"How far the mean {what} differs between the values of an axis: {parts}."


def _cells(points: Points, across: Axis, down: Axis, inside: Sequence[int]) -> list[list[int | None]]:
    """[rows][columns] the point that a cell shows: the best of those that stand there."""
    place = {point: number for number, point in enumerate(points.ranked())}
    chosen: dict[tuple[Hashable, Hashable], int] = {}
    for point in inside:
        key = points.values_of[down.column][point], points.values_of[across.column][point]
        kept = chosen.get(key)
        if kept is None or place.get(point, len(place)) < place.get(kept, len(place)):
            chosen[key] = point
    return [[chosen.get((row, column)) for column in points.levels(across)] for row in points.levels(down)]


def _heat_view(points: Points, across: Axis, down: Axis, column: str, inside: Sequence[int], group: str) -> View:
    cells = _cells(points, across, down, inside)
    scale, figures, hovers = points.scale(column), points.numbers(column), points.hovers(*CHOSEN)

    def text(point: int | None) -> str:
        if point is None or figures[point] is None:
            return ""
        mark = "" if points.meets[point] else BROKEN
        return significant(figures[point] or 0.0, 3) + mark

    columns, rows = _level_names(points, across), _level_names(points, down)
    known = [[None if point is None else figures[point] for point in row] for row in cells]
    words = [[text(point) for point in row] for row in cells]
    under = [["" if point is None else hovers[point] for point in row] for row in cells]
    data = [heat_map(columns, rows, known, words, under, scale.unit), *_empty(points, cells, columns, rows, hovers)]
    title = scale.titled(TITLES[column])
    return View(group or title, data, _grid(across, down, columns, rows), title if group else "")


def _limit_view(points: Points, across: Axis, down: Axis, inside: Sequence[int], group: str) -> View:
    """What takes most of the step, a colour each."""
    cells = _cells(points, across, down, inside)
    limits, hovers = points.frame["limit"].tolist(), points.hovers(*CHOSEN)
    kinds = [name for name in LIMITS if name in limits]
    kinds += [str(name) for name in dict.fromkeys(limits) if not pd.isna(name) and name not in kinds]
    parts = enumerate(colours(kinds, LIMITS))
    steps = [[edge, colour] for n, colour in parts for edge in (n / len(kinds), (n + 1) / len(kinds))]

    def number(point: int | None) -> float | None:
        return None if point is None or pd.isna(limits[point]) else float(kinds.index(limits[point]))

    columns, rows = _level_names(points, across), _level_names(points, down)
    known = [[number(point) for point in row] for row in cells]
    words = [["" if point is None or pd.isna(limits[point]) else str(limits[point]) for point in row] for row in cells]
    under = [["" if point is None else hovers[point] for point in row] for row in cells]
    bar = {
        "tickmode": "array",
        "tickvals": list(range(len(kinds))),
        "ticktext": [escaped(kind) for kind in kinds],
        "thickness": 12,
        "outlinewidth": 0,
    }
    trace = heat_map(
        columns, rows, known, words, under, colorscale=steps, zmin=-0.5, zmax=len(kinds) - 0.5, colorbar=bar
    )
    data = [trace, *_empty(points, cells, columns, rows, hovers)]
    title = "what takes most of the step"
    return View(group or title, data, _grid(across, down, columns, rows), title if group else "")


def _level_names(points: Points, axis: Axis) -> list[str]:
    return [value_text(value, axis.unit) for value in points.levels(axis)]


def _empty(
    points: Points, cells: list[list[int | None]], columns: list[str], rows: list[str], hovers: list[str]
) -> list[Json]:
    """Cells whose point has no plan, grey with a mark."""
    bare = [[point is not None and not points.planned[point] for point in row] for row in cells]
    if not any(map(any, bare)):
        return []
    statuses = points.frame["status"].tolist()
    return [
        heat_map(
            columns,
            rows,
            [[0.0 if empty else None for empty in row] for row in bare],
            [
                [MARKS.get(statuses[p], "✕") if e and p is not None else "" for e, p in zip(*pair, strict=True)]
                for pair in zip(bare, cells, strict=True)
            ],
            [
                [hovers[p] if e and p is not None else "" for e, p in zip(*pair, strict=True)]
                for pair in zip(bare, cells, strict=True)
            ],
            colorscale=[[0, EMPTY], [1, EMPTY]],
            showscale=False,
        )
    ]


def _grid(across: Axis, down: Axis, columns: list[str], rows: list[str]) -> Json:
    return layout(
        int(120 + 36 * np.clip(len(rows), 4, 24)),
        xaxis=named_axis(columns, escaped(across.label), range=[-0.5, len(columns) - 0.5]),
        yaxis=named_axis(rows, escaped(down.label), range=[-0.5, len(rows) - 0.5]),
    )
