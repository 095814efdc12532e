"""The report of a plan: stages, the load of every rank, memory, and all tables."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, SHARED_BY, Floats, MemoryTier
from cost_models.step_costs import StepCosts
from planner.diagnosis.fixed_part import fixed_part
from planner.document.plan import Objective, Plan, StageTime
from planner.document.planned import placed_shards, planned_model
from planner.reports.dense_strategy import strategy_words
from planner.reports.pages.charts import Bars, Chart, Json, LeftOut, View, axis, bars, escaped, hover, layout, legend_px
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.palette import INK, MEMORY_COLOURS, PALE, STAGE_COLOURS, colours
from planner.reports.replicas import groups_words
from planner.reports.words import fixed_words, roots_words
from planner.studies.scales import Scale, scale_of
from topologies.sentences import counted
from topologies.units import format_bytes

MOST_BARS = 256
"""With more ranks their bars join into areas."""
MOST_TABLES = 2000


def plan_page(plan: Plan) -> Page:
    """What a plan does, as a page; or why there is none. Raises InputError if its inputs are no longer valid."""
    model = planned_model(plan)
    topology, workload = model.cluster, model.stated_workload
    ranks, nodes = topology.world_size, topology.node_count
    description = f"{counted(len(workload.tables), 'table')}, {counted(ranks, 'rank')} on {counted(nodes, 'node')},"
    page = Page(
        title=f"{workload.name} on {topology.name}",
        description=f"{description} {workload.batch(ranks):,.0f} samples a step",
        facts=[
            f"Status: {plan.status}. Cost model: {model.name}. Software: {workload.software}.",
            *(f"Warning: {warning}." for warning in plan.provenance.warnings),
        ],
        findings=[],
        charts=[],
        tables=[],
    )
    if plan.objective is None:
        return _without_plan(page, plan)
    return Page(
        title=page.title,
        description=page.description,
        facts=[*page.facts, *_facts(plan, plan.objective, model)],
        findings=[],
        charts=[*_stages(plan, plan.objective, model), _loads(plan, model), _memory(plan, model)],
        tables=[_counts(plan), _tables(plan)],
    )


def _without_plan(page: Page, plan: Plan) -> Page:
    reason = plan.infeasibility or plan.unplaced
    sentences = [] if reason is None else [reason.summary]
    remedies = [f"{advice.words}: {advice.flags}" for advice in (reason.remedies if reason else ()) if advice.flags]
    findings = [*sentences, *(f"This makes room: {remedy}" for remedy in remedies)]
    return Page(page.title, page.description, page.facts, findings, [], [])


def _facts(plan: Plan, objective: Objective, model: CostModel) -> list[str]:
    scale = _scale([objective.step_s], model)
    samples = model.stated_workload.batch(model.cluster.world_size)
    rate = f", {samples / objective.step_s:,.0f} samples/s" if model.quantity == "step" else ""
    gap = "proven optimal" if plan.status == "optimal" else f"gap {objective.gap:.2%}"
    words = f"{model.quantity.capitalize()} {scale.text(objective.step_s)}{rate};"
    words += f" lower bound {scale.text(objective.lower_bound_s)}, {gap}."
    facts = [words]
    if plan.replicas is not None:
        facts.append(f"{groups_words(plan.replicas)}.")
    if plan.dense is not None and isinstance(model, StepCosts):
        facts.append(f"Dense part: {strategy_words(plan.dense, model)}.")
    if (fixed := fixed_part(objective, model)) is not None:
        facts.append(f"Of it {scale.text(fixed.seconds)} {fixed_words(fixed)}.")
    if (of_roots := roots_words(objective, model)) is not None:
        facts.append(f"{of_roots}.")
    if bar := objective.error_bar:
        facts.append(f"{bar.coverage:.0%} band {scale.text(bar.low_s)} to {scale.text(bar.high_s)}: {bar.basis}.")
    if simulated := plan.simulated:
        text = scale_of([simulated.step_s], "s").text(simulated.step_s)
        facts.append(f"Simulated {text}, {simulated.exposed_comm_fraction:.0%} of it exposed communication.")
    return facts


def _scale(values: Sequence[float], model: CostModel) -> Scale:
    return scale_of(values, model.unit)


def _stages(plan: Plan, objective: Objective, model: CostModel) -> list[Chart | LeftOut]:
    """How long each stage lasts, with its band."""
    title = "Where the step goes"
    shown = [stage for stage in plan.stages if stage.seconds]
    if model.quantity != "step" or not shown:
        return []
    scale = _scale([stage.seconds for stage in shown], model)
    series = Bars(
        "stage",
        [stage.seconds / scale.divisor for stage in shown],
        colours([stage.name for stage in shown], STAGE_COLOURS),
        [hover(_words(stage.name), _stage_facts(stage, objective, scale)) for stage in shown],
        [f"{stage.seconds / objective.step_s:.0%}" for stage in shown],
    )
    data, drawn = bars([_words(stage.name) for stage in shown], [series], f"time ({scale.unit})")
    above = [(bar.high_s - stage.seconds) / scale.divisor if (bar := stage.error_bar) else 0 for stage in shown]
    below = [(stage.seconds - bar.low_s) / scale.divisor if (bar := stage.error_bar) else 0 for stage in shown]
    note = "Share of the step in the bars."
    if any(above):
        band = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        data[0]["error_x"] = band | {"color": INK, "thickness": 1, "width": 4}
        data[0] |= {"textposition": "inside", "insidetextanchor": "start"}
        note += " Lines: 90% bands."
    if model.hidden:
        hidden = ", ".join(f"{_words(name)} (the remainder is in {_words(of)})" for name, of in model.hidden.items())
        note += f" Hidden: {hidden}."
    return [Chart("stages", title, (View("", data, drawn),), note)]


def _stage_facts(stage: StageTime, objective: Objective, scale: Scale) -> dict[str, str]:
    facts = {"time": f"{scale.text(stage.seconds)}, {stage.seconds / objective.step_s:.1%} of the step"}
    if bar := stage.error_bar:
        facts["90% band"] = f"{scale.text(bar.low_s)} to {scale.text(bar.high_s)}"
    if stage.critical_rank is not None:
        facts["longest on rank"] = f"{stage.critical_rank:,}"
    return facts


def _words(name: str) -> str:
    return "overhead (host)" if name == "overhead" else name.replace("_", " ")


def _loads(plan: Plan, model: CostModel) -> Chart:
    """How long each rank is busy in each stage: for its tables, beyond what it takes without any; and in all."""
    whole = np.array([[rank.seconds.get(name, 0.0) for name in model.stages] for rank in plan.ranks])  # [W, S]
    nothing = model.linearised_at(placed_shards(plan)).evaluate_nothing().rank_stage_seconds
    views = [_loads_view(plan, model, "in all", whole)]
    note = "A stage lasts as long as its busiest rank, so the step is no less than the highest bar."
    if model.quantity != "step":
        note = "The rating is that of the busiest rank."
    elif (added := np.maximum(whole - nothing, 0.0)).any():
        views.insert(0, _loads_view(plan, model, "for tables", added))
        note += " For tables: without what a stage takes on each rank whatever is placed."
    return Chart("ranks", "Load of each rank", tuple(views), note)


def _loads_view(plan: Plan, model: CostModel, label: str, seconds: Floats) -> View:
    """These `seconds` [W, S]."""
    shown = np.flatnonzero(seconds.any(axis=0)).tolist()
    names, totals = [model.stages[s] for s in shown], seconds.sum(axis=1).tolist()
    scale = _scale(totals, model)
    data = []
    for s, name, colour in zip(shown, names, colours(names, STAGE_COLOURS), strict=True):
        hover_texts = [
            hover(
                f"rank {rank.rank:,} on node {rank.node:,}",
                {_words(name): scale.text(value), label: scale.text(total)},
            )
            for rank, value, total in zip(plan.ranks, seconds[:, s].tolist(), totals, strict=True)
        ]
        data.append(_by_rank(plan, _words(name), (seconds[:, s] / scale.divisor).tolist(), colour, hover_texts))
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


def _memory(plan: Plan, model: CostModel) -> Chart:
    """The bytes of each memory, by the ranks or nodes that own it, against what is usable."""
    views = []
    for tier, pool in zip(model.memories, model.memory_pool_of_rank, strict=True):
        first = np.unique(pool, return_index=True)[1]
        room = np.array([getattr(plan.ranks[rank].capacity, tier) for rank in first], dtype=float)
        if not room.any():
            continue
        taken = np.bincount(pool, weights=[getattr(rank.bytes, tier) for rank in plan.ranks])
        views.append(_memory_view(tier, "rank" if len(first) == len(pool) else SHARED_BY[tier], taken, room))
    return Chart("memory", "Memory", tuple(views), "Pale: usable, after the reserve.")


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


def _counts(plan: Plan) -> Table:
    """How many tables there are of each sharding and tier."""
    tables = Counter((table.sharding, table.tier) for table in plan.tables)
    rows = []
    for (sharding, tier), count in tables.items():
        own = [table for table in plan.tables if (table.sharding, table.tier) == (sharding, tier)]
        size = float(sum(table.shards.bytes.sum() for table in own))
        rows.append((sharding, tier, count, sum(len(table.shards) for table in own), size))
    frame = pd.DataFrame(rows, columns=["sharding", "tier", "tables", "shards", "bytes"])
    columns = [PageColumn(name, name) for name in ("sharding", "tier", "tables", "shards")]
    frame = frame.sort_values("bytes", ascending=False, kind="stable")
    return Table("counts", "Shardings and tiers", frame, [*columns, PageColumn("bytes", "size", "B")])


def _tables(plan: Plan) -> Table:
    """How each table is held; the largest, where they are very many."""
    rows: list[Json] = []
    for table in plan.tables:
        size = table.shards.bytes.sum(axis=0)
        places = np.unique(table.shards.rank)
        rows.append(
            {
                "table": table.name,
                "sharding": table.sharding,
                "tier": table.tier,
                "dtype": table.dtype,
                "cache": table.cache_fraction if table.cache_fraction is not None else np.nan,
                "hot_rows": table.remap.hot_rows if table.remap is not None else np.nan,
                "shards": len(table.shards),
                "ranks": len(places),
                "on": _span(places.tolist()),
                **{tier: float(size[m]) for m, tier in enumerate(MEMORY_TIERS)},
            }
        )
    frame = pd.DataFrame(rows)
    total = frame[list(MEMORY_TIERS)].sum(axis=1)
    note = f"A click on a heading sorts. In all {format_bytes(float(total.sum()))}."
    if len(frame) > MOST_TABLES:
        frame = frame.loc[total.sort_values(ascending=False, kind="stable").index[:MOST_TABLES]]
        note += f" The {MOST_TABLES:,} largest of {len(rows):,} tables."
    columns = [PageColumn(name, name) for name in ("table", "sharding", "tier", "dtype", "shards", "ranks", "on")]
    columns += [PageColumn("cache", "cached rows", "share")] if frame["cache"].notna().any() else []
    columns += [PageColumn("hot_rows", "hot rows")] if frame["hot_rows"].notna().any() else []
    columns += [PageColumn(tier, tier.upper(), "B") for tier in MEMORY_TIERS if frame[tier].any()]
    return Table("tables", "Tables", frame, columns, note)


def _span(ranks: list[int]) -> str:
    """Ranks for people: `0–7`, `3, 5, 9`, `2, 4, … 31`."""
    if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    if len(ranks) > 4:
        return f"{ranks[0]}, {ranks[1]}, … {ranks[-1]}"
    return ", ".join(map(str, ranks))
