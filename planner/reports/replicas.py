"""Groups of ranks for people: what the plan's are, and what each other choice would cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas, PlannedReplicas, Rejected
from planner.reports.tables import TextGrid
from topologies.sentences import counted
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

EXCHANGES = ("input_dist", "output_intra_host", "output_dist", "gradient_dist", "gradient_intra_host")
SYNC = "replica_sync"
REASONS: dict[Rejected, str] = {
    "bound": "slower by its bound",
    "plan": "slower",
    "infeasible": "does not fit",
    "timeout": "no plan in time",
}


def render_replicas(plan: Plan, replicas: PlannedReplicas, console: "Console") -> None:
    """Print the groups of a plan and, where there was a choice, what others would have been."""
    console.print(f"{groups_words(replicas)}.")
    if replicas.others:
        console.print()
        console.print(choices_table(plan, replicas, replicas.others))
    console.print()


def groups_words(replicas: PlannedReplicas) -> str:
    """`4 groups of 32 ranks (intra) with all tables each, averaged every 10 steps`."""
    ranks = counted(replicas.group_ranks, "rank")
    if replicas.is_one_world:
        return f"One world of {ranks}"
    groups = f"{replicas.factor} groups of {ranks} ({replicas.layout}) with all tables each"
    if replicas.rules:
        one = f"One world of {ranks}" if replicas.factor == 1 else groups
        where = "on neighbours" if replicas.layout == "intra" else "whole nodes apart"
        groups = f"{one}, and copies of some {where} ({'; '.join(rule.words for rule in replicas.rules)})"
    if replicas.strategy == "fully_sharded":
        weights = "whose copies are cut over each other and averaged in each step"
    else:
        weights = f"averaged every {_steps(replicas.sync_every)}"
    if replicas.state_every is None:
        return f"{groups}, {weights}; their optimizer state never is"
    if replicas.state_every != replicas.sync_every or replicas.strategy == "fully_sharded":
        return f"{groups}, {weights}, their optimizer state every {_steps(replicas.state_every)}"
    return f"{groups}, {weights}"


def _steps(every: int | None) -> str:
    return "step" if every in (None, 1) else f"{every:,} steps"


def choices_table(plan: Plan, replicas: PlannedReplicas, others: Sequence[OtherReplicas]) -> TextGrid:
    """One row for each choice: exchange, averaging and memory beside the step."""
    assert plan.objective is not None
    grid = TextGrid(
        ("groups", "left"), ("step", "right"), ("bound", "right"), ("exchange", "right"), ("sync", "right"),
        ("fullest HBM", "right"), ("", "left"),
    )  # fmt: skip
    own = OtherReplicas(
        factor=replicas.factor,
        layout=replicas.layout,
        rejected="plan",
        lower_bound_s=plan.objective.lower_bound_s,
        step_s=plan.objective.step_s,
        stages={stage.name: stage.seconds for stage in plan.stages},
        fullest_bytes=max(rank.bytes["hbm"] for rank in plan.ranks),
    )
    listed = [(own, "taken"), *((other, REASONS[other.rejected]) for other in others)]
    for each, words in sorted(listed, key=lambda row: (row[0].factor, row[0].layout or "")):
        grid.add_row(*_cells(each, has_rules=bool(replicas.rules)), words)
    return grid


def _cells(choice: OtherReplicas, *, has_rules: bool) -> list[str]:
    name = "1" if choice.layout is None else f"{choice.factor} {choice.layout}{' by rules' * has_rules}"
    stages = choice.stages
    exchange = None if stages is None else sum(stages.get(stage, 0.0) for stage in EXCHANGES)
    sync = None if stages is None else stages.get(SYNC, 0.0)
    seconds = [
        "-" if each is None else format_seconds(each) for each in (choice.step_s, choice.lower_bound_s, exchange, sync)
    ]
    return [name, *seconds, "-" if choice.fullest_bytes is None else format_bytes(choice.fullest_bytes)]
