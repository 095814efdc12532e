"""Curves of a study: throughput against ranks, figures along an axis, the Pareto front."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from planner.reports.pages.charts import (
    Chart,
    Json,
    LeftOut,
    View,
    axis,
    escaped,
    layout,
    legend_px,
    line,
    shortened,
    spread_ticks,
)
from planner.reports.pages.palette import FAINT, OTHERS, SERIES
from planner.reports.pages.points import CHOSEN, LARGER_IS_BETTER, TITLES, Points
from planner.studies.results import Axis
from planner.studies.scales import scale_of, significant, trimmed
from topologies.sentences import counted

MOST_CURVES, MOST_MARKS = 8, 5000
WIDE = 50.0
"""An axis whose largest value is so many times its smallest is logarithmic."""
TALL = 4.0
"""The same of steps against ranks, whose differences between curves matter more than zero."""
LETTER = 0.0085
"""Width of a letter as a share of a chart's, with some room around each name."""


def scaling(points: Points) -> Chart | LeftOut | None:
    """Throughput against ranks, with what ideal scaling would give, and the efficiency."""
    title = "Scaling"
    if not points.has("ranks") or points.frame.loc[points.planned, "ranks"].nunique() < 2:
        return None
    others = _beside_the_size(points)
    curves = {
        key: sorted((p for p in inside if points.planned[p]), key=lambda p: (points.frame["ranks"].iloc[p], p))
        for key, inside in points.groups(others).items()
    }
    curves = {key: inside for key, inside in curves.items() if points.frame["ranks"].iloc[inside].nunique() > 1}
    if not curves:
        return LeftOut(title, "no two points differ in their ranks alone")
    kept, note = _best_curves(points, curves)
    speeds = points.numbers("samples_per_s")
    unit = points.scale("samples_per_s").unit
    ranks = points.frame["ranks"].astype(float).tolist()
    hovers, data = points.hovers("nodes", "ranks", "samples_per_s", "step_s", "usd_per_billion_samples"), []
    for key, colour in zip(kept, cycle(SERIES), strict=False):
        inside = curves[key]
        name = points.group_name(others, key) or "plans"
        x = [ranks[point] for point in inside]
        y = [float(speeds[point] or 0.0) for point in inside]
        best = max(value / size for value, size in zip(y, x, strict=True))
        share = [100 * value / size / best for value, size in zip(y, x, strict=True)]
        under = [hovers[point] for point in inside]
        hover_texts = [f"{text}<br>efficiency: {part:.0f}%" for text, part in zip(under, share, strict=True)]
        data.append(line(name, x, y, colour, hover_texts, legendgroup=name))
        ideal = line(name, [x[0], x[-1]], [best * x[0], best * x[-1]], colour, legendgroup=name, showlegend=False)
        data.append(ideal | {"mode": "lines", "line": {"color": colour, "width": 1, "dash": "dot"}})
        data.append(line(name, x, share, colour, hover_texts, legendgroup=name, showlegend=False, yaxis="y2"))
    sizes = sorted({ranks[point] for key in kept for point in curves[key]})
    spread = _spread(sizes)
    drawn = layout(
        520 + legend_px([points.group_name(others, key) for key in kept]),
        showlegend=len(kept) > 1,
        xaxis=_sizes_axis(sizes, anchor="y2"),
        yaxis=axis(unit, domain=[0.4, 1], **(_round_ticks(data) if spread else {"rangemode": "tozero"})),
        yaxis2=axis("efficiency", domain=[0, 0.3], rangemode="tozero", ticksuffix="%", nticks=5),
    )
    words = "Dotted: as fast for each rank as the most efficient cluster of the curve, which is 100%."
    views = [View(title, data, drawn)]
    if points.frame.loc[points.planned, "samples_per_step"].nunique() > 1:
        scaled = _steps(points, {points.group_name(others, key) or "plans": curves[key] for key in kept})
        views = [View(points.scale("samples_per_s").titled(TITLES["samples_per_s"]), data, drawn), scaled]
    most = [
        f"{points.group_name(others, key) or 'plans'} {max(y or 0 for y in trace['y']):.4g}"
        for key, trace in zip(kept, data[::3], strict=True)
    ]
    said = f"Most throughput of each curve, in {unit}: {'; '.join(most)}."
    return Chart("scaling", title, tuple(views), " ".join(filter(None, (words, note))), said)


