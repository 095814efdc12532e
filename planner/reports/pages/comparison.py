"""The report of several plans: their steps and figures side by side, and of two the tables that differ."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
import pandas as pd

from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS
from planner.capacity.prices import PriceSheet, notes
from planner.document.plan import Plan
from planner.document.plan_differences import PlanDifference, plan_difference
from planner.document.planned import planned_inputs
from planner.reports import difference as words_of
from planner.reports.comparison import RATIO, Record, compare
from planner.reports.pages.charts import (
    Bars,
    Chart,
    Json,
    LeftOut,
    View,
    axis,
    bars,
    hover,
    layout,
    legend_px,
    line,
)
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.palette import MEMORY_COLOURS, PALE, SERIES, STAGE_COLOURS, colours
from planner.reports.pages.plan_ranks import stage_words
from planner.studies.scales import scale_of
from topologies.errors import InputError
from topologies.sentences import counted

FIGURES = {
    "samples_per_s": ("throughput", "samples/s"),
    "step_s": ("step", "s"),
    "gap": ("gap to the bound", "share"),
    "usd_per_billion_samples": ("USD per billion samples", "USD"),
    "joules_per_sample": ("energy per sample", "J"),
}
"""What is drawn of each plan, in words and in which unit; a rating has neither step nor throughput."""
COLUMNS = {
    "cluster": ("cluster", ""),
    "workload": ("workload", ""),
    "cost_model": ("cost model", ""),
    "nodes": ("nodes", ""),
    "ranks": ("ranks", ""),
    "status": ("status", ""),
    "lower_bound_s": ("lower bound", "s"),
    "rating": ("rating", ""),
    "simulated_step_s": ("simulated step", "s"),
    "usd_per_hour": ("price per hour", "USD/h"),
    "kilowatts": ("power", "kW"),
}
MOST_TOP, MOST_ROWS, MOST_POINTS = 20, 2000, 200


def comparison_page(plans: Mapping[str, Plan], sheet: PriceSheet | None = None) -> Page:
    """Plans of any clusters and workloads beside each other, by their names. Raises InputError as `compare` does."""
    records = compare(plans, sheet)
    difference = _difference(plans)
    charts: list[Chart | LeftOut | None] = [_steps(records), _figures(records), _memory(records), _counts(records)]
    charts += [_balance(plans), None if difference is None else _moved(difference)]
    tables = [_table(records)]
    if difference is not None and difference.tables:
        tables.append(_differing(difference))
    unknown = dict.fromkeys(note for plan in plans.values() for note in notes(planned_inputs(plan)[0], sheet))
    return Page(
        title=f"{' and '.join(plans)}" if len(plans) == 2 else f"{len(plans)} plans compared",
        description=f"{counted(len(plans), 'plan')} side by side; ratios are relative to {next(iter(plans))}",
        facts=[_fact(record) for record in records] + [f"Note: {note}" for note in unknown],
        findings=_findings(records, difference),
        charts=[chart for chart in charts if chart is not None],
        tables=tables,
    )


def _difference(plans: Mapping[str, Plan]) -> PlanDifference | None:
    """In what two plans of one workload differ; None for others."""
    if len(plans) != 2:
        return None
    (name, before), (_, after) = plans.items()
    try:
        return plan_difference(before, after, name)
    except InputError:  # they place nothing, or no table in common
        return None


def _fact(record: Record) -> str:
    words = f"{record['plan']}: {record['workload']} on {record['cluster']}, {record['ranks']:,} ranks; "
    step_s, speed, gap = (record.get(key) for key in ("step_s", "samples_per_s", "gap"))
    if not isinstance(step_s, float) or not isinstance(speed, float):
        return words + f"{record['status']}."
    above = f", gap {gap:.2%}" if isinstance(gap, float) else ""
    return words + f"step {scale_of([step_s], 's').text(step_s)}, {speed:,.0f} samples/s{above}."


def _findings(records: Sequence[Record], difference: PlanDifference | None) -> list[str]:
    found = []
    speeds = {str(each["plan"]): each["samples_per_s"] for each in records if each.get("samples_per_s")}
    if len(speeds) > 1:
        best = max(speeds, key=lambda name: float(speeds[name] or 0.0))
        ratio = next(each[f"samples_per_s{RATIO}"] for each in records if each["plan"] == best)
        against = "" if ratio is None or best == records[0]["plan"] else f", {ratio:.3f} times {records[0]['plan']}"
        found.append(f"Most samples/s: {best}{against}.")
    if difference is not None:
        said = words_of.headline(difference)
        found += [f"{said[0].upper()}{said[1:]}." for said in (said, *words_of.notes(difference))]
    return found


def _steps(records: Sequence[Record]) -> Chart | LeftOut:
    """The step of each plan, stage by stage: stacked, then side by side."""
    title = "Where the step goes"
    shown = [record for record in records if isinstance(record.get("step_s"), float)]
    keys = [key for key in records[0] if key.startswith("stage_") and any(record[key] for record in shown)]
    if not keys:
        return LeftOut(title, "no plan has a step")
    scale = scale_of([_number(record, "step_s") for record in shown], "s")
    stages = [key.removeprefix("stage_").removesuffix("_s") for key in keys]
    names = [str(record["plan"]) for record in shown]

    def series(of: str, label: str, rows: Sequence[Record], columns: Sequence[str], colour: str) -> Bars:
        seconds = [_number(row, column) for row, column in zip(rows, columns, strict=True)]
        said = [
            hover(
                f"{row['plan']}, {of}",
                {"time": scale.text(each), "of the step": f"{each / _number(row, 'step_s'):.1%}"},
            )
            for row, each in zip(rows, seconds, strict=True)
        ]
        return Bars(label, [each / scale.divisor for each in seconds], colour, said)

    stacked = [
        series(stage_words(stage), stage_words(stage), shown, [key] * len(shown), colour)
        for stage, key, colour in zip(stages, keys, colours(stages, STAGE_COLOURS), strict=True)
    ]
    beside = [
        series(name, name, [record] * len(keys), keys, colour)
        for name, record, colour in zip(names, shown, cycle(SERIES), strict=False)
    ]
    labels = [stage_words(stage) for stage in stages]
    views = [View("step", *bars(names, stacked, f"step ({scale.unit})"))]
    if len(shown) > 1:
        data, drawn = bars(labels, beside, f"time ({scale.unit})", stacked=False)
        views.append(View("stage by stage", data, drawn | {"height": 120 + (14 * len(shown) + 14) * len(keys)}))
    steps = ", ".join(f"{record['plan']} {scale.text(_number(record, 'step_s'))}" for record in shown)
    return Chart("stages", title, tuple(views), "", f"Steps: {steps}.")


def _number(record: Record, key: str) -> float:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def _figures(records: Sequence[Record]) -> Chart | LeftOut:
    """Throughput, step, gap, money and energy of each plan, where they are known."""
    names, views = [str(record["plan"]) for record in records], []
    for key, (words, unit) in FIGURES.items():
        known = [record.get(key) for record in records]
        if not any(isinstance(value, float) for value in known):
            continue
        scale = scale_of([value if isinstance(value, float) else None for value in known], unit)
        texts = [scale.text(value) if isinstance(value, float) else "unknown" for value in known]
        values = [value / scale.divisor if isinstance(value, float) else None for value in known]
        said = [hover(name, {words: text}) for name, text in zip(names, texts, strict=True)]
        drawn = Bars(words, values, SERIES[0], said, texts)
        views.append(View(scale.titled(words), *bars(names, [drawn], scale.titled(words))))
    if not views:
        return LeftOut("Figures", "no plan has a step")
    return Chart("figures", "Figures", tuple(views), "", f"{views[0].label}: {_said(views[0])}.")


def _said(view: View) -> str:
    """The bars of a view in words."""
    (data,) = view.data
    return ", ".join(
        f"{name} {text}" for name, text in zip(view.layout["yaxis"]["ticktext"], data["text"], strict=True)
    )


def _memory(records: Sequence[Record]) -> Chart | LeftOut:
    """What each plan takes of each memory, of what is usable."""
    names, views = [str(record["plan"]) for record in records], []
    for tier in MEMORY_TIERS:
        if not any(record.get(f"{tier}_used_bytes") for record in records):
            continue
        used, room = ([_number(record, f"{tier}_{what}_bytes") for record in records] for what in ("used", "capacity"))
        scale = scale_of([*room, *used], "B")
        shares = [f"{taken / of:.0%}" if of else "" for taken, of in zip(used, room, strict=True)]
        said = [
            hover(
                name,
                {
                    "used": f"{scale.text(taken)} of {scale.text(of)}",
                    "fullest": f"{_number(record, f'{tier}_fullest'):.0%}",
                },
            )
            for name, record, taken, of in zip(names, records, used, room, strict=True)
        ]
        series = [
            Bars("usable", [of / scale.divisor for of in room], PALE, said, (), 0.8),
            Bars("used", [taken / scale.divisor for taken in used], MEMORY_COLOURS[tier], said, shares, 0.5),
        ]
        data, drawn = bars(names, series, scale.titled(tier.upper()))
        views.append(View(tier.upper(), data, drawn | {"barmode": "overlay"}))
    if not views:
        return LeftOut("Memory", "no plan takes any")
    words = "; ".join(f"{record['plan']}: fullest {_number(record, 'hbm_fullest'):.0%} of HBM" for record in records)
    note = "Over the cluster. Pale: usable, after the reserve; in the bars: how much of it is used."
    return Chart("memory", "Memory", tuple(views), note, f"{words}.")


def _counts(records: Sequence[Record]) -> Chart | None:
    """How many tables each plan holds in each way."""
    names, views = [str(record["plan"]) for record in records], []
    for label, kinds in (("by sharding", SHARDINGS), ("by tier", PLACEMENT_TIERS)):
        used = [kind for kind in kinds if any(record.get(f"tables_{kind}") for record in records)]
        series = [
            Bars(
                kind,
                [_number(record, f"tables_{kind}") for record in records],
                colour,
                [
                    hover(name, {kind: counted(int(_number(record, f"tables_{kind}")), "table")})
                    for name, record in zip(names, records, strict=True)
                ],
            )
            for kind, colour in zip(used, cycle(SERIES), strict=False)
        ]
        if series:
            data, drawn = bars(names, series, "tables")
            views.append(View(label, data, drawn | {"showlegend": True}))
    words = "; ".join(
        f"{record['plan']}: "
        + ", ".join(f"{record[f'tables_{kind}']} {kind}" for kind in SHARDINGS if record.get(f"tables_{kind}"))
        for record in records
    )
    return Chart("tables-by-kind", "Tables by sharding and tier", tuple(views), "", f"{words}.") if views else None


def _balance(plans: Mapping[str, Plan]) -> Chart | None:
    """How far the ranks of each plan are from its mean rank, the busiest first."""
    data: list[Json] = []
    said = []
    for (name, plan), colour in zip(plans.items(), cycle(SERIES), strict=False):
        busy = np.array(sorted((sum(rank.seconds.values()) for rank in plan.ranks), reverse=True))
        if not len(busy) or not busy.sum():
            continue
        kept = np.unique(np.linspace(0, len(busy) - 1, min(len(busy), MOST_POINTS)).round().astype(int))
        x = (100 * kept / max(len(busy) - 1, 1)).round(3).tolist()
        y = (100 * (busy[kept] / busy.mean() - 1)).round(5).tolist()
        texts = [hover(name, {"rank by load": f"{each + 1:,} of {len(busy):,}", "against the mean": f"{away:+.2f}%"})
                 for each, away in zip(kept.tolist(), y, strict=True)]  # fmt: skip
        data.append(line(name, x, y, colour, texts) | {"mode": "lines"})
        said.append(f"{name} {y[0]:+.2f}% to {y[-1]:+.2f}%")
    if not data:
        return None
    drawn = layout(
        380 + legend_px(list(plans)),
        margin={"l": 56, "r": 36, "t": 24, "b": 48},
        showlegend=True,
        xaxis=axis("ranks, the busiest first", ticksuffix="%", range=[0, 100]),
        yaxis=axis("busy, against the mean", ticksuffix="%", zeroline=True),
    )
    words = f"Busiest to least busy rank against the mean: {'; '.join(said)}."
    return Chart("balance", "Balance of ranks", (View("", data, drawn),), "The flatter, the better balanced.", words)


def _moved(difference: PlanDifference) -> Chart | None:
    """The tables into which most bytes move."""
    sizes = {str(each["table"]): int(each["moved_bytes"] or 0) for each in difference.tables}
    moved = [each for each in difference.tables if sizes[str(each["table"])]]
    top = sorted(moved, key=lambda each: -sizes[str(each["table"])])[:MOST_TOP]
    if not top:
        return None
    names = [str(each["table"]) for each in top]
    scale = scale_of([sizes[name] for name in names], "B")
    said = [
        hover(name, {"before": str(each["before"]), "after": str(each["after"]), "moves": scale.text(sizes[name])})
        for name, each in zip(names, top, strict=True)
    ]
    series = Bars("moves", [sizes[name] / scale.divisor for name in names], SERIES[0], said)
    note = "Into ranks that did not hold them."
    if len(top) < len(difference.tables):
        note += f" The {len(top)} of {len(difference.tables):,} differing tables into which most move."
    view = View("", *bars(names, [series], scale.titled("bytes that move")))
    words = f"Most move into {', '.join(names[:3])}."
    return Chart("moved", "Bytes that move", (view,), note, words)


def _table(records: Sequence[Record]) -> Table:
    """A row for each plan."""
    frame = pd.DataFrame(records)
    titles = {key: COLUMNS.get(key) or FIGURES[key] for key in (*list(COLUMNS)[:6], *FIGURES, *list(COLUMNS)[6:])}
    columns = [PageColumn(key, *title) for key, title in titles.items() if key in frame and frame[key].notna().any()]
    return Table("plans", "Plans", frame, [PageColumn("plan", "plan"), *columns], "A click on a heading sorts.")


def _differing(difference: PlanDifference) -> Table:
    frame = pd.DataFrame(difference.tables)
    note = "Sharding, tier and ranks of each table that differs."
    if len(frame) > MOST_ROWS:
        frame = frame.sort_values("moved_bytes", ascending=False, kind="stable").head(MOST_ROWS)
        note += f" The {MOST_ROWS:,} of {len(difference.tables):,} into which most bytes move."
    columns = [PageColumn(name, name) for name in ("table", "before", "after")]
    columns.append(PageColumn("moved_bytes", "moves", "B"))
    return Table("differing", "Tables that differ", frame, columns, note)
