"""The charts of a study."""

from collections.abc import Callable, Hashable, Sequence
from itertools import cycle

import numpy as np
import pandas as pd

from planner.reports.pages.charts import (
    EMPTY,
    FAINT,
    MEMORY_COLOURS,
    SERIES,
    STAGE_COLOURS,
    Bars,
    Chart,
    Json,
    LeftOut,
    View,
    axis,
    bars,
    colours,
    escaped,
    heat_map,
    hover,
    layout,
    legend_px,
    line,
    named_axis,
    spread_ticks,
)
from planner.reports.pages.points import LARGER_IS_BETTER, TITLES, Points
from planner.reports.pages.scales import scale_of, significant, trimmed, value_text
from planner.studies.results import SAVES_PREFIX, SAVES_SUFFIX, SECONDS_SUFFIX, STAGE_PREFIX, Axis

MOST_BARS, MOST_CURVES, MOST_SLICES, MOST_COLUMNS = 40, 8, 8, 16
CHOSEN = ("samples_per_s", "step_s", "usd_per_billion_samples", "gap")
"""Figures to choose from in a heat map and along an axis."""
MARKS = {"infeasible": "✕", "timeout": "…", "error": "!"}
"""What stands in a cell without a plan, by its status."""
MARK_WORDS = {"infeasible": "✕ infeasible", "timeout": "… none found in time", "error": "! failed"}
BROKEN = "†"
LIMITS = {"hbm": "#2166ac", "network": "#f4a582", "dense": "#9ecae1", "host": "#7fbf7b", "storage": "#b58fc2"}
LETTER = 0.0085
"""Width of a letter as a share of a chart's, with some room around each name."""
RESOURCES = {
    "hbm": "HBM",
    "ddr": "DDR",
    "ssd": "SSD",
    "nic": "NIC",
    "pcie": "PCIe",
    "flops": "FLOP/s",
    "nvlink": "NVLink",
}


def charts(points: Points) -> list[Chart | LeftOut]:
    """All charts that these results allow, and why others are left out."""
    makers: Sequence[Callable[[Points], Chart | LeftOut | None]] = (
        heat_maps,
        scaling,
        along_an_axis,
        pareto,
        measured,
        stages,
        memories,
        gains,
    )
    return [chart for make in makers if (chart := make(points)) is not None]


# Heat map of two axes


def heat_maps(points: Points) -> Chart | LeftOut | None:
    """Figures over the first two axes; a view for each value of the others, or the best of them."""
    title = "Two axes"
    if len(points.axes) < 2:
        return None
    own = [one for one in points.axes if one.column != "scenario"]
    if len(own) < 2:
        own = list(points.axes)
    across, down = own[:2]
    if len(points.levels(across)) > MOST_COLUMNS and len(points.levels(down)) < len(points.levels(across)):
        across, down = down, across
    cells = len(points.levels(across)) * len(points.levels(down))
    if 2 * len(points.groups([across, down])) < cells:
        return LeftOut(title, f"{across.label} and {down.label} vary together and make no grid")
    others = [one for one in points.axes if one not in (across, down)]
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
    notes = []
    if others and len(slices) == 1:
        notes.append(f"Each cell is the best of all {', '.join(one.label for one in others)}.")
    if shown:
        notes.append(f"Grey, no plan: {', '.join(MARK_WORDS[name] for name in shown)}.")
    if (points.planned & ~points.meets).any():
        notes.append(f"{BROKEN} breaks a constraint.")
    return Chart("heat-map", f"{across.label} and {down.label}".capitalize(), tuple(views), " ".join(notes))


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


def _level_names(points: Points, one: Axis) -> list[str]:
    return [value_text(value, one.unit) for value in points.levels(one)]


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


# Curves


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
        share = [100 * value / y[0] * x[0] / size for value, size in zip(y, x, strict=True)]
        under = [hovers[point] for point in inside]
        told = [f"{text}<br>efficiency: {part:.0f}%" for text, part in zip(under, share, strict=True)]
        data.append(line(name, x, y, colour, told, legendgroup=name))
        ideal = line(name, [x[0], x[-1]], [y[0], y[0] * x[-1] / x[0]], colour, legendgroup=name, showlegend=False)
        data.append(ideal | {"mode": "lines", "line": {"color": colour, "width": 1, "dash": "dot"}})
        data.append(line(name, x, share, colour, told, legendgroup=name, showlegend=False, yaxis="y2"))
    sizes = sorted({ranks[point] for key in kept for point in curves[key]})
    spread = {"type": "log", "dtick": 1} if sizes[-1] / sizes[0] >= 4 else {}
    ticks = spread_ticks(sizes, is_logarithmic=bool(spread))
    drawn = layout(
        520 + legend_px([points.group_name(others, key) for key in kept]),
        showlegend=len(kept) > 1,
        xaxis=axis(
            "ranks",
            **{**spread, "tickmode": "array"},
            tickvals=ticks,
            ticktext=[f"{t:,.0f}" for t in ticks],
            anchor="y2",
        ),
        yaxis=axis(unit, domain=[0.4, 1], **(_round_ticks(data) if spread else {"rangemode": "tozero"})),
        yaxis2=axis("efficiency", domain=[0, 0.3], rangemode="tozero", ticksuffix="%", nticks=5),
    )
    words = "Dotted: ideal scaling from the smallest cluster of each curve, which is 100% efficient."
    return Chart("scaling", title, (View(title, data, drawn),), " ".join(filter(None, (words, note))))