def _steps(points: Points, curves: Mapping[str, Sequence[int]]) -> View:
    """The step against ranks, where the batch grows with them; points without a plan stand at the foot."""
    ranks, steps = points.frame["ranks"].astype(float).tolist(), points.numbers("step_s")
    hovers = points.hovers("nodes", "ranks", "step_s", "samples_per_s", "gap")
    data = [
        line(name, [ranks[p] for p in inside], [steps[p] for p in inside], colour, [hovers[p] for p in inside])
        for (name, inside), colour in zip(curves.items(), cycle(SERIES), strict=False)
    ]
    heights = [float(y) for trace in data for y in trace["y"]]
    is_tall = max(heights) >= TALL * min(heights)
    missing = [p for p in range(len(ranks)) if not points.planned[p] and not np.isnan(ranks[p])]
    if missing:
        foot = min(heights) * 0.9
        marks = line("no plan", [ranks[p] for p in missing], [foot] * len(missing), FAINT, [hovers[p] for p in missing])
        data.append(marks | {"mode": "markers", "marker": {"symbol": "x", "color": FAINT, "size": 8}})
    title = points.scale("step_s").titled(TITLES["step_s"])
    drawn = layout(
        560 + legend_px([trace["name"] for trace in data]),
        showlegend=len(data) > 1,
        xaxis=_sizes_axis(sorted({rank for rank in ranks if not np.isnan(rank)})),
        yaxis=axis(escaped(title), **(_round_ticks(data) if is_tall else {})),
    )
    return View(title, data, drawn)


def _spread(sizes: Sequence[float]) -> Json:
    """What makes an axis of ascending numbers of ranks logarithmic, where they are far apart."""
    return {"type": "log", "dtick": 1} if sizes[-1] / sizes[0] >= 4 else {}


def _sizes_axis(sizes: Sequence[float], **more: Any) -> Json:
    spread = _spread(sizes)
    ticks = spread_ticks(sizes, is_logarithmic=bool(spread))
    return axis(
        "ranks",
        **{**spread, "tickmode": "array"},
        tickvals=ticks,
        ticktext=[f"{tick:,.0f}" for tick in ticks],
        **more,
    )


def _round_ticks(data: Sequence[Json]) -> Json:
    """A logarithmic axis with a tick at 1, 2 and 5 of each power of ten."""
    values = [value for trace in data if "yaxis" not in trace for value in trace["y"] if value]
    low, high = np.floor(np.log10(min(values))), np.ceil(np.log10(max(values)))
    ticks = [digit * 10.0**power for power in np.arange(low, high + 1) for digit in (1, 2, 5)]
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}


def _beside_the_size(points: Points) -> list[Axis]:
    """The axes that still differ where the number of ranks is the same; an axis of counts is the size itself."""
    counts = {
        varied.column
        for varied in points.axes
        if varied.is_number and varied.column.rpartition(".")[2] in ("count", "nodes", "ranks")
    }
    by_ranks = points.frame.groupby("ranks", dropna=True)
    return [
        varied
        for varied in points.axes
        if varied.column not in counts and (by_ranks[varied.column].nunique(dropna=False) > 1).any()
    ]


def _best_curves(
    points: Points, curves: dict[tuple[Hashable, ...], list[int]]
) -> tuple[list[tuple[Hashable, ...]], str]:
    """At most so many curves, in their order, and a sentence if some are left out."""
    if len(curves) <= MOST_CURVES:
        return list(curves), ""
    place = {point: number for number, point in enumerate(points.ranked())}
    best = sorted(curves, key=lambda key: min(place[point] for point in curves[key]))[:MOST_CURVES]
    return [key for key in curves if key in best], f"The {MOST_CURVES} of {len(curves):,} curves with the best points."


def along_an_axis(points: Points) -> Chart | None:
    """Figures along each axis of numbers that is not the size of the cluster."""
    views = []
    for varied in points.axes:
        if points.is_numeric(varied) and varied.column in {
            other.column for other in _beside_the_size(points)
        } | _single(points):
            views += [_along(points, varied, column) for column in CHOSEN if points.has(column)]
    if not views:
        return None
    labels = {view.group for view in views}
    if len(labels) == 1:
        views = [View(view.label, view.data, view.layout) for view in views]
        title = f"Along {labels.pop()}"
    else:
        title = "Along one axis"
    notes = ["A line for each value of the other axes."] if len(points.axes) > 1 else []
    if any(len([t for t in view.data if "lines" in t["mode"]]) == MOST_CURVES for view in views):
        notes = [f"A line for each value of the other axes, at most {MOST_CURVES}: those with the best points."]
    if not points.planned.all():
        notes.append("✕ on the axis: no plan.")
    return Chart("along", title, tuple(views), " ".join(notes))


def _single(points: Points) -> set[str]:
    """The one axis of a study that has only one, whatever it is."""
    return {points.axes[0].column} if len(points.axes) == 1 and points.frame["ranks"].nunique() < 2 else set()


