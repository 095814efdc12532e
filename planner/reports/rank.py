"""One rank of a plan: what it does in each stage, what it holds, and what it has room for."""

from typing import TYPE_CHECKING

from cost_models.evaluation import ROUNDING
from cost_models.model import CostModel
from cost_models.shards import MEMORIES
from planner.diagnosis.reasons import HeldShard, RankReasons, RankStage
from planner.reports import memory
from planner.reports.tables import TextGrid
from planner.reports.words import FIXED, amount, remainder_words, resource_words
from topologies.sentences import counted
from topologies.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | int | float | None
SHOWN = 20
"""Shards in a table; all are in JSON and CSV."""
KEPT = 10
"""Contributors of a stage in JSON."""


def render(reasons: RankReasons, console: "Console") -> None:
    """Print in words what the rank waits for and what waits for it, then its stages, shards and memory."""
    model = reasons.model
    console.print(_words(reasons))
    console.print()
    stages = TextGrid(
        ("stage", "left"), ("this rank", "right"), ("slowest", "right"), ("waits for", "left"), ("most for", "left")
    )
    for stage in reasons.stages:
        resource = (
            "fixed cost" if stage.resource is None else resource_words(stage.resource, model.topology, model.workload)
        )
        most = stage.contributors[0].table or FIXED if stage.contributors else ""
        stages.add_row(stage.name, amount(stage.seconds, model), amount(stage.stage_s, model), resource, most)
    for name in model.hidden:
        stages.add_row(name, "hidden", "", remainder_words(model, name), "")
    console.print(stages)
    console.print()
    _render_shards(reasons, console)
    console.print()
    memory.render(_memory(reasons), console, of=f"rank {reasons.rank}")


def _words(reasons: RankReasons) -> str:
    model, rank = reasons.model, reasons.rank
    group = model.topology.nodes[int(model.kind_of_rank[rank])]
    words = f"Rank {rank} is on node {model.host_of_rank[rank]} ({group.name})."
    slowest = [stage.name for stage in reasons.stages if stage.resource is not None and _waits_s(stage) == 0]
    words += f" The others wait for it, or take as long, in {', '.join(slowest)}." if slowest else ""
    longest = max(reasons.stages, key=_waits_s)
    if (waits_s := _waits_s(longest)) > 0:
        words += f" It waits for others longest in {longest.name}, {amount(waits_s, model)}."
    free = next(record for record in _memory(reasons) if record["part"] == "free")
    sizes = [(tier, free[f"{tier}_bytes"]) for tier in model.memories]
    rooms = [f"{format_bytes(float(size or 0))} of {MEMORIES[tier].label}" for tier, size in sizes if size]
    return f"{words} Free: {', '.join(rooms) or 'nothing'}."


def _waits_s(stage: RankStage) -> float:
    """How long the rank waits in a stage; 0 where only rounding says that it does."""
    waits_s = stage.stage_s - stage.seconds
    return waits_s if waits_s > ROUNDING * stage.stage_s else 0.0


def _render_shards(reasons: RankReasons, console: "Console") -> None:
    if not reasons.shards:
        console.print("It holds no table.")
        return
    table = TextGrid(("table", "left"), ("held", "left"), ("rows", "right"), ("columns", "right"), ("bytes", "right"))
    largest = sorted(reasons.shards, key=lambda held: -int(held.table.shards.bytes[held.number].sum()))
    for held in largest[:SHOWN]:
        record = _shard(held, reasons.model)
        size = format_bytes(float(held.table.shards.bytes[held.number].sum()))
        how = f"{record['sharding']} in {record['tier']}"
        table.add_row(held.table.name, how, f"{record['rows']:,}", f"{record['columns']:,}", size)
    if rest := largest[SHOWN:]:
        size = format_bytes(float(sum(int(held.table.shards.bytes[held.number].sum()) for held in rest)))
        table.add_row(f"{counted(len(rest), 'more shard')}", "", "", "", size)
    console.print(table)


def _shard(held: HeldShard, model: CostModel) -> dict[str, Cell]:
    shards, n = held.table.shards, held.number
    return {
        "table": held.table.name,
        "sharding": held.table.sharding,
        "tier": held.table.tier,
        "row_start": int(shards.row_start[n]),
        "rows": int(shards.rows[n]),
        "column_start": int(shards.column_start[n]),
        "columns": int(shards.columns[n]),
        **{f"{tier}_bytes": int(shards.bytes[n, m]) for m, tier in enumerate(MEMORIES) if tier in model.memories},
    }


def _memory(reasons: RankReasons) -> list[memory.Record]:
    return memory.of_rank(reasons.model, reasons.placed, reasons.rank, reasons.rank_bytes)


def records(reasons: RankReasons) -> list[dict[str, Cell]]:
    """One record for each shard of the rank."""
    return [_shard(held, reasons.model) for held in reasons.shards]


def document(reasons: RankReasons) -> dict[str, object]:
    """The rank as plain data."""
    model, rank = reasons.model, reasons.rank
    return {
        "rank": rank,
        "node": int(model.host_of_rank[rank]),
        "group": model.topology.nodes[int(model.kind_of_rank[rank])].name,
        "stages": [
            {
                "name": stage.name,
                "seconds": stage.seconds,
                "slowest_s": stage.stage_s,
                "resource": None if stage.resource is None else str(stage.resource),
                "constant_s": stage.constant_s,
                "hidden_s": stage.hidden_s,
                "contributors": [{"table": part.table, "seconds": part.seconds} for part in stage.contributors[:KEPT]],
            }
            for stage in reasons.stages
        ],
        "hidden": dict(model.hidden),
        "shards": records(reasons),
        "memory": _memory(reasons),
    }
