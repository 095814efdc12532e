"""The summary of a plan: step, bound, stages, memory, where the tables went, what would help; 80 columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost_models.ingestion import ingestion_needs
from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, SHARED_BY, PlacedShards
from planner.diagnosis.fixed_part import fixed_part
from planner.diagnosis.sensitivity import deduplication, describe, gains
from planner.document.migration import is_limit_too_small
from planner.document.moves import Moves
from planner.document.plan import Objective, Plan
from planner.document.planned import placed_shards, planned_model
from planner.document.reasons import Infeasibility, Remedy, TableDemand
from planner.reports.dense_strategy import render_dense
from planner.reports.goals import render_goals
from planner.reports.replicas import render_replicas
from planner.reports.robustness import render_robustness
from planner.reports.tables import TextGrid
from planner.reports.words import (
    amount,
    crowded,
    fixed_words,
    ingestion_words,
    mixed_words,
    remainder_words,
    render_beyond,
    render_drift,
    render_error_bar,
    render_floor,
    render_roots,
    render_warnings,
    resource_words,
)
from topologies.sentences import counted
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def render(plan: Plan, console: "Console") -> None:
    """Print the summary of a plan, or why there is none."""
    model = planned_model(plan)
    topology, workload = model.cluster, model.stated_workload
    ranks, nodes = topology.world_size, topology.node_count
    tables = counted(len(workload.tables), "table")
    cluster = f"{topology.name}: {tables}, {counted(ranks, 'rank')} on {counted(nodes, 'node')}"
    console.print(f"{workload.name} on {cluster}, {counted(workload.batch(ranks), 'sample')} a step")
    console.print()
    render_warnings(plan, console)
    if plan.objective is None:
        _render_no_plan(plan, console)
        return
    placed = placed_shards(plan)
    binding = model.evaluate(placed).binding
    _render_objective(plan, plan.objective, model, console)
    render_beyond(plan, model, console)
    render_error_bar(plan.objective, console)
    if plan.replicas is not None:
        render_replicas(plan, plan.replicas, console)
    render_dense(plan, model, console)
    if plan.robust is not None:
        render_robustness(plan.robust, console)
    render_goals(plan.goals, console)
    if model.quantity == "step":
        words = [
            "fixed cost" if resource is None else resource_words(resource, topology, model.workload)
            for resource in binding
        ]
        console.print(_stage_table(plan, model, words))
        console.print()
    console.print(_memory_table(plan, model))
    console.print()
    if (fullest := crowded(plan)) is not None:
        console.print(fullest)
        console.print()
    console.print(_placement_table(plan))
    console.print()
    _render_formats(plan, model, placed, console)
    if plan.moves is not None:
        _render_moves(plan.moves, plan, console)
    console.print(describe(gains(model, placed), topology, model.quantity))
    if model.quantity == "step" and (saved := deduplication(model, placed)) is not None:
        console.print(
            f"Deduplication saves {saved.lookups:.0%} of the lookups and ids, {saved.vectors:.0%} of the vectors"
            f" and {saved.step:.1%} of the step (without it {format_seconds(saved.step_s)}, placed like this)."
        )
    _render_ingestion(plan, plan.objective, model, console)
    kinds = ", ".join(f"{count} {kind}" for kind, count in plan.provenance.coefficients.kinds.items())
    if model.quantity == "step":
        console.print(
            f"Times are estimates of the {model.name} cost model for software {workload.software},"
            f" from {kinds} coefficients."
        )
    else:
        console.print(f"The rating is that of {model.name}'s own planner, from {kinds} coefficients.")
        console.print("It says what that planner would prefer; --cost-model physical estimates the step.")


def _render_formats(plan: Plan, model: CostModel, placed: PlacedShards, console: "Console") -> None:
    """Formats other than the workload's, optimizer state apart from its rows, caches of full precision."""
    workload = model.workload
    if any(table.dtype != workload.dtype_of(of) for table, of in zip(plan.tables, workload.tables, strict=True)):
        formats = Counter(table.dtype for table in plan.tables).most_common()
        stored = ", ".join(f"{dtype}: {counted(count, 'table')}" for dtype, count in formats)
        console.print(f"Stored as {stored}.")
    if plan.quality is not None:
        variants = Counter(str(table.variant) for table in plan.tables).most_common()
        became = ", ".join(f"{word}: {counted(count, 'table')}" for word, count in variants)
        quality = plan.quality
        console.print(f"Variants: {became}. They lose {quality.loss:.6g} of a budget of {quality.budget:.6g}.")
    elif workload.is_compressed:
        smaller = [str(each) for each in workload.compressors if each.kind != "none"]
        became = ", ".join(f"{word}: {counted(count, 'table')}" for word, count in Counter(smaller).most_common())
        console.print(f"Compressed as {became}; {workload.embedding_parameters:,} parameters of embeddings.")
    apart = Counter(table.optimizer_state for table in plan.tables if table.optimizer_state != "with_table")
    for place, count in apart.most_common():
        console.print(f"Optimizer state of {counted(count, 'table')} is in {place}, apart from the rows.")
    if model.chooses_dtypes and (beside := mixed_words(model, placed)) is not None:
        console.print(beside)


