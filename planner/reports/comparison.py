"""Plans side by side, of whatever clusters and workloads: steps, stages, memory, tables, money and energy."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost_models.registry import COST_MODELS
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, USUAL_SHARDINGS
from planner.capacity.prices import PriceSheet, bill
from planner.document.plan import Plan
from planner.document.planned import planned_inputs, planned_model
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | int | float | None
Record = dict[str, Cell]
Row = tuple[str, str, Callable[..., str]]

NAME_LENGTH = 13
FIGURES_LENGTH = 18
"""Characters of the words before each line of figures; numbers are rarely longer than names."""
UNKNOWN = "unknown"
RATIO = "_ratio"
"""Ends the name of a figure that is divided by that of the first plan."""
ALWAYS = frozenset(
    {"step_s", "gap", "samples_per_s", "usd_per_hour", "usd_per_billion_samples", "kilowatts", "joules_per_sample"}
)
"""Figures that are shown even where they are unknown for every plan."""
RATIOS = ("samples_per_s", "step_s", "usd_per_billion_samples", "joules_per_sample")


def record(name: str, plan: Plan, sheet: PriceSheet | None = None) -> Record:
    """The figures of one plan under its name; None for what is unknown or what it does not have. A stage that others
    hide has no seconds; `hidden_…` names the one in which the rest of it shows.

    Times in seconds. A plan of a cost model whose sum is no time has a `rating` instead of a step.
    """
    topology, workload = planned_inputs(plan)
    cost_model = plan.provenance.cost_model
    is_step = cost_model not in COST_MODELS or COST_MODELS[cost_model].quantity == "step"
    objective, simulated = plan.objective, plan.simulated
    step_s = objective.step_s if objective is not None and is_step else None
    samples = workload.batch(topology.world_size)
    speed = None if step_s is None else samples / step_s
    cost = bill(topology, sheet)
    figures: Record = {
        "plan": name,
        "cluster": topology.name,
        "workload": workload.name,
        "cost_model": cost_model,
        "nodes": topology.node_count,
        "ranks": topology.world_size,
        "tables": len(workload.tables),
        "samples_per_step": float(samples),
        "status": plan.status,
        "step_s": step_s,
        "lower_bound_s": objective.lower_bound_s if objective is not None and is_step else None,
        "rating": objective.step_s if objective is not None and not is_step else None,
        "gap": None if objective is None else objective.gap,
        "samples_per_s": speed,
        "simulated_step_s": None if simulated is None else simulated.step_s,
        "simulated_samples_per_s": None if simulated is None else simulated.samples_per_s,
        **cost.figures(speed),
    }
    figures |= {f"stage_{stage.name}_s": stage.seconds for stage in plan.stages if is_step}
    if is_step and plan.stages:
        figures |= {f"hidden_{name}": behind for name, behind in planned_model(plan).hidden.items()}
    return figures | _memory(plan) | _tables(plan)


def _memory(plan: Plan) -> Record:
    """Bytes in use and usable over the cluster, and how full the fullest rank or node is."""
    if not plan.ranks:
        return {}
    model, groups = planned_model(plan), 1 if plan.replicas is None else plan.replicas.factor
    figures: Record = {}
    for tier, pool in zip(model.memories, model.memory_pool_of_rank, strict=True):
        first = np.unique(pool, return_index=True)[1]
        room = np.array([plan.ranks[rank].capacity[tier] for rank in first], dtype=float) * groups
        taken = np.bincount(pool, weights=[rank.bytes[tier] for rank in plan.ranks]) * groups
        figures[f"{tier}_used_bytes"] = int(taken.sum())
        figures[f"{tier}_capacity_bytes"] = int(room.sum())
        figures[f"{tier}_fullest"] = float((taken / np.maximum(room, 1)).max())
    return figures


def _tables(plan: Plan) -> Record:
    """How many tables there are of each sharding, and in each tier."""
    shardings, tiers = Counter(table.sharding for table in plan.tables), Counter(table.tier for table in plan.tables)
    return {
        **{f"tables_{name}": shardings[name] for name in SHARDINGS if name in USUAL_SHARDINGS or shardings[name]},
        **{f"tables_{name}": tiers[name] for name in PLACEMENT_TIERS},
    }


def compare(plans: Mapping[str, Plan], sheet: PriceSheet | None = None) -> list[Record]:
    """A record for each plan, in their order, all with the same keys, and some figures divided by the first plan's."""
    records = [record(name, plan, sheet) for name, plan in plans.items()]
    keys = _in_order(records)
    filled = [
        {key: plan_record.get(key, 0 if key.startswith("tables_") else None) for key in keys} for plan_record in records
    ]
    for plan_record in filled:
        for key in RATIOS:
            own, first = plan_record[key], filled[0][key]
            is_known = isinstance(own, float) and isinstance(first, float) and first > 0
            plan_record[f"{key}{RATIO}"] = own / first if is_known else None  # type: ignore[operator]
    return filled


def _in_order(records: Iterable[Record]) -> list[str]:
    """The keys of all records: each after the one that it follows in its own."""
    keys: list[str] = []
    for plan_record in records:
        last = -1
        for key in plan_record:
            if key in keys:
                last = keys.index(key)
            else:
                last += 1
                keys.insert(last, key)
    return keys