def _round_ticks(data: Sequence[Json]) -> Json:
    """A logarithmic axis with a tick at 1, 2 and 5 of each power of ten."""
    values = [value for trace in data if "yaxis" not in trace for value in trace["y"] if value]
    low, high = np.floor(np.log10(min(values))), np.ceil(np.log10(max(values)))
    ticks = [digit * 10.0**power for power in np.arange(low, high + 1) for digit in (1, 2, 5)]
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}


def _beside_the_size(points: Points) -> list[Axis]:
    """The axes that still differ where the number of ranks is the same; an axis of counts is the size itself."""
    counts = {
        one.column
        for one in points.axes
        if one.is_number and one.column.rpartition(".")[2] in ("count", "nodes", "ranks")
    }
    by_ranks = points.frame.groupby("ranks", dropna=True)
    return [
        one
        for one in points.axes
        if one.column not in counts and (by_ranks[one.column].nunique(dropna=False) > 1).any()
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
    for one in points.axes:
        if one.is_number and one.column in {other.column for other in _beside_the_size(points)} | _single(points):
            views += [_along(points, one, column) for column in CHOSEN if points.has(column)]
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


def _along(points: Points, one: Axis, column: str) -> View:
    others = [other for other in points.axes if other != one]
    place = points.values_of[one.column]
    scale = scale_of([float(value) for value in place], one.unit)
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
    missing = [p for p in range(len(place)) if not points.planned[p]]
    if missing:
        marks = line(
            "no plan",
            [place[p] / scale.divisor for p in missing],
            [0.0] * len(missing),
            FAINT,
            [hovers[p] for p in missing],
        )
        data.append(
            marks | {"mode": "markers", "marker": {"symbol": "x", "color": FAINT, "size": 8}, "cliponaxis": False}
        )
    levels = [value for value in points.levels(one) if value > 0]
    is_wide = len(levels) == len(points.levels(one)) and levels[-1] / levels[0] >= 16
    shown = scale.titled(one.label)
    drawn = layout(
        380 + legend_px([trace["name"] for trace in data]),
        showlegend=len(data) > 1,
        xaxis=axis(escaped(shown), **_ticks(levels, scale.divisor) if is_wide else {}),
        yaxis=axis(escaped(points.scale(column).titled(TITLES[column])), rangemode="tozero"),
    )
    return View(points.scale(column).titled(TITLES[column]), data, drawn, escaped(one.label))


def _ticks(levels: Sequence[float], divisor: float) -> Json:
    values = [value / divisor for value in spread_ticks(levels, is_logarithmic=True)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [trimmed(significant(value)) for value in values],
    }


# Frontier and measurements


def pareto(points: Points) -> Chart | LeftOut:
    """All plans by two figures, the best trade-offs joined."""
    title = "Pareto front"
    first, second = points.results.pareto
    for column in (first, second):
        if not points.has(column):
            words = TITLES.get(column, column)
            remedy = "; give prices with the study or the topology" if column.startswith("usd") else ""
            return LeftOut(title, f"{words} is unknown for every point{remedy}")
    x, y = points.numbers(first), points.numbers(second)
    both = [p for p in range(len(x)) if x[p] is not None and y[p] is not None]
    marked = (
        points.frame["on_pareto"].fillna(False).to_numpy(dtype=bool)
        if "on_pareto" in points.frame
        else np.zeros(len(x), dtype=bool)
    )
    front = sorted((p for p in both if marked[p]), key=lambda p: (x[p], y[p]))
    rest = [p for p in both if not marked[p]]
    hovers = points.hovers(first, second, "step_s", "nodes", "ranks")
    faint = {"mode": "markers", "marker": {"color": "#c4ccd4", "size": 7}}
    data = [line("other plans", [x[p] for p in rest], [y[p] for p in rest], FAINT, [hovers[p] for p in rest]) | faint]  # type: ignore[misc]
    joined = line("frontier", [x[p] for p in front], [y[p] for p in front], SERIES[0], [hovers[p] for p in front])  # type: ignore[misc]
    joined |= {"mode": "lines+markers+text", "text": _labels(points, front, x), "textposition": "top center"}
    joined |= {"textfont": {"size": 11}, "cliponaxis": False}
    data.append(joined)
    drawn = layout(
        420,
        showlegend=True,
        margin={"l": 56, "r": 40, "t": 24, "b": 48},
        xaxis=axis(escaped(points.scale(first).titled(TITLES.get(first, first)))),
        yaxis=axis(escaped(points.scale(second).titled(TITLES.get(second, second)))),
    )
    ways = [
        f"{'more' if column in LARGER_IS_BETTER else 'less'} {TITLES.get(column, column)}" for column in (first, second)
    ]
    note = f"Better is {ways[0]} and {ways[1]}; no plan beats one of the frontier in both."
    return Chart("pareto", title, (View(title, data, drawn),), note)


def _labels(points: Points, front: Sequence[int], x: Sequence[float | None]) -> list[str]:
    """Names of points that stand far enough from the one named before."""
    places = [float(x[point] or 0.0) for point in front]
    labels, free = [], -np.inf
    for point, place in zip(front, places, strict=True):
        half = LETTER / 2 * len(points.names[point]) * (max(places) - min(places))
        is_free = place - half >= free
        labels.append(escaped(points.names[point]) if is_free else "")
        free = place + half if is_free else free
    return labels


def measured(points: Points) -> Chart | None:
    """Predicted throughput beside what was measured."""
    if not points.has("measured_samples_per_s"):
        return None
    known = (points.frame["measured_samples_per_s"].notna() & points.frame["samples_per_s"].notna()).to_numpy()
    ranked = points.ranked(known)
    if not ranked:
        return None
    chosen = sorted(ranked[:MOST_BARS])
    columns = [
        "samples_per_s",
        *(["simulated_samples_per_s"] if points.has("simulated_samples_per_s") else []),
        "measured_samples_per_s",
    ]
    scale = scale_of([value for column in columns for value in points.frame[column].iloc[chosen]], "samples/s")
    actual = points.frame["measured_samples_per_s"]
    colours = {"samples_per_s": SERIES[0], "simulated_samples_per_s": "#9ecae1", "measured_samples_per_s": "#4d4d4d"}
    words = {"samples_per_s": "predicted", "simulated_samples_per_s": "simulated", "measured_samples_per_s": "measured"}
    series = []
    for column in columns:
        values = points.frame[column].iloc[chosen]
        ratio = (values / actual.iloc[chosen] - 1).tolist()
        texts = [f"{part:+.0%}" if column != "measured_samples_per_s" and not pd.isna(part) else "" for part in ratio]
        hovers = [
            hover(
                points.names[p],
                {words[column]: "unknown" if pd.isna(v) else scale.text(v)} | ({"against measured": t} if t else {}),
            )
            for p, v, t in zip(chosen, values, texts, strict=True)
        ]
        series.append(
            Bars(
                words[column],
                [None if pd.isna(v) else v / scale.divisor for v in values],
                colours[column],
                hovers,
                texts,
            )
        )
    data, drawn = bars([points.names[p] for p in chosen], series, scale.unit, stacked=False)
    drawn |= {"height": 110 + 20 * len(series) * len(chosen), "bargap": 0.25}
    note = f"Points: {points.name_words}. At the bars: the prediction against what was measured."
    if len(ranked) > MOST_BARS:
        note += f" The best {MOST_BARS} of {len(ranked):,} points with a measurement."
    return Chart("measured", "Predicted and measured", (View("", data, drawn),), note)


# What a point is made of


def stages(points: Points) -> Chart | LeftOut:
    """The step of each point, stage by stage."""
    title = "Where the step goes"
    columns = [column for column in points.results.stages if points.has(column) and points.frame[column].max() > 0]
    chosen, note = points.shown(MOST_BARS)
    if not columns or not chosen:
        return LeftOut(title, "no point has a plan with stages")
    steps = points.frame["step_s"].iloc[chosen]
    scale = scale_of(steps, "s")
    names = [column.removeprefix(STAGE_PREFIX).removesuffix(SECONDS_SUFFIX) for column in columns]
    series = []
    for column, name, colour in zip(columns, names, colours(names, STAGE_COLOURS), strict=True):
        values = [0.0 if pd.isna(value) else float(value) for value in points.frame[column].iloc[chosen]]
        hovers = [
            hover(points.names[p], {name.replace("_", " "): f"{scale.text(v)} ({v / step:.0%} of {scale.text(step)})"})
            for p, v, step in zip(chosen, values, steps, strict=True)
        ]
        series.append(Bars(name.replace("_", " "), [value / scale.divisor for value in values], colour, hovers))
    data, drawn = bars([points.names[p] for p in chosen], series, f"step ({scale.unit})")
    words = f"Points: {points.name_words}." if points.axes else ""
    return Chart("stages", title, (View("", data, drawn),), " ".join(filter(None, (words, note))))


def memories(points: Points) -> Chart | LeftOut:
    """The bytes that plans take of each memory, against what there is."""
    title = "Memory"
    chosen, note = points.shown(MOST_BARS)
    views = [_memory(points, name, chosen) for name in points.results.memories if _is_there(points, name)]
    if not views or not chosen:
        return LeftOut(title, "no point has a plan with its bytes")
    words = f"Points: {points.name_words}." if points.axes else ""
    return Chart("memory", title, tuple(views), " ".join(filter(None, ("Pale: capacity.", words, note))))


def _is_there(points: Points, name: str) -> bool:
    return points.has(f"{name}_capacity_bytes") and points.frame[f"{name}_capacity_bytes"].max() > 0


def _memory(points: Points, name: str, chosen: list[int]) -> View:
    used = points.frame[f"{name}_used_bytes"].iloc[chosen].fillna(0.0).astype(float).tolist()
    room = points.frame[f"{name}_capacity_bytes"].iloc[chosen].fillna(0.0).astype(float).tolist()
    scale = scale_of(room, "B")
    shares = [f"{taken / of:.0%}" if of else "" for taken, of in zip(used, room, strict=True)]
    hovers = [
        hover(points.names[p], {"used": f"{scale.text(taken)} of {scale.text(of)}{f' ({share})' if share else ''}"})
        for p, taken, of, share in zip(chosen, used, room, shares, strict=True)
    ]
    colour = MEMORY_COLOURS.get(name, SERIES[0])
    series = [
        Bars("capacity", [of / scale.divisor for of in room], "#e4e8ec", hovers, shares, 0.8),
        Bars("used", [taken / scale.divisor for taken in used], colour, hovers, (), 0.44),
    ]
    data, drawn = bars([points.names[p] for p in chosen], series, f"{name.upper()} ({scale.unit})")
    data[0] |= {"textposition": "outside", "textfont": {"size": 12}}
    return View(name.upper(), data, drawn | {"barmode": "overlay"})


def gains(points: Points) -> Chart | LeftOut | None:
    """What 10 % more of each resource would save, of the best point and of all."""
    title = "What 10% more would save"
    columns = [column for column in points.results.gains if points.has(column)]
    if not columns:
        return None
    keys = [column.removeprefix(SAVES_PREFIX).removesuffix(SAVES_SUFFIX).split("_") for column in columns]
    names = [" ".join(RESOURCES.get(word, word) for word in words) for words in keys]
    ranked = points.ranked(points.frame[columns].notna().any(axis=1).to_numpy())
    if not ranked:
        return None
    best = ranked[0]
    saved = [float(value) for value in points.frame.loc[[best], columns].to_numpy(dtype=float)[0]]
    own = [(name, share) for name, share in zip(names, saved, strict=True) if not np.isnan(share)]
    own.sort(key=lambda pair: -pair[1])
    texts = [f"{share:.1%}" for _, share in own]
    hovers = [
        hover(points.names[best], {f"10% more {name}": f"{text} of the step"})
        for (name, _), text in zip(own, texts, strict=True)
    ]
    data, drawn = bars(
        [name for name, _ in own],
        [Bars("saves", [100 * share for _, share in own], SERIES[0], hovers, texts)],
        "share of the step (%)",
    )
    views = [View("best point", data, drawn)]
    if len(ranked) > 1:
        chosen = sorted(ranked[:MOST_BARS])
        shares = points.frame.loc[chosen, columns].astype(float).to_numpy() * 100
        values = [[None if np.isnan(share) else float(share) for share in row] for row in shares]
        words = [["" if share is None else f"{share:.1f}" for share in row] for row in values]
        under = [
            [
                hover(
                    points.names[p], {f"10% more {name}": "unknown" if share is None else f"{share:.2f}% of the step"}
                )
                for name, share in zip(names, row, strict=True)
            ]
            for p, row in zip(chosen, values, strict=True)
        ]
        of_all = heat_map(names, [points.names[p] for p in chosen], values, words, under, "%")
        grid = layout(
            int(140 + 24 * len(chosen)),
            xaxis=named_axis(names, tickangle=-35),
            yaxis=named_axis([points.names[p] for p in chosen], range=[len(chosen) - 0.5, -0.5]),
        )
        label = "all points" if len(ranked) <= MOST_BARS else f"the best {MOST_BARS} points"
        views.append(View(label, [of_all], grid))
    note = "With the placement as it is; a new plan may gain more."
    if points.axes:
        note += f" Best point, by {points.objective_words}: {points.full_name(best)}."
    return Chart("gains", title, tuple(views), note)
