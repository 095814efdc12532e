"""What each rank of a plan does and holds: how long it is busy, and how full its memories are."""

from collections.abc import Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import SHARED_BY, Floats, MemoryTier
from planner.document.plan import Plan
from planner.document.planned import seconds_without_tables
from planner.reports.pages.charts import Chart, Json, View, axis, escaped, hover, layout, legend_px
from planner.reports.pages.palette import FAINT, INK, MEMORY_COLOURS, PALE, SERIES, STAGE_COLOURS, colours
from planner.studies.scales import scale_of

MOST_BARS = 256
"""With more ranks their bars join into areas."""
SEEN = 1e-6
"""Share of a step below which stages are taken to be equal on all ranks."""


def stage_words(name: str) -> str:
    """What a stage is called."""
    return "overhead (host)" if name == "overhead" else name.replace("_", " ")


def loads(plan: Plan, model: CostModel) -> Chart:
    """How long each rank is busy in each stage: for its tables, beyond what it takes without any; and in all."""
    whole = np.array([[rank.seconds.get(name, 0.0) for name in model.stages] for rank in plan.ranks])  # [W, S]
    nothing = seconds_without_tables(plan, model)
    views = [_difference_view(plan, model, whole), _loads_view(plan, model, "in all", whole)]
    note = "A stage lasts as long as its busiest rank, so the step is no less than the highest bar."
    if model.quantity != "step":
        note = "The rating is that of the busiest rank."
    elif (added := np.maximum(whole - nothing, 0.0)).any():
        views.insert(1, _loads_view(plan, model, "for tables", added))
        note += " For tables: without what a stage takes on each rank whatever is placed."
    totals = whole.sum(axis=1)
    scale = scale_of(totals.tolist(), model.unit)
    words = f"Busiest: rank {int(totals.argmax()):,}, {scale.text(float(totals.max()))};"
    words += f" least busy: rank {int(totals.argmin()):,}, {scale.text(float(totals.min()))}."
    return Chart("ranks", "Load of each rank", tuple(views), note, words)


def _difference_view(plan: Plan, model: CostModel, seconds: Floats) -> View:
    """How far each rank is above or below the mean rank, stage by stage; of `seconds` [W, S]."""
    away = seconds - seconds.mean(axis=0)
    totals = away.sum(axis=1)
    scale = scale_of(np.abs(away).sum(axis=1).tolist(), model.unit)
    numbers = [rank.rank for rank in plan.ranks]
    mean = float(seconds.sum(axis=1).mean())
    said = [
        hover(
            f"rank {rank.rank:,} on node {rank.node:,}",
            {"busy": f"{scale.text(mean + total)}, {total / max(mean, 1e-300):+.2%} of the mean"},
        )
        for rank, total in zip(plan.ranks, totals.tolist(), strict=True)
    ]
    whole: Json = {"name": "in all", "x": numbers, "y": (totals / scale.divisor).tolist()}
    whole |= {"type": "scatter", "hovertext": said, "hoverinfo": "text"}
    if len(numbers) > MOST_BARS:
        line: Json = {"width": 1.5, "color": SERIES[0], "shape": "hvh"}
        data, names = [whole | {"mode": "lines", "line": line, "fill": "tozeroy"}], ["in all"]
    else:
        shown = [s for s in range(len(model.stages)) if np.abs(away[:, s]).max() > SEEN * mean]
        names = [stage_words(model.stages[s]) for s in shown]
        data = [
            {
                "type": "bar",
                "name": escaped(name),
                "x": numbers,
                "y": (away[:, s] / scale.divisor).tolist(),
                "marker": {"color": colour, "line": {"width": 0}},
                "hoverinfo": "skip",
            }
            for s, name, colour in zip(
                shown, names, colours([model.stages[s] for s in shown], STAGE_COLOURS), strict=True
            )
        ]
        data.append(whole | {"mode": "markers", "marker": {"color": INK, "size": 5}})
        names = [*names, "in all"]
    drawn = layout(
        400 + legend_px(names),
        barmode="relative",
        bargap=0.15 if len(numbers) <= MOST_BARS // 4 else 0,
        showlegend=True,
        hovermode="x" if len(numbers) > MOST_BARS else "closest",
        xaxis=axis("rank", showgrid=False),
        yaxis=axis(escaped(scale.titled("above the mean")), zeroline=True, zerolinecolor=FAINT),
    )
    return View("against the mean", data, drawn)


