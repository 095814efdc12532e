"""What reports have in common: the words for resources, amounts with their unit, error bars."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from cost_models.host_beside import may_work_beside
from cost_models.ingestion import IngestionNeeds
from cost_models.memory import (
    CACHE_INDEX_BYTES_PER_ROW,
    CACHE_INDEX_BYTES_PER_SLOT,
    cached_rows,
    cached_share,
    is_cached_beside,
)
from cost_models.model import CostModel
from cost_models.resources import WAY_WORDS, Resource
from cost_models.shards import PlacedShards
from cost_models.step_costs import StepCosts
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner.diagnosis.drift import DRIFTED, drift, stage_drift
from planner.diagnosis.fixed_part import FixedPart
from planner.document.plan import Objective, Plan
from planner.problem.goals import CROWDED
from topologies.cluster import Topology
from topologies.sentences import counted
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

CARD_KINDS = ("nic", "rails")
"""Kinds of resources that are scale-out cards."""
MAY_HIDE = 0.1
"""Share of a step that a sentence is worth which host or device may hide of each other."""
TOLD = 0.005
"""Share of the step above which what hot rows take is told."""
ROUNDING = 1e-6
"""Share of what is hidden that is nothing but rounding."""
FIXED = "(launches, dense part)"
"""What reports call a contributor that is no table."""


def resource_words(resource: Resource, topology: Topology, workload: Workload | None = None) -> str:
    """What a resource is called; an uplink by the name of the network level that it leaves, that of a table's bags with
    the table's name in a workload."""
    table = "" if workload is None or resource.table is None else f", {workload.tables[resource.table].name}"
    level = "" if resource.level is None else f" {topology.network.levels[resource.level].name}"
    way = "" if resource.way is None else f", {WAY_WORDS[resource.way]}"
    more = ", with the next ids" * resource.with_ids + ", for the next batch" * resource.ahead
    more += " and rows in place" * resource.with_rows
    return f"{_label(resource, topology)}{table}{level}{way}{more}"


def _label(resource: Resource, topology: Topology) -> str:
    """What reports call resources of its kind; cards by the links that they wait for, where these are slower."""
    label = resource.row.label
    if resource.kind not in CARD_KINDS:
        return label
    waits = {group.cards_wait_for_links for group in topology.nodes if group.links.scale_out is not None}
    if True not in waits:
        return label
    return f"{label} or PCIe links to it" if False in waits else f"PCIe links to {label}"


def compressed_words(workload: Workload, table: TableProfile) -> str:
    """What made a table smaller, as the end of a description of its rows; empty where nothing did."""
    compressor = workload.compressor_of(table)
    if compressor.kind == "none":
        return ""
    beside = f", and {counted(compressor.number, 'row')} of its remainder table" if compressor.has_two_parts else ""
    return f"{beside} ({compressor} of {counted(table.rows, 'row')} x {table.dim})"


def amount(value: float, model: CostModel) -> str:
    """A step, or a rating, of the model."""
    return format_seconds(value) if model.unit == "s" else f"{value:,.3f}"


def remainder_words(model: CostModel, hidden: str, name: Callable[[str], str] = str) -> str:
    """Where the rest of a hidden stage shows; what stages are called is a matter of `name`."""
    return f"the remainder is in {' and '.join(map(name, model.shown_in(hidden)))}"


def fixed_words(fixed: FixedPart) -> str:
    """How much of the step no placement changes, and what the gap is of the rest."""
    gap = fixed.gap_of_rest
    return "independent of placement" + ("" if not gap else f"; gap {gap:.1%} of the rest")


def crowded(plan: Plan) -> str | None:
    """A warning that names the fullest rank, where ranks take more of their usable HBM than is prudent; else None."""
    full = [rank for rank in plan.ranks if rank.bytes["hbm"] > CROWDED * rank.capacity["hbm"]]
    if not full:
        return None
    worst = max(full, key=lambda rank: rank.bytes["hbm"] / max(rank.capacity["hbm"], 1))
    taken, usable = format_bytes(worst.bytes["hbm"]), format_bytes(worst.capacity["hbm"])
    share = worst.bytes["hbm"] / max(worst.capacity["hbm"], 1)
    others = "" if len(full) == 1 else f", and {len(full) - 1:,} more are above {CROWDED:.0%}"
    return (
        f"Warning: rank {worst.rank} takes {taken} of {usable} usable HBM ({share:.0%}){others}: memory"
        " that a run takes beyond the estimate may not fit. --reserve hbm=10% keeps some free."
    )


def render_warnings(plan: Plan, console: "Console") -> None:
    """Print what a reader must know of how the plan's inputs go together."""
    for warning in plan.provenance.warnings:
        console.print(f"Warning: {warning}.")
        console.print()