def _along(points: Points, varied: Axis, column: str) -> View:
    others = [other for other in points.axes if other != varied]
    place = points.values_of[varied.column]
    scale = scale_of([float(value) for value in place], varied.unit)
    figures, hovers = points.numbers(column), points.hovers(*CHOSEN)
    groups = {
        key: sorted((p for p in inside if figures[p] is not None), key=lambda p: (place[p], p))
        for key, inside in points.groups(others).items()
    }
    kept, _ = _best_curves(points, {key: inside for key, inside in groups.items() if inside})
    data = []
    for key, colour in zip(kept, cycle(SERIES), strict=False):
        inside = groups[key]
        x = [place[p] / scale.divisor for p in inside]
        data.append(
            line(
                points.group_name(others, key) or "plans",
                x,
                [figures[p] for p in inside],
                colour,
                [hovers[p] for p in inside],
            )
        )
    heights = [float(y) for trace in data for y in trace["y"]]
    is_tall = min(heights, default=0.0) > 0 and max(heights) >= WIDE * min(heights)
    missing = [p for p in range(len(place)) if not points.planned[p]]
    if missing:
        marks = line(
            "no plan",
            [place[p] / scale.divisor for p in missing],
            [min(heights) / 2 if is_tall else 0.0] * len(missing),
            FAINT,
            [hovers[p] for p in missing],
        )
        data.append(
            marks | {"mode": "markers", "marker": {"symbol": "x", "color": FAINT, "size": 8}, "cliponaxis": False}
        )
    levels = [value for value in points.levels(varied) if value > 0]
    is_wide = len(levels) == len(points.levels(varied)) and levels[-1] / levels[0] >= 16
    shown, title = scale.titled(varied.label), escaped(points.scale(column).titled(TITLES[column]))
    drawn = layout(
        380 + legend_px([trace["name"] for trace in data]),
        showlegend=len(data) > 1,
        xaxis=axis(escaped(shown), **_ticks(levels, scale.divisor) if is_wide else {}),
        yaxis=axis(title, **(_round_ticks(data) if is_tall else {"rangemode": "tozero"})),
    )
    return View(points.scale(column).titled(TITLES[column]), data, drawn, escaped(varied.label))


def _ticks(levels: Sequence[float], divisor: float) -> Json:
    values = [value / divisor for value in spread_ticks(levels, is_logarithmic=True)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [trimmed(significant(value)) for value in values],
    }


def pareto(points: Points) -> Chart | LeftOut | None:
    """All plans by two figures, the best trade-offs joined."""
    title = "Pareto front"
    if len(points.frame) < 2:
        return None
    first, second = points.results.pareto
    for column in (first, second):
        if not points.has(column):
            words = TITLES.get(column, column)
            remedy = "; give prices with the study or the topology" if column.startswith("usd") else ""
            return LeftOut(title, f"{words} is unknown for every point{remedy}")
        if points.frame.loc[points.planned, column].nunique() < 2:
            return LeftOut(title, f"all plans have the same {TITLES.get(column, column)}")
    x, y = points.numbers(first), points.numbers(second)
    both = [p for p in range(len(x)) if x[p] is not None and y[p] is not None]
    marked = points.marked("on_pareto")
    front = sorted((p for p in both if marked[p]), key=lambda p: (x[p], y[p]))
    near = set(points.ranked()[:MOST_MARKS])
    rest = [p for p in both if not marked[p] and p in near]
    hovers = points.hovers(first, second, "step_s", "nodes", "ranks")
    faint = {"mode": "markers", "marker": {"color": OTHERS, "size": 7}}
    data = [line("other plans", [x[p] for p in rest], [y[p] for p in rest], FAINT, [hovers[p] for p in rest]) | faint]  # type: ignore[misc]
    joined = line("frontier", [x[p] for p in front], [y[p] for p in front], SERIES[0], [hovers[p] for p in front])  # type: ignore[misc]
    joined |= {"mode": "lines+markers+text", "text": _labels(points, front, x)}
    joined["textposition"] = ["top right", *["top center"] * (len(front) - 2), "top left"][: len(front)]
    joined |= {"textfont": {"size": 11}, "cliponaxis": False}
    data.append(joined)
    drawn = layout(
        420,
        showlegend=True,
        margin={"l": 56, "r": 40, "t": 24, "b": 48},
        xaxis=axis(escaped(points.scale(first).titled(TITLES.get(first, first)))),
        yaxis=axis(escaped(points.scale(second).titled(TITLES.get(second, second)))),
    )
    ways = [f"{_better(column)} {TITLES.get(column, column)}" for column in (first, second)]
    rivals = "in both" if first != "loss" else "in loss, HBM and step"
    note = f"Better is {ways[0]} and {ways[1]}; no plan beats one of the frontier {rivals}."
    if len(points.ranked()) > MOST_MARKS:
        note += f" Of the other plans the best {MOST_MARKS:,} by {points.objective_words}."
    ends = [
        f"{points.names[p]} ({points.texts(first)[p]}, {points.texts(second)[p]})"
        for p in front[:: max(len(front) - 1, 1)]
    ]
    words = f"{counted(len(front), 'plan')} on the frontier, from {' to '.join(ends)}."
    return Chart("pareto", title, (View(title, data, drawn),), note, words)


def _better(column: str) -> str:
    return "more" if column in LARGER_IS_BETTER else "fewer" if column in ("nodes", "ranks") else "less"


def _labels(points: Points, front: Sequence[int], x: Sequence[float | None]) -> list[str]:
    """Names of points that stand far enough from the one named before."""
    places = [float(x[point] or 0.0) for point in front]
    labels, free = [], -np.inf
    for point, place in zip(front, places, strict=True):
        name = shortened(points.names[point])
        wide = LETTER * len(name) * (max(places) - min(places))
        start = place - wide * (0.0 if point == front[0] else 1.0 if point == front[-1] else 0.5)
        is_free = start >= free
        labels.append(escaped(name) if is_free else "")
        free = start + wide if is_free else free
    return labels