def _loads_view(plan: Plan, model: CostModel, label: str, seconds: Floats) -> View:
    """These `seconds` [W, S]."""
    shown = np.flatnonzero(seconds.any(axis=0)).tolist()
    names, totals = [model.stages[s] for s in shown], seconds.sum(axis=1).tolist()
    scale = scale_of(totals, model.unit)
    data = []
    for s, name, colour in zip(shown, names, colours(names, STAGE_COLOURS), strict=True):
        hover_texts = [
            hover(
                f"rank {rank.rank:,} on node {rank.node:,}",
                {stage_words(name): scale.text(value), label: scale.text(total)},
            )
            for rank, value, total in zip(plan.ranks, seconds[:, s].tolist(), totals, strict=True)
        ]
        data.append(_by_rank(plan, stage_words(name), (seconds[:, s] / scale.divisor).tolist(), colour, hover_texts))
    drawn = layout(
        400 + legend_px(names),
        barmode="stack",
        bargap=0.15 if len(plan.ranks) <= MOST_BARS // 4 else 0,
        showlegend=True,
        xaxis=axis("rank", showgrid=False),
        yaxis=axis(escaped(scale.titled("busy")), rangemode="tozero"),
    )
    return View(label, data, drawn)


def _by_rank(plan: Plan, name: str, values: Sequence[float], colour: str, hovers: Sequence[str]) -> Json:
    """Bars, or an area where there are many ranks."""
    common: Json = {"name": escaped(name), "x": [rank.rank for rank in plan.ranks], "y": list(values)}
    common |= {"hovertext": list(hovers), "hoverinfo": "text"}
    if len(plan.ranks) <= MOST_BARS:
        return common | {"type": "bar", "marker": {"color": colour, "line": {"width": 0}}}
    line = {"width": 0, "shape": "hvh", "color": colour}
    return common | {"type": "scatter", "mode": "lines", "stackgroup": "all", "line": line, "fillcolor": colour}


def memory(plan: Plan, model: CostModel) -> Chart:
    """The bytes of each memory, by the ranks or nodes that own it, against what is usable."""
    views = []
    for tier, pool in zip(model.memories, model.memory_pool_of_rank, strict=True):
        first = np.unique(pool, return_index=True)[1]
        room = np.array([getattr(plan.ranks[rank].capacity, tier) for rank in first], dtype=float)
        if not room.any():
            continue
        taken = np.bincount(pool, weights=[getattr(rank.bytes, tier) for rank in plan.ranks])
        views.append(_memory_view(tier, "rank" if len(first) == len(pool) else SHARED_BY[tier], taken, room))
    fullest = max(plan.ranks, key=lambda rank: rank.bytes["hbm"] / max(rank.capacity["hbm"], 1))
    share = fullest.bytes["hbm"] / max(fullest.capacity["hbm"], 1)
    words = f"Fullest: rank {fullest.rank:,}, {share:.0%} of its usable HBM."
    return Chart("memory", "Memory", tuple(views), "Pale: usable, after the reserve.", words)


def _memory_view(tier: MemoryTier, owner: str, taken: np.ndarray, room: np.ndarray) -> View:
    scale = scale_of(room.tolist(), "B")
    hover_texts = [
        hover(f"{owner} {number:,}", {"used": f"{scale.text(used)} of {scale.text(of)} ({used / max(of, 1):.0%})"})
        for number, (used, of) in enumerate(zip(taken.tolist(), room.tolist(), strict=True))
    ]
    data: list[Json] = []
    series = [("usable", room, PALE, 0.9), ("used", taken, MEMORY_COLOURS[tier], 0.55)]
    for name, values, colour, width in series:
        trace: Json = {"name": name, "x": list(range(len(values))), "y": (values / scale.divisor).tolist()}
        trace |= {"hovertext": hover_texts, "hoverinfo": "text"}
        if len(values) <= MOST_BARS:
            marker: Json = {"color": colour, "line": {"width": 0}}
            trace |= {"type": "bar", "width": width, "marker": marker}
        else:
            line: Json = {"width": 0, "shape": "hvh", "color": colour}
            trace |= {"type": "scatter", "mode": "lines", "fill": "tozeroy", "fillcolor": colour, "line": line}
        data.append(trace)
    ticks: Json = {"tickmode": "linear", "dtick": 1} if len(room) <= 16 else {}
    drawn = layout(
        340,
        barmode="overlay",
        showlegend=True,
        xaxis=axis(owner, showgrid=False, **ticks),
        yaxis=axis(scale.titled(tier.upper()), rangemode="tozero"),
    )
    return View(f"{tier.upper()} of each {owner}", data, drawn)