def render_drift(plan: Plan, console: "Console") -> None:
    """Print why the simulated step is much shorter or longer than the estimate, where it is."""
    if (words := drift_words(plan)) is not None:
        console.print(f"Warning: {words}.")
        console.print()


def drift_words(plan: Plan) -> str | None:
    """A warning where the simulated step is much longer or shorter than the estimate, with the stage; else None."""
    share = drift(plan)
    if abs(share) <= DRIFTED:
        return None
    most = stage_drift(plan)
    played = f"{format_seconds(most.estimated_s)} estimated, {format_seconds(most.played_s)} on the critical path"
    if share > 0:
        why = (
            "as what the estimate hides there behind other work waits for it; gap and bound are of the estimate, and"
            " planner simulate shows what waits"
        )
    else:
        why = (
            "as the estimate adds up stages that each take as long as on their slowest rank, and hides no more than"
            " evenly spread tables would: simulated ranks that are done early go on, and more is hidden; gap and bound"
            " are of the estimate, and a simulated step may be shorter than the bound"
        )
    sense = "longer" if share > 0 else "shorter"
    return f"the simulated step is {abs(share):.0%} {sense} than the estimate, most in {most.stage}: {played}, {why}"


def roots_words(objective: Objective, model: CostModel) -> str | None:
    """How long the step is that takes inverse roots of Shampoo, beside the mean one; None where none does."""
    if not isinstance(model, StepCosts) or not model.update.roots_s:
        return None
    update, mean = model.update, format_seconds(objective.step_s)
    if update.frequency == 1:
        return f"Every step takes the inverse roots of Shampoo: {format_seconds(update.roots_s)} of it"
    late = format_seconds(objective.step_s + update.late_s)
    return f"Shampoo takes inverse roots every {update.frequency} steps: amortised {mean}; a step with roots {late}"


def render_roots(objective: Objective, model: CostModel, console: "Console") -> None:
    """Print the step with inverse roots, where some steps have them."""
    if (words := roots_words(objective, model)) is not None:
        console.print(f"{words}.")


def floor_words(plan: Plan, model: CostModel) -> str | None:
    """Which is longer, the stages of a step or what goes on beside them; None where nothing is known to."""
    floor = model.floor
    shown_s = 0.0 if floor is None else sum(stage.seconds for stage in plan.stages if stage.name == floor.stage)
    if floor is not None and shown_s > 0 and plan.objective is not None:
        others = format_seconds(max(plan.objective.step_s - shown_s, 0.0))
        return f"The step is {floor.words}, {format_seconds(floor.longest_s)}; all else takes {others} at the same time"
    host = model.coefficients.host_beside if isinstance(model, StepCosts) else None
    if host is None:
        return _added_words(plan, model)
    if not host.value:
        return None
    return f"The step is the device's; its host works at the same time, for {format_seconds(host.value)}"


def _added_words(plan: Plan, model: CostModel) -> str | None:
    """How much shorter the step may be than the sum of host and device, where that is much; else None."""
    if not isinstance(model, StepCosts) or not may_work_beside(model.cluster, model.stated_workload):
        return None
    host_s = model.coefficients.software.step_overhead_s.value
    step_s = 0.0 if plan.objective is None else plan.objective.step_s
    if min(host_s, step_s - host_s) <= MAY_HIDE * step_s:
        return None
    longer = format_seconds(max(host_s, step_s - host_s))
    return (
        f"The host's {format_seconds(host_s)} are added to what the devices do, as the few published steps of several"
        f" ranks have it; if both went on at the same time, as on one rank, the step would be {longer}"
    )


def render_floor(plan: Plan, model: CostModel, console: "Console") -> None:
    """Print which is longer, the step or what goes on beside it."""
    if (words := floor_words(plan, model)) is not None:
        console.print(f"{words}.")


def render_beyond(plan: Plan, model: CostModel, console: "Console") -> None:
    """Print what a step takes beyond its stages, in paragraphs."""
    for sentence in words_beyond(plan, model):
        console.print(sentence)
        console.print()


def words_beyond(plan: Plan, model: CostModel) -> Iterator[str]:
    """Sentences of what several kinds of sharding, histories of different lengths, hot rows and launching the search of
    caches take beyond the step, where known, and what of it the host or the copy of a batch hides."""
    objective = plan.objective
    if objective is None:
        return
    left_out = "which the step and its bound leave out"
    if beyond_s := objective.cache_launch_s:
        of_device, of_host = _shown_s(plan, model, device_s=beyond_s), _shown_s(plan, model, host_s=beyond_s)
        hides = _hidden_words(plan, model, beyond_s)
        if of_host is not None and of_device != of_host:
            hides = f": the step is {_longer(of_host)} if it is the host's, {_longer(of_device or 0.0)} if the device's"
        yield f"Launching the search of caches takes {format_seconds(beyond_s)} more, {left_out}{hides}."
    if beyond_s := objective.length_imbalance_s:
        yield (
            f"Histories of different lengths keep the slowest rank {format_seconds(beyond_s)} longer on the mean, which"
            f" the step and its bound, of mean lengths, leave out{_hidden_words(plan, model, beyond_s)}."
        )
    beyond_s = objective.hot_rows_s or 0.0
    if beyond_s > TOLD * objective.step_s:
        share = beyond_s / objective.step_s
        yield (
            f"Hot rows of tables that are cut by rows, which few ranks hold, make the step {format_seconds(beyond_s)}"
            f" ({share:.1%}) longer on the mean; the step and its bound, of ids dealt evenly, leave that out."
        )
    if beyond_s := objective.mixing_s:
        hides = _hidden_words(plan, model, beyond_s)
        yield f"Mixing kinds of sharding takes {format_seconds(beyond_s)} more, {left_out}{hides}."


