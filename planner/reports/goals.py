"""The goals of a policy, for people: what was best, and what of it is left."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planner.document.plan import GoalReached
from planner.problem.goals import CROWDED, GoalName
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

WRITTEN: dict[GoalName, tuple[str, Callable[[float], str]]] = {
    "step": ("step", format_seconds),
    "crowded_ranks": (f"ranks above {CROWDED:.0%} of HBM", lambda value: f"{value:,.0f}"),
    "blocks": ("blocks", lambda value: f"{value:,.0f}"),
    "fullest_rank": ("HBM of the fullest rank", lambda value: f"{value:.1%}"),
    "largest_stash": ("largest stash of a rank", format_bytes),
    "moved_bytes": ("moved bytes", format_bytes),
}


def render_goals(goals: Sequence[GoalReached], console: "Console") -> None:
    """Print the goals in their order; nothing where the policy names none."""
    if not goals:
        return
    table = TextGrid(
        ("goal", "left"), ("best found", "right"), ("may be given up", "right"), ("this plan", "right"), ("", "right")
    )
    for goal in goals:
        words, write = WRITTEN[goal.name]
        change = f"{goal.value / goal.best - 1:+.2%}" if goal.best and goal.value != goal.best else ""
        table.add_row(words, write(goal.best), f"{100 * goal.tolerance:.3g}%", write(goal.value), change)
    console.print(table)
    console.print()
