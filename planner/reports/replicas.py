"""Groups of ranks for people: what the plan's are, and what each other choice would cost."""

from collections.abc import Callable, Sequence
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
FASTER = "faster"
REASONS: dict[Rejected, str] = {
    "bound": "slower",
    "plan": "slower",
    "infeasible": "no room",
    "timeout": "timeout",
}


def render_replicas(plan: Plan, replicas: PlannedReplicas, console: "Console") -> None:
    """Print the groups of a plan and, where there was a choice, what others would have been."""
    console.print(f"{groups_words(replicas)}.")
    if replicas.others:
        console.print()
        render_choices(plan, replicas, replicas.others, console)
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


def render_choices(plan: Plan, replicas: PlannedReplicas, others: Sequence[OtherReplicas], console: "Console") -> None:
    """Print one row for each choice: the step with its proven gap; exchange, averaging and the fullest rank's HBM."""
    console.print(_choices_table(plan, replicas, others))
    if any(other.rejected == "bound" for other in others):
        console.print("Slower without a step: by the bound, so that no plan was searched for.")
    faster = [str(other.factor) for other in others if _verdict(plan, other) == FASTER]
    if faster:
        console.print(f"Faster: not among the choices of the policy; --replicas {faster[0]} plans so.")


def _choices_table(plan: Plan, replicas: PlannedReplicas, others: Sequence[OtherReplicas]) -> TextGrid:
    assert plan.objective is not None
    grid = TextGrid(
        ("groups", "left"), ("step", "right"), ("bound", "right"), ("gap", "right"), ("exchange", "right"),
        ("sync", "right"), ("HBM", "right"), ("", "left"),
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
    listed = [(own, "taken"), *((other, _verdict(plan, other)) for other in others)]
    for each, words in sorted(listed, key=lambda row: (row[0].factor, row[0].layout or "")):
        grid.add_row(*_cells(each, has_rules=bool(replicas.rules)), words)
    return grid


def _verdict(plan: Plan, other: OtherReplicas) -> str:
    """Why another choice is not the plan's; one that was planned beside it, as one world is, may take less."""
    assert plan.objective is not None
    takes_less = other.step_s is not None and other.step_s < plan.objective.step_s
    return FASTER if takes_less else REASONS[other.rejected]


def _name(choice: OtherReplicas, *, has_rules: bool) -> str:
    return "1" if choice.layout is None else f"{choice.factor} {choice.layout}{' by rules' * has_rules}"


def _cells(choice: OtherReplicas, *, has_rules: bool) -> list[str]:
    step_s, bound_s, stages = choice.step_s, choice.lower_bound_s, choice.stages
    gap = None if step_s is None or bound_s is None else step_s / bound_s - 1
    exchange = None if stages is None else sum(stages.get(stage, 0.0) for stage in EXCHANGES)
    sync = None if stages is None else stages.get(SYNC, 0.0)
    return [
        _name(choice, has_rules=has_rules),
        *(_known(seconds, format_seconds) for seconds in (step_s, bound_s)),
        _known(gap, "{:.2%}".format),
        *(_known(seconds, format_seconds) for seconds in (exchange, sync)),
        _known(choice.fullest_bytes, format_bytes),
    ]


def _known(value: float | None, written: Callable[[float], str]) -> str:
    return "-" if value is None else written(value)
