"""Why a plan is as it is, in tables of 80 columns."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cost_models.floor import HOST
from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, SHARED_BY
from cost_models.workload.table_names import are_named
from planner.diagnosis.exchanges import ExchangeReasons
from planner.diagnosis.fixed_part import OVERHEAD, FixedCost, fixed_part, fixed_seconds, host_beside
from planner.diagnosis.reasons import OptionReasons, PlanReasons, StageReasons, TableReasons
from planner.diagnosis.sensitivity import describe
from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas
from planner.planning.tower_modules import TowerModules
from planner.reports.dense_strategy import render_dense
from planner.reports.forbidden_ways import render_forbidden
from planner.reports.goals import render_goals
from planner.reports.network_sums import render_network_sums
from planner.reports.replicas import groups_words, render_choices
from planner.reports.robustness import render_tail
from planner.reports.tables import TextGrid
from planner.reports.words import (
    FIXED,
    amount,
    compressed_words,
    fixed_words,
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

SHOWN, KEPT = 3, 10
"""Contributors of a stage: in a table, and in JSON and CSV."""
OPTIONS = 6
"""Other options of a table that are shown."""
HIDDEN = "  (hidden behind other stages)"
SAME_FOR_ALL = "It is the host's time between kernels, one number for any device, batch, tables and placement."
BY_MODEL = "It is the host's time between kernels, for this model on any device, at any batch and placement."
BY_LAYERS = "It is the device's time, in the mean of all steps, for the layers of this model."
SHARED_OUT = "The host's parts are one fitted number, shared out as such parts were measured on a processor."
HOST_PART = "host: "
SORTING = "  of it, sorting its ids"
FEW_RANKS, FEW_TABLES = 8, 5
EVEN = 0.001
"""Difference, as a share, below which two options cost the same."""


def render_plan(
    plan: Plan,
    reasons: PlanReasons,
    console: "Console",
    others: Sequence[OtherReplicas] = (),
    modules: TowerModules | None = None,
) -> None:
    """Print what each stage waits for and its part of the bound, then what memory is worth and what would help; of
    groups of ranks, what `others` would be; and what `modules` in towers would save."""
    model = reasons.model
    _render_head(plan, model, console)
    if plan.replicas is not None:
        console.print(f"{groups_words(plan.replicas)}.")
        console.print()
        render_choices(plan, plan.replicas, others, console)
        console.print()
    render_dense(plan, model, console)
    render_tail(plan.robust, reasons.tail, console)
    render_goals(plan.goals, console)
    if reasons.exchange is not None:
        _render_exchange(plan, reasons.exchange, console)
    if modules is not None:
        console.print(
            f"With a module in each tower ({modules.words}) the step would be at most"
            f" {format_seconds(modules.step_s)}, by a plan that a short search finds: that changes the model."
        )
        console.print()
    table = TextGrid(("stage", "left"), ("time", "right"), ("bound", "right"), ("rank", "right"), ("bound by", "left"))
    for each in reasons.stages:
        rank = "" if each.stage.critical_rank is None else str(each.stage.critical_rank)
        bound = "" if each.bound_s is None else amount(each.bound_s, model)
        table.add_row(each.stage.name, amount(each.stage.seconds, model), bound, rank, _resource(each, model))
    for name in model.hidden:
        table.add_row(name, "hidden", "", "", remainder_words(model, name))
    if reasons.memory:
        table.add_row("memory", "", amount(reasons.memory_bound_s or 0.0, model), "", "price of scarce memory")
    if reasons.branching_bound_s:
        table.add_row("branching", "", amount(reasons.branching_bound_s, model), "", "whole blocks, times of stages")
    if reasons.other_protocols_s:
        less = amount(-reasons.other_protocols_s, model)
        table.add_row(*_elsewhere(plan, less))
    console.print(table)
    console.print()
    for each in reasons.stages:
        if each.contributors:
            render_contributors(each, model, console)
    render_network_sums(reasons.network_sums, model, console)
    for cost in reasons.fixed:
        _render_fixed(cost, model, console)
    _render_fixed_seconds(model, console)
    _render_memory(reasons, console)
    console.print(describe(list(reasons.gains), model.topology, model.quantity))


def _render_head(plan: Plan, model: CostModel, console: "Console") -> None:
    assert plan.objective is not None
    reached, bound = amount(plan.objective.step_s, model), amount(plan.objective.lower_bound_s, model)
    objective, gap = plan.objective, f"gap {plan.objective.gap:.2%}"
    console.print(f"{model.workload.name} on {model.topology.name}: {model.quantity} {reached}, bound {bound}, {gap}")
    if (fixed := fixed_part(objective, model)) is not None:
        console.print(f"Of it, {amount(fixed.seconds, model)} is {fixed_words(fixed)}.")
    render_floor(plan, model, console)
    render_roots(plan.objective, model, console)
    console.print()
    render_warnings(plan, console)
    render_drift(plan, console)
    render_beyond(plan, model, console)
    render_error_bar(plan.objective, console)


def _elsewhere(plan: Plan, less: str) -> tuple[str, str, str, str, str]:
    """The row of what other plans may take less, of which the bound is one, too."""
    other, objective = plan.other_exchange, plan.objective
    if other is not None and objective is not None and objective.lower_bound_s >= other.lower_bound_s:
        return "other exchange", "", f"-{less}", "", f"plans of the exchange {other.exchange}"
    return "other protocols", "", f"-{less}", "", "plans whose exchanges take these"


def _render_exchange(plan: Plan, reasons: ExchangeReasons, console: "Console") -> None:
    """Which exchange of vectors the plan has, why, and what it takes."""
    exchange, chosen = plan.provenance.exchange, " (auto)" if reasons.is_chosen else ""
    if reasons.only is not None or reasons.own is None or reasons.other is None:
        console.print(f"Vectors are exchanged {exchange}{chosen}: {reasons.only}.")
        console.print()
        return
    own, other, best = reasons.own, reasons.other, reasons.best_other
    words = f"Vectors are exchanged {exchange}{chosen}"
    if best is not None:
        words += f": the best plan found under {best.exchange} takes {format_seconds(best.step_s)}"
        words += f", and none takes less than {format_seconds(best.lower_bound_s)}"
    console.print(f"{words}.")
    console.print(
        f"Placed like this, {other.exchange} takes {format_seconds(other.step_s)}:"
        f" {format_seconds(other.exchanges_s)} in exchanges of vectors, {exchange} {format_seconds(own.exchanges_s)}."
    )
    for each in (own, other):
        rate = format_bytes(each.card_bytes_per_s)
        console.print(f"  {each.exchange}: {each.peers_words} of a rank beyond its domain, {rate}/s of a card")
    for part in reasons.rearranging:
        if part.seconds > 0:
            term = part.term.replace("_", " ")
            console.print(f"  sptt: {term} takes up to {format_seconds(part.seconds)}, in {part.stage}")
    console.print()


def _resource(each: StageReasons, model: CostModel) -> str:
    return resource_words(each.resource, model.topology, model.workload) if each.resource else "fixed cost"


def render_contributors(each: StageReasons, model: CostModel, console: "Console") -> None:
    """Print what takes time of the resource that binds a stage."""
    console.print(f"{each.stage.name}: rank {each.stage.critical_rank}, {_resource(each, model)}")
    table = TextGrid(("", "left"), ("", "right"), ("", "right"))
    table.show_header = False
    total = each.stage.seconds
    for part in each.contributors[:SHOWN]:
        table.add_row(f"  {part.table or FIXED}", amount(part.seconds, model), _share(part.seconds, total))
    rest = each.contributors[SHOWN:]
    if rest:
        seconds = sum(part.seconds for part in rest)
        table.add_row(f"  {len(rest):,} more", amount(seconds, model), _share(seconds, total))
    if each.constant_s > 0:
        table.add_row("  (constant)", amount(each.constant_s, model), _share(each.constant_s, total))
    if each.hidden_s > 0:
        table.add_row(HIDDEN, f"-{amount(each.hidden_s, model)}", _share(-each.hidden_s, total))
    console.print(table)
    console.print()


def _render_fixed(cost: FixedCost, model: CostModel, console: "Console") -> None:
    """A constant with its name, value and source."""
    from rich.padding import Padding

    evidence, words = cost.evidence, BY_MODEL if model.workload.software_mode else SAME_FOR_ALL
    if cost.coefficient != OVERHEAD:
        words = BY_LAYERS
    console.print(f"{cost.stage}: {amount(cost.seconds, model)}, the {cost.coefficient} of {cost.of} ({evidence.kind})")
    console.print(Padding(f"{evidence.source}\n{words}", (0, 0, 0, 2), expand=False))
    console.print()


def render_host_beside(model: CostModel, console: "Console") -> None:
    """What the host of one rank does while the device works, part by part."""
    if not (parts := host_beside(model)):
        return
    console.print(f"{HOST}, at the same time as the device: {amount(sum(part.seconds for part in parts), model)}")
    table = TextGrid(("", "left"), ("", "right"))
    table.show_header = False
    for part in parts:
        table.add_row(f"  {part.what}", amount(part.seconds, model))
    console.print(table)


def _render_fixed_seconds(model: CostModel, console: "Console") -> None:
    """Everything that no placement changes, part by part."""
    parts = fixed_seconds(model)
    if not parts:
        return
    console.print(f"Independent of placement: {amount(model.fixed_step_s, model)}")
    table = TextGrid(("", "left"), ("", "left"), ("", "right"))
    table.show_header = False
    for part in parts:
        sign = "-" if part.seconds < 0 else ""
        table.add_row(f"  {part.stage}", part.what, f"{sign}{amount(abs(part.seconds), model)}")
    console.print(table)
    render_host_beside(model, console)
    host_parts = sum(part.what.startswith(HOST_PART) for part in (*parts, *host_beside(model)))
    if host_parts > 1 and model.workload.software_mode is None:
        console.print(SHARED_OUT)
    console.print()


def _render_memory(reasons: PlanReasons, console: "Console") -> None:
    model = reasons.model
    for memory in reasons.memory:
        shared_by = SHARED_BY[memory.tier]
        where = "accelerator" if shared_by == "rank" else shared_by
        of = f" of {memory.group}" if len(model.topology.nodes) > 1 else ""
        saved = amount(memory.seconds_per_gib, model)
        console.print(
            f"{memory.tier.upper()} is scarce: 1 GiB more on each {where}{of} would lower the bound by at most {saved}."
        )
    if reasons.seconds_per_loss:
        saved = amount(reasons.seconds_per_loss, model)
        console.print(f"The budget of losses binds: a unit more of it would lower the bound by at most {saved}.")
    if not reasons.memory and all(each.bound_s is not None for each in reasons.stages):
        console.print("No memory is scarce: more of it would not lower the bound.")


def render_table(plan: Plan, reasons: TableReasons, console: "Console") -> None:
    """Print how a table is held, what it pays in each stage, and what its other options would cost."""
    model, planned = reasons.model, reasons.table
    _render_head(plan, model, console)
    profile = next(table for table in model.workload.tables if table.name == planned.name)
    size = " and ".join(
        f"{format_bytes(float(total))} of {tier}"
        for tier, total in zip(MEMORY_TIERS, planned.shards.bytes.sum(axis=0), strict=True)
        if total
    )
    cache = "" if planned.cache_fraction is None else f", {planned.cache_fraction:.0%} of its rows cached"
    if planned.remap is not None and planned.cache_fraction is not None:
        cache = f", {planned.remap.hot_rows:,} hot rows ({planned.cache_fraction:.0%}) in HBM"
    rows = counted(model.workload.stored_rows(profile), "row")
    columns = model.workload.stored_dim(profile)
    console.print(
        f"{planned.name}: {rows} x {columns} columns of {planned.dtype}{compressed_words(model.workload, profile)}"
    )
    if planned.optimizer_state != "with_table":
        cache += f", its optimizer state in {planned.optimizer_state}"
    console.print(f"{planned.sharding} in {planned.tier}{cache}: {_shards(planned.shards.rank)}, {size}")
    console.print(
        f"A step looks up {reasons.ids:,.0f} ids over all ranks, of {reasons.distinct_rows:,.0f} distinct rows."
    )
    for words in _held_with(plan, planned.name):
        console.print(f"{words}.")
    console.print()
    table = TextGrid(
        ("stage", "left"), ("on the critical rank", "right"), ("share", "right"), ("at most, anywhere", "right")
    )
    for stage in plan.stages:
        paid, most = reasons.stage_seconds[stage.name], reasons.own_seconds[stage.name]
        if most > 0:
            share = _share(paid, stage.seconds)
            table.add_row(stage.name, amount(paid, model), share, amount(most, model))
        if stage.name == "lookup_backward" and reasons.id_sort_s > 0:
            table.add_row(SORTING, "", "", amount(reasons.id_sort_s, model))
    console.print(table)
    console.print()
    if reasons.chosen is not None:
        _render_options(reasons, reasons.chosen, console)
        render_forbidden(reasons.forbidden, console)


def _held_with(plan: Plan, name: str) -> Iterator[str]:
    """Which tables the policy holds together with this one, or apart from it, group by group."""
    policy, names = plan.provenance.policy, [table.name for table in plan.tables]
    for key, words in (("colocate", "Held on one {} with"), ("separate", "On no {} with")):
        for number, group in enumerate(getattr(policy, key)):
            named = np.any([are_named(pattern, names) for pattern in group.tables], axis=0)
            others = [other for other, is_named in zip(names, named, strict=True) if is_named and other != name]
            if others and len(others) < named.sum():
                few = ", ".join(others[:FEW_TABLES])
                more = f" and {len(others) - FEW_TABLES:,} more" if len(others) > FEW_TABLES else ""
                yield f"{words.format(group.on)} {few}{more}, as {key}.{number} of the policy says"


def _share(part_s: float, stage_s: float) -> str:
    """What part of a stage something takes; a stage without time of its own is behind others."""
    return f"{part_s / stage_s:.1%}" if stage_s > 0 else "hidden"


def _shards(rank: np.ndarray) -> str:
    ranks = np.unique(rank)
    few = ", ".join(map(str, ranks[:FEW_RANKS].tolist()))
    where = f"{few}, …" if len(ranks) > FEW_RANKS else few
    shards = counted(len(rank), "shard")
    return f"{shards} on {'rank' if len(ranks) == 1 else f'{len(ranks):,} ranks:'} {where}"


def _render_options(reasons: TableReasons, chosen: OptionReasons, console: "Console") -> None:
    console.print("Cost to the step at the bound's dual multipliers, for this and other options:")
    console.print()
    table = TextGrid(("option", "left"), ("blocks", "right"), ("cost", "right"), ("", "left"))
    possible = [option for option in reasons.others if not option.is_too_long]
    for option in (chosen, *possible[:OPTIONS]):
        name = f"{option.sharding} in {option.tier}" + (
            "" if option.cache_fraction is None else f" {option.cache_fraction:.0%}"
        )
        name += "" if option.variant is None else f" as {option.variant}"
        words = "this plan" if option is chosen else why(option, chosen, reasons.model)
        table.add_row(name, str(option.blocks), amount(option.seconds, reasons.model), words)
    console.print(table)
    if left_out := len(reasons.others) - len(possible):
        console.print()
        console.print(f"In {left_out} more options, a single block makes the step as long as this plan's, or nearly.")


def why(option: OptionReasons, chosen: OptionReasons, model: CostModel) -> str:
    """Why an option was not taken: where it costs more, or that it costs no more and others had to fit beside it."""
    if option.is_too_long:
        return "a single block takes too long"
    more = option.seconds - chosen.seconds
    if abs(more) <= EVEN * chosen.seconds:
        return "costs the same"
    if more < 0:
        return "cheaper by itself, but it packs worse"
    stage = max(option.by_stage, key=lambda name: option.by_stage[name] - chosen.by_stage[name])
    return f"+{amount(more, model)}, most in {stage}"