def _render_ingestion(plan: Plan, objective: Objective, model: CostModel, console: "Console") -> None:
    """What its samples need on their way, where the workload describes that."""
    topology, workload = model.cluster, model.stated_workload
    if model.quantity != "step":
        return
    needs = ingestion_needs(workload, workload.batch(topology.world_size) / (plan.simulated or objective).step_s)
    if needs is not None:
        console.print(f"Samples come {ingestion_words(needs, topology.node_count)}.")


def _render_objective(plan: Plan, objective: Objective, model: CostModel, console: "Console") -> None:
    lines = TextGrid(("", "left"), ("", "right"), ("", "left"))
    lines.show_header = False
    samples = model.stated_workload.batch(model.cluster.world_size)
    rate = f"{samples / objective.step_s:,.0f} samples/s" if model.quantity == "step" else "on the busiest rank"
    lines.add_row(model.quantity, amount(objective.step_s, model), rate)
    better = "faster" if model.quantity == "step" else "lower"
    groups = " in these groups" if plan.replicas is not None and plan.replicas.others else ""
    words = f"gap {objective.gap:.2%}: no plan of the option space is {better}{groups}"
    if plan.status == "optimal":
        words = f"proven optimal in the option space{groups}"
    lines.add_row("bound", amount(objective.lower_bound_s, model), words)
    if (word_s := objective.solver_bound_s) is not None:
        share = objective.step_s / word_s - 1
        lines.add_row("solver's", amount(word_s, model), f"gap {share:.2%}: by a solver's word, without a proof")
    if (fixed := fixed_part(objective, model)) is not None:
        lines.add_row("fixed", amount(fixed.seconds, model), fixed_words(fixed))
    if plan.simulated is not None:
        simulated = plan.simulated
        shown = f"{simulated.exposed_comm_fraction:.0%} of it exposed communication"
        if model.quantity == "step":
            shown = f"{simulated.step_s / objective.step_s - 1:+.1%} of the estimate, {shown}"
        lines.add_row("simulated", format_seconds(simulated.step_s), shown)
    console.print(lines)
    render_floor(plan, model, console)
    render_roots(objective, model, console)
    for sentence in _how_it_ended(plan, objective, model):
        console.print(sentence)
    console.print()
    render_drift(plan, console)
    console.print(_option_space(plan, objective))
    console.print()


def _option_space(plan: Plan, objective: Objective) -> str:
    """What the bound is over, in a sentence or two."""
    sentence = f"Option space of the bound: {plan.provenance.cuts.words}"
    if any(table.cache_fraction is not None for table in plan.tables) or plan.provenance.cache_fractions:
        sentence += "; a few cache sizes of each table"
    sentence += "."
    if objective.outside:
        names = ", ".join(objective.outside[:3]) + ", …" * (len(objective.outside) > 3)
        count = len(objective.outside)
        sentence += f" This plan holds {count:,} table{'s' * (count > 1)} in ways outside it ({names})."
    return sentence


def _how_it_ended(plan: Plan, objective: Objective, model: CostModel) -> Iterator[str]:
    """Whether a clock ended the search, and what was given up of the best step found."""
    if (exchange := _exchange(plan)) is not None:
        yield exchange
    ended = plan.provenance.ended_by_time
    if ended:
        yield f"a time limit ended the {' and the '.join(ended)}; repeats may differ"
    if objective.given_up_s and objective.best_step_s:
        what = "fewer moved bytes" if plan.moves is not None else "emptier ranks and tables in fewer blocks"
        what = "the other goals" if plan.goals else what
        share = objective.given_up_s / objective.best_step_s
        yield f"{share:.3%} of the best {model.quantity} found was given up for {what}"


