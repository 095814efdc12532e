"""The report of a plan: stages, the load of every rank, memory, and all tables."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS
from cost_models.step_costs import StepCosts
from planner.diagnosis.fixed_part import fixed_part
from planner.document.plan import Objective, Plan, StageTime
from planner.document.planned import placed_shards, planned_model
from planner.reports.dense_strategy import strategy_words
from planner.reports.pages.charts import Bars, Chart, Json, LeftOut, View, bars, hover
from planner.reports.pages.memory_course import course_charts
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.palette import INK, STAGE_COLOURS, colours
from planner.reports.pages.plan_cluster import cluster
from planner.reports.pages.plan_ranks import loads, memory, stage_words
from planner.reports.pages.plan_tables import top_tables, treemap
from planner.reports.pages.plan_timeline import timeline
from planner.reports.replicas import groups_words
from planner.reports.words import (
    drift_words,
    fixed_words,
    floor_words,
    remainder_words,
    roots_words,
    words_beyond,
)
from planner.studies.scales import Scale, scale_of
from planner.verification.simulation import simulate_plan
from topologies.sentences import counted
from topologies.units import format_bytes

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
            *(f"Warning: {warning}." for warning in (*plan.provenance.warnings, drift_words(plan)) if warning),
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
        charts=_charts(plan, plan.objective, model),
        tables=[_counts(plan), _tables(plan)],
    )


def _charts(plan: Plan, objective: Objective, model: CostModel) -> list[Chart | LeftOut]:
    """From top to bottom: the step, the ranks, the tables."""
    linearised = model.linearised_at(placed_shards(plan))
    simulation = simulate_plan(plan)
    return [
        *_stages(plan, objective, model),
        timeline(simulation),
        cluster(simulation),
        loads(plan, linearised),
        memory(plan, model),
        *course_charts(plan),
        treemap(plan),
        top_tables(plan, linearised),
    ]


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
    if (of_floor := floor_words(plan, model)) is not None:
        facts.append(f"{of_floor}.")
    facts.extend(words_beyond(plan, model))
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
        [hover(stage_words(stage.name), _stage_facts(stage, objective, scale)) for stage in shown],
        [f"{stage.seconds / objective.step_s:.0%}" for stage in shown],
    )
    data, drawn = bars([stage_words(stage.name) for stage in shown], [series], f"time ({scale.unit})")
    above = [(bar.high_s - stage.seconds) / scale.divisor if (bar := stage.error_bar) else 0 for stage in shown]
    below = [(stage.seconds - bar.low_s) / scale.divisor if (bar := stage.error_bar) else 0 for stage in shown]
    note = "Share of the step in the bars."
    if any(above):
        band = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        data[0]["error_x"] = band | {"color": INK, "thickness": 1, "width": 4}
        data[0] |= {"textposition": "inside", "insidetextanchor": "start"}
        note += " Lines: 90% bands."
    if model.hidden:
        hidden = ", ".join(
            f"{stage_words(name)} ({remainder_words(model, name, stage_words)})" for name in model.hidden
        )
        note += f" Hidden: {hidden}."
    longest = max(shown, key=lambda stage: stage.seconds)
    words = f"Longest: {stage_words(longest.name)}, {longest.seconds / objective.step_s:.0%} of the step."
    return [Chart("stages", title, (View("", data, drawn),), note, words)]


def _stage_facts(stage: StageTime, objective: Objective, scale: Scale) -> dict[str, str]:
    facts = {"time": f"{scale.text(stage.seconds)}, {stage.seconds / objective.step_s:.1%} of the step"}
    if bar := stage.error_bar:
        facts["90% band"] = f"{scale.text(bar.low_s)} to {scale.text(bar.high_s)}"
    if stage.critical_rank is not None:
        facts["longest on rank"] = f"{stage.critical_rank:,}"
    return facts


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