def as_document(records: Sequence[Record]) -> dict[str, object]:
    """The comparison as plain data."""
    return {"kind": "comparison", "plans": [dict(plan_record) for plan_record in records]}


def render(records: Sequence[Record], notes: Iterable[str], console: "Console") -> None:
    """Print the plans as columns, at most so many abreast as fit, the first one always; then the notes."""
    names = _short_names(records)
    for short, plan_record in zip(names, records, strict=True):
        if short != plan_record["plan"]:
            console.print(f"{short}: {plan_record['plan']}", soft_wrap=True)
    if names != [plan_record["plan"] for plan_record in records]:
        console.print()
    others = list(range(1, len(records)))
    beside = max((console.width - FIGURES_LENGTH) // (NAME_LENGTH + 2) - 1, 1)
    for start in range(0, max(len(others), 1), beside):
        if start:
            console.print()
        shown = [0, *others[start : start + beside]]
        console.print(_table([names[n] for n in shown], [records[n] for n in shown]))
    for note in notes:
        console.print(note)


def _short_names(records: Sequence[Record]) -> list[str]:
    """Names that head a column: their own where these are short and different."""
    own = [str(plan_record["plan"]) for plan_record in records]
    if max(map(len, own)) <= NAME_LENGTH and len(set(own)) == len(own):
        return own
    return [f"plan {number}" for number in range(1, len(own) + 1)]


def _table(names: Sequence[str], records: Sequence[Record]) -> TextGrid:
    table = TextGrid(("", "left"), *((name, "right") for name in names))
    for number, block in enumerate(_blocks(records)):
        if number:
            table.add_row()
        for words, key, write in block:
            cells = [plan_record.get(key) for plan_record in records]
            if key in ALWAYS or any(cell not in (None, 0) for cell in cells):
                shown = zip(records, cells, strict=True)
                table.add_row(
                    words, *(_absent(plan_record, key) if cell is None else write(cell) for plan_record, cell in shown)
                )
    return table


def _blocks(records: Sequence[Record]) -> list[list[Row]]:
    """The lines of the table in blocks: words, key and format of each."""
    stages = [key for key in records[0] if key.startswith("stage_")]
    inputs: list[Row] = [
        ("cluster", "cluster", _fitted),
        ("workload", "workload", _fitted),
        ("cost model", "cost_model", _fitted),
        ("nodes", "nodes", _count),
        ("ranks", "ranks", _count),
        ("samples per step", "samples_per_step", _count),
        ("status", "status", _fitted),
    ]
    step: list[Row] = [
        ("step", "step_s", format_seconds),
        ("lower bound", "lower_bound_s", format_seconds),
        ("rating", "rating", lambda value: f"{value:,.3f}"),
        ("gap", "gap", lambda value: f"{value:.2%}"),
        ("simulated step", "simulated_step_s", format_seconds),
        ("samples/s", "samples_per_s", _count),
        ("  x the first", f"samples_per_s{RATIO}", _times),
    ]
    parts: list[Row] = [(key.removeprefix("stage_").removesuffix("_s"), key, format_seconds) for key in stages]
    memory_rows: list[Row] = []
    for tier in MEMORY_TIERS:
        if any(plan_record.get(f"{tier}_used_bytes") for plan_record in records):
            memory_rows.append((f"{tier} used", f"{tier}_used_bytes", format_bytes))
            memory_rows.append(("  usable", f"{tier}_capacity_bytes", format_bytes))
            memory_rows.append(("  fullest", f"{tier}_fullest", lambda value: f"{value:.0%}"))
    memory_rows.append(("tables", "tables", _count))
    memory_rows += [(f"  {name}", f"tables_{name}", _count) for name in (*SHARDINGS, *PLACEMENT_TIERS)]
    cost: list[Row] = [
        ("USD/h", "usd_per_hour", lambda value: f"{value:,.2f}"),
        ("USD/10^9 samples", "usd_per_billion_samples", lambda value: f"{value:,.4g}"),
        ("  x the first", f"usd_per_billion_samples{RATIO}", _times),
        ("kW", "kilowatts", lambda value: f"{value:,.4g}"),
        ("J/sample", "joules_per_sample", lambda value: f"{value:,.4g}"),
        ("  x the first", f"joules_per_sample{RATIO}", _times),
        ("kg CO2e/h", "kg_co2e_per_hour", lambda value: f"{value:,.4g}"),
        ("kg CO2e/10^9 samples", "kg_co2e_per_billion_samples", lambda value: f"{value:,.4g}"),
    ]
    return [block for block in (inputs, step, parts, memory_rows, cost) if block]


def _absent(of_plan: Record, key: str) -> str:
    """What is said in the place of a figure that a plan does not have."""
    stage = key.removeprefix("stage_").removesuffix("_s")
    hidden = of_plan.get(f"hidden_{stage}") if key.startswith("stage_") else None
    return UNKNOWN if hidden is None else f"in {hidden}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _times(value: float) -> str:
    return f"{value:.3f}"


def _fitted(text: str) -> str:
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"
