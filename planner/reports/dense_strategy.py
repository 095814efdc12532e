"""The strategy of the dense part for people: what it takes beside a replicated one, and what others would be."""

from typing import TYPE_CHECKING

from cost_models.activations import kept_elements
from cost_models.dense_size import dense_size
from cost_models.model import CostModel
from cost_models.step_costs import StepCosts
from cost_models.workload.checkpoints import in_words
from cost_models.workload.dense_sharding import REPLICATED
from planner.diagnosis.dense_layers import recomputed_s
from planner.diagnosis.dense_strategy import BesideReplicated, beside_replicated
from planner.document.dense import LayerStrategies, OtherDense, PlannedDense
from planner.document.plan import Plan
from planner.reports.replicas import REASONS
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def render_dense(plan: Plan, model: CostModel, console: "Console") -> None:
    """Print the strategy of a plan that tells one and, where there was a choice, what others would have been."""
    dense = plan.dense
    if dense is None or not isinstance(model, StepCosts):
        return
    console.print(f"Dense part: {strategy_words(dense, model)}.")
    beside = beside_replicated(plan, model)
    if beside is not None:
        console.print(f"{beside_words(beside)}.")
    if dense.others:
        console.print()
        console.print(_strategies_table(plan, dense))
    if dense.by_layer is not None and plan.objective is not None:
        console.print()
        console.print(f"{layers_words(dense.by_layer, plan.objective.step_s)}.")
    console.print()


def strategy_words(dense: PlannedDense, model: StepCosts) -> str:
    """`fsdp over all 128 ranks, 1.21 GiB of parameters, gradients and state on each`."""
    held = format_bytes(model.peak.rank_bytes["parameters"])
    over = {"world": f"all {model.topology.world_size:,} ranks", "node": "the ranks of each node"}[dense.over]
    how = f"{dense.strategy} over {over}" if dense.strategy != REPLICATED.strategy else REPLICATED.words
    how += f"; {of_rules}" if (of_rules := dense.words_of_rules) else ""
    words = f"{how}, {held} of parameters, gradients and state on each rank"
    return words if dense.checkpointing is None else f"{words}, {checkpointing_words(dense, model)}"


def layers_words(proven: LayerStrategies, step_s: float) -> str:
    """`No strategies of layers make a step shorter than 31.200 ms, gap 2.2%`."""
    bound_s = proven.lower_bound_s
    gap = f", gap {step_s / bound_s - 1:.1%}" if bound_s > 0 else ""
    return f"No strategies of layers make a step shorter than {format_seconds(bound_s)}{gap}"


def checkpointing_words(dense: PlannedDense, model: StepCosts) -> str:
    """`checkpointing full keeps 1.2 GiB of activations instead of 4.1 GiB and computes 3.1 ms of layers again`."""
    workload, size = model.workload, model.workload.dense.activation_bytes * model.peak.samples_per_rank
    kept, whole = kept_elements(workload) * size, dense_size(workload).activation_elements * size
    words = f"checkpointing {in_words(dense.checkpointing)} keeps {format_bytes(kept)} of activations instead of"
    return f"{words} {format_bytes(whole)} and computes {format_seconds(recomputed_s(model))} of layers again"


def beside_words(beside: BesideReplicated) -> str:
    """What sharding bought: `Replicated, with the same tables, it would take 252.08 GiB more of each rank ...`."""
    size, seconds = format_bytes(abs(beside.more_bytes)), format_seconds(abs(beside.more_s))
    more = "more" if beside.more_bytes >= 0 else "less"
    longer = "longer" if beside.more_s >= 0 else "shorter"
    fits = "" if beside.fits else ", and would not fit"
    taken = f"{size} {more} of each rank and a step {seconds} {longer}"
    return f"Replicated, with the same tables, it would take {taken}{fits}"


def _strategies_table(plan: Plan, dense: PlannedDense) -> TextGrid:
    """One row for each strategy."""
    assert plan.objective is not None
    grid = TextGrid(
        ("dense part", "left"), ("step", "right"), ("bound", "right"), ("fullest HBM", "right"), ("", "left")
    )
    own = OtherDense(
        **dense.alone.model_dump(),
        rejected="plan",
        lower_bound_s=plan.objective.lower_bound_s,
        step_s=plan.objective.step_s,
        fullest_bytes=max(rank.bytes["hbm"] for rank in plan.ranks),
    )
    listed = [(own, "taken"), *((other, REASONS[other.rejected]) for other in dense.others)]
    for each, words in listed:
        seconds = ["-" if value is None else format_seconds(value) for value in (each.step_s, each.lower_bound_s)]
        fullest = "-" if each.fullest_bytes is None else format_bytes(each.fullest_bytes)
        grid.add_row(each.words, *seconds, fullest, words)
    return grid