def _shown_s(plan: Plan, model: CostModel, *, device_s: float = 0.0, host_s: float = 0.0) -> float | None:
    """How much longer the step is with more work of the device, or of a host that works beside it; None of a host that
    does not."""
    floor, objective = model.floor, plan.objective
    host = model.coefficients.host_beside if isinstance(model, StepCosts) else None
    if host_s and host is None:
        return None
    if floor is None or objective is None:
        return device_s
    others_s = sum(stage.seconds for stage in plan.stages if stage.name != floor.stage)
    beside_s = max(floor.longest_s, 0.0 if host is None else host.value + host_s)
    return max(max(others_s + device_s, beside_s) - max(others_s, floor.longest_s), 0.0)


def _hidden_words(plan: Plan, model: CostModel, seconds: float) -> str:
    """What goes on beside the step hides of so much more work, as the end of a sentence; empty where nothing."""
    shown_s = _shown_s(plan, model, device_s=seconds)
    if model.floor is None or shown_s is None or shown_s >= seconds * (1 - ROUNDING):
        return ""
    return f": {model.floor.words} hides {'it' if shown_s == 0 else f'all but {format_seconds(shown_s)} of it'}"


def _longer(seconds: float) -> str:
    return f"{format_seconds(seconds)} longer" if seconds else "no longer"


def render_error_bar(objective: Objective, console: "Console") -> None:
    """Where the step would be measured, and how that is known."""
    bar = objective.error_bar
    if bar is None:
        return
    spec_only = f"; data sheet only: {', '.join(bar.spec_only)}" if bar.spec_only else ""
    console.print(
        f"step {format_seconds(objective.step_s)}, {bar.coverage:.0%} band"
        f" {format_seconds(bar.low_s)} to {format_seconds(bar.high_s)}: {bar.basis}{spec_only}"
    )
    console.print()


def ingestion_words(needs: IngestionNeeds, nodes: int) -> str:
    """What samples need on their way to so many nodes of ranks, as the end of a sentence."""
    rate = f"{format_bytes(needs.sent_bytes_per_s)}/s"
    words = f"at {needs.samples_per_s:,.0f} a second: {rate} to the ranks"
    words += f" ({format_bytes(needs.sent_bytes_per_s / nodes)}/s a node)"
    if needs.storage_bytes_per_s is not None:
        words += f", {format_bytes(needs.storage_bytes_per_s)}/s from storage"
    if needs.readers is not None:
        words += f", {counted(needs.readers, 'reader node')}"
    if needs.ids_kept < 1:
        words += f"; sessions leave {needs.ids_kept:.0%} of the ids"
    slower = needs.sustained_samples_per_s
    if slower is not None and slower < needs.samples_per_s:
        words += f". The readers that there are give {slower:,.0f} a second: they limit training, not this plan"
    return words


def mixed_words(model: CostModel, placed: PlacedShards) -> str | None:
    """Bits of a number in tables with a cache of full precision beside, with and without the index of the cache; None
    where no table has one."""
    beside = np.flatnonzero(is_cached_beside(model.tables, placed.blocks))
    if not len(beside):
        return None
    blocks, rows, tables = placed.blocks.take(beside), placed.rows[beside], model.tables
    slots = cached_rows(rows, cached_share(tables, blocks))
    stored = rows * tables.row_bytes(blocks.table, blocks.columns, blocks.dtype)
    numbers = float((rows * blocks.columns).sum())
    bare = float((stored + slots * tables.cached_row_bytes(blocks)).sum())
    index = float((rows * CACHE_INDEX_BYTES_PER_ROW + slots * CACHE_INDEX_BYTES_PER_SLOT).sum())
    return (
        f"Beside {counted(len(np.unique(blocks.table)), 'table')} in HBM are caches in fp32: {8 * bare / numbers:.2f}"
        f" bits a number, {8 * (bare + index) / numbers:.2f} with the caches' index"
        f" ({CACHE_INDEX_BYTES_PER_ROW} bytes a row and {CACHE_INDEX_BYTES_PER_SLOT} a slot, as in FBGEMM)."
    )