def _exchange(plan: Plan) -> str | None:
    """How vectors are exchanged, where that is not as in any plan."""
    origin, other = plan.provenance, plan.other_exchange
    if other is not None:
        return (
            f"Vectors are exchanged {origin.exchange} (auto): the best plan found under {other.exchange} takes"
            f" {format_seconds(other.step_s)}, bound {format_seconds(other.lower_bound_s)}."
        )
    return None if origin.policy.exchange == "flat" else f"Vectors are exchanged {origin.exchange}."


def _stage_table(plan: Plan, model: CostModel, binding: list[str]) -> TextGrid:
    assert plan.objective is not None
    table = TextGrid(
        ("stage", "left"),
        ("time", "right"),
        ("90 %", "right"),
        ("share", "right"),
        ("rank", "right"),
        ("bound by", "left"),
    )
    for stage, words in zip(plan.stages, binding, strict=True):
        if not stage.seconds:
            continue
        rank = "" if stage.critical_rank is None else str(stage.critical_rank)
        share = f"{stage.seconds / plan.objective.step_s:.1%}"
        bar = stage.error_bar
        factor = "" if bar is None or not stage.seconds else f"±{bar.high_s / stage.seconds - 1:.0%}"
        table.add_row(stage.name, format_seconds(stage.seconds), factor, share, rank, words)
    for name in model.hidden:
        table.add_row(name, "hidden", "", "", "", remainder_words(model, name))
    return table


def _memory_table(plan: Plan, model: CostModel) -> TextGrid:
    table = TextGrid(
        ("memory", "left"),
        ("of each", "left"),
        ("mean", "right"),
        ("fullest", "right"),
        ("usable", "right"),
        ("", "right"),
    )
    for tier, pool in zip(model.memories, model.memory_pool_of_rank, strict=True):
        taken = np.bincount(pool, weights=[rank.bytes[tier] for rank in plan.ranks])
        capacity = np.array([rank.capacity[tier] for rank in plan.ranks], dtype=float)
        capacity = capacity[np.unique(pool, return_index=True)[1]]
        is_there = capacity > 0
        if not is_there.any():
            continue
        taken, capacity = taken[is_there], capacity[is_there]
        full = int((taken / capacity).argmax())
        table.add_row(
            tier,
            "rank" if len(is_there) == len(pool) else SHARED_BY[tier],
            format_bytes(float(taken.mean())),
            format_bytes(float(taken[full])),
            format_bytes(float(capacity[full])),
            f"{taken[full] / capacity[full]:.0%}",
        )
    return table


def _render_moves(moves: Moves, plan: Plan, console: "Console") -> None:
    """What moves, by the memory that it goes to; and who is busiest with it."""
    tiers = [tier for tier in MEMORY_TIERS if any(rank.capacity[tier] for rank in plan.ranks)]
    table = TextGrid(("weights and state", "left"), ("in all", "right"), *((tier, "right") for tier in tiers))
    rows = [("moved between ranks", moves.moved), ("copied within hosts", moves.copied), ("new", moves.new)]
    for name, size in rows:
        sizes = [size[tier] for tier in tiers]
        if any(sizes) or size is moves.moved:
            table.add_row(name, format_bytes(sum(sizes)), *(format_bytes(part) if part else "" for part in sizes))
    console.print(table)
    console.print()
    words = []
    if moves.busiest_in is not None and moves.busiest_out is not None:
        words.append(
            f"Moves affect {counted(moves.tables, 'table')} and {counted(moves.shards, 'shard')};"
            f" rank {moves.busiest_in.rank} receives the most ({format_bytes(moves.busiest_in.bytes)}),"
            f" former rank {moves.busiest_out.rank} sends the most ({format_bytes(moves.busiest_out.bytes)})."
        )
    elif moves.moved_bytes:
        words.append(f"Moves affect {counted(moves.tables, 'table')} and {counted(moves.shards, 'shard')}.")
    if moves.lost_bytes:
        words.append(f"{format_bytes(moves.lost_bytes)} were on nodes that are gone and come from a checkpoint.")
    words.append(f"No plan moves less than {format_bytes(moves.least_bytes)}; {_terms(moves)}.")
    if groups := _in_each_group(plan):
        words.append(f"All of this is{groups}.")
    words.append("The bound covers all plans, whatever they move.")
    console.print(" ".join(words))
    console.print()


def _terms(moves: Moves) -> str:
    terms = []
    if moves.limit_bytes is not None:
        terms.append(f"the limit is {format_bytes(moves.limit_bytes)}")
    if moves.pay_back_steps is not None:
        terms.append(f"a move must pay for itself within {counted(moves.pay_back_steps, 'step')}")
    return " and ".join(terms) or "moves are not priced"


