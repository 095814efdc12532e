"""The tables of a plan in pictures: a treemap of their bytes, and which take most time and most bytes."""

from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, Floats
from planner.diagnosis.stage_loads import StageLoads
from planner.document.plan import Plan, TablePlan
from planner.document.planned import placed_shards
from planner.reports.pages.charts import Bars, Chart, Json, View, bars, escaped, hover, layout
from planner.reports.pages.palette import MEMORY_COLOURS, PAPER, SERIES, STAGE_COLOURS, colours
from planner.studies.scales import scale_of
from topologies.sentences import counted
from topologies.units import format_bytes

MOST_TILES, MOST_TOP = 1000, 20
WAYS: dict[str, Callable[[TablePlan], str]] = {
    "by sharding": lambda table: table.sharding,
    "by tier": lambda table: table.tier,
    "by dtype": lambda table: table.dtype,
}


def treemap(plan: Plan) -> Chart:
    """All tables, as large as their bytes, in groups."""
    sizes = np.array([float(table.shards.bytes.sum()) for table in plan.tables])
    views = [
        _tiles(plan.tables, sizes, label, group_of)
        for number, (label, group_of) in enumerate(WAYS.items())
        if number < 2 or len({group_of(table) for table in plan.tables}) > 1
    ]
    largest = [plan.tables[t].name for t in np.argsort(-sizes, kind="stable")[:3].tolist()]
    words = f"{format_bytes(float(sizes.sum()))} of {counted(len(sizes), 'table')}; largest: {', '.join(largest)}."
    note = "As large as the bytes of all shards and copies of a table."
    if len(sizes) > MOST_TILES:
        note += f" The {MOST_TILES:,} largest; the others are one tile in each group."
    return Chart("treemap", "Bytes of tables", tuple(views), note, words)


def _tiles(tables: Sequence[TablePlan], sizes: Floats, label: str, group_of: Callable[[TablePlan], str]) -> View:
    order = np.argsort(-sizes, kind="stable").tolist()
    groups = list(dict.fromkeys(group_of(tables[t]) for t in order))
    shade = dict(zip(groups, cycle(SERIES), strict=False))
    rows: list[tuple[str, str, float, str]] = []  # name, group, bytes, what the pointer says
    for group in groups:
        own = [t for t in order if group_of(tables[t]) == group]
        rows.append((group, "", float(sizes[own].sum()), counted(len(own), "table")))
    for t in order[:MOST_TILES]:
        table = tables[t]
        said = f"{table.sharding}, {table.tier}, {table.dtype}, {counted(len(table.shards), 'shard')}"
        rows.append((table.name, group_of(table), float(sizes[t]), said))
    for group in groups:
        rest = [t for t in order[MOST_TILES:] if group_of(tables[t]) == group]
        if rest:
            rows.append((f"{len(rest):,} more", group, float(sizes[rest].sum()), counted(len(rest), "table")))
    places = {group: f"group {number}" for number, group in enumerate(groups)}
    whole = sizes.sum()
    trace: Json = {
        "type": "treemap",
        "ids": [places[name] if not group else f"tile {number}" for number, (name, group, _, _) in enumerate(rows)],
        "labels": [escaped(name) for name, _, _, _ in rows],
        "parents": [places[group] if group else "" for _, group, _, _ in rows],
        "values": [size for _, _, size, _ in rows],
        "text": [format_bytes(size) for _, _, size, _ in rows],
        "hovertext": [
            hover(name, {"size": f"{format_bytes(size)}, {size / max(whole, 1):.1%} of all", "held": said})
            for name, _, size, said in rows
        ],
        "branchvalues": "total",
        "hoverinfo": "text",
        "textinfo": "label+text",
        "pathbar": {"visible": False},
        "tiling": {"pad": 1},
        "marker": {
            "colors": [shade[group or name] for name, group, _, _ in rows],
            "line": {"width": 1, "color": PAPER},
        },
        "root": {"color": PAPER},
        "maxdepth": 2,
    }
    return View(label, [trace], layout(440, margin={"l": 0, "r": 0, "t": 8, "b": 8}))


def top_tables(plan: Plan, model: CostModel) -> Chart:
    """The tables that take most time of what each stage waits for, and those of most bytes."""
    stages = [stage.name for stage in plan.stages]
    loads = StageLoads(model, placed_shards(plan), plan.stages)
    seconds = np.stack([loads.binding(s) for s in range(len(stages))], axis=1)
    size = np.array([table.shards.bytes.sum(axis=0) for table in plan.tables], dtype=float)
    views = []
    unit = "time" if model.quantity == "step" else "rating"
    parts = [name.replace("_", " ") for name in stages]
    if seconds.any():
        views.append(_top(plan, seconds, parts, colours(stages, STAGE_COLOURS), model.unit, unit))
    memories = [tier.upper() for tier in MEMORY_TIERS]
    views.append(_top(plan, size, memories, [MEMORY_COLOURS[tier] for tier in MEMORY_TIERS], "B", "size"))
    note = "Time of the resource that each stage waits for, at the rank that makes it as long as it is."
    top = np.argsort(-seconds.sum(axis=1), kind="stable")[:3].tolist()
    words = f"Most time: {', '.join(plan.tables[t].name for t in top)}."
    return Chart("top", "Top tables", tuple(views), note, words)


def _top(plan: Plan, values: Floats, parts: Sequence[str], shades: Sequence[str], unit: str, what: str) -> View:
    """The tables with the largest sum of `values` [T, parts]."""
    totals = values.sum(axis=1)
    top = [t for t in np.argsort(-totals, kind="stable")[:MOST_TOP].tolist() if totals[t] > 0]
    scale = scale_of(totals[top].tolist(), unit)
    names = [plan.tables[t].name for t in top]
    share = totals / max(totals.sum(), 1e-300)
    series = [
        Bars(
            part,
            [float(values[t, p]) / scale.divisor for t in top],
            shade,
            [
                hover(
                    plan.tables[t].name,
                    {
                        part: scale.text(float(values[t, p])),
                        "in all": f"{scale.text(float(totals[t]))}, {share[t]:.1%} of all tables",
                        "held": f"{plan.tables[t].sharding}, {plan.tables[t].tier}",
                    },
                )
                for t in top
            ],
        )
        for p, (part, shade) in enumerate(zip(parts, shades, strict=True))
        if values[top, p].any()
    ]
    data, drawn = bars(names, series, scale.titled(what))
    return View(f"by {what}", data, drawn)