def _placement_table(plan: Plan) -> TextGrid:
    count = Counter((table.sharding, table.tier) for table in plan.tables)
    tiers = [tier for tier in PLACEMENT_TIERS if any(key[1] == tier for key in count)]
    table = TextGrid(("tables", "left"), *((tier, "right") for tier in tiers), ("shards", "right"))
    for sharding in SHARDINGS:
        cells = [count[sharding, tier] for tier in tiers]
        shards = sum(len(planned.shards) for planned in plan.tables if planned.sharding == sharding)
        if any(cells):
            table.add_row(sharding, *(f"{cell:,}" if cell else "" for cell in cells), f"{shards:,}")
    return table


def _render_no_plan(plan: Plan, console: "Console") -> None:
    if plan.moves is not None and plan.moves.limit_bytes is not None and plan.status == "timeout":
        _render_too_few_moves(plan.moves, _in_each_group(plan), console)
    elif is_limit_too_small(plan) and plan.infeasibility is not None:
        _render_infeasible(plan.infeasibility, console)
        console.print("Allow more (--max-move), or give a price instead (--pay-back).")
    elif plan.infeasibility is not None:
        _render_infeasible(plan.infeasibility, console)
        _render_remedies(plan.infeasibility.remedies, console)
        if plan.replicas is not None and plan.replicas.factor > 1:
            console.print(
                f"Each of {plan.replicas.factor} groups of ranks has all tables; fewer take less (--replicas)."
            )
        if plan.replicas is not None and plan.replicas.rules:
            console.print("Rules of replicas give tables more copies; fewer take less.")
    elif plan.unplaced is not None:
        console.print(f"No plan was found: {plan.unplaced.summary}.")
        if plan.provenance.ended_by_time:
            console.print("A time limit ended the search; repeats may differ.")
        console.print("It is not proven that none exists; more time (--time-limit) may find one.")
        console.print()
        console.print(_blamed(plan.unplaced.tables))
        console.print()
        _render_remedies(plan.unplaced.remedies, console)


def _render_remedies(remedies: Sequence[Remedy], console: "Console") -> None:
    helpful = [remedy for remedy in remedies if remedy.flags is not None]
    if helpful:
        from rich.padding import Padding

        console.print("Any one of these changes alone makes the tables fit:")
        for remedy in helpful:
            console.print(Padding(remedy.words, (0, 0, 0, 2), expand=False))
            console.print(f"    {remedy.flags}", soft_wrap=True)
    futile = [remedy.words.partition(", where ") for remedy in remedies if remedy.flags is None]
    if futile and len(reasons := {reason for _, _, reason in futile}) == 1 and "" not in reasons:
        console.print(f"Not enough on its own, as {reasons.pop()}: {'; '.join(change for change, _, _ in futile)}.")
    elif futile:
        console.print(f"Not enough on its own: {'; '.join(''.join(parts) for parts in futile)}.")


def _in_each_group(plan: Plan) -> str:
    groups = 1 if plan.replicas is None else plan.replicas.factor
    return "" if groups == 1 else f" in each of {groups} groups"


def _render_too_few_moves(moves: Moves, where: str, console: "Console") -> None:
    limit = format_bytes(moves.limit_bytes or 0)
    if moves.found_bytes is None:
        console.print("No plan was found; it is not proven that none exists.")
    else:
        fewest, least = format_bytes(moves.found_bytes), format_bytes(moves.least_bytes)
        console.print(f"No plan was found that moves at most {limit}{where}; the smallest found moves {fewest}.")
        console.print(f"At least {least} must move, by proof; that the limit is too small is not proven.")
    console.print("Allow more (--max-move) or search longer (--effort, --time-limit).")


def _render_infeasible(reason: Infeasibility, console: "Console") -> None:
    console.print(f"There is no plan: {reason.summary}.")
    console.print()
    if any(tier.short_bytes is not None for tier in reason.tiers):
        table = TextGrid(
            ("memory", "left"), ("usable in all", "right"), ("short by at least, if only it grows", "right")
        )
        for tier in reason.tiers:
            short = "no amount suffices" if tier.short_bytes is None else format_bytes(tier.short_bytes)
            table.add_row(tier.tier, format_bytes(tier.capacity_bytes), short)
        console.print(table)
        console.print()
    if not reason.tables:
        return
    console.print(_blamed(reason.tables))
    console.print()


def _blamed(tables: Sequence[TableDemand]) -> TextGrid:
    blamed = TextGrid(("table", "left"), ("weights + state", "right"), ("", "left"))
    for demand in tables:
        blamed.add_row(demand.name, format_bytes(demand.bytes), demand.reason)
    return blamed
