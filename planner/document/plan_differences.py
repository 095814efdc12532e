"""In what two plans differ: seconds per stage, tables and their tiers, bytes that move."""

from collections.abc import Sequence
from dataclasses import dataclass

from cost_models.registry import COST_MODELS
from planner.document.plan import Plan
from planner.document.table_differences import TableDifference, table_differences
from planner.problem.rounding import ROUNDING


@dataclass(frozen=True)
class StageDifference:
    """One stage of either step, or the whole step."""

    name: str
    before: float | None
    """Seconds, or the plan's rating; None where the step does not have the stage, or others hide it."""
    after: float | None

    @property
    def change(self) -> float:
        """By how much the step is longer for it, but for rounding."""
        before, after = self.before or 0.0, self.after or 0.0
        return after - before if abs(after - before) > ROUNDING * max(after, before) else 0.0


@dataclass(frozen=True)
class TierChange:
    """The tables that went from one tier to another."""

    before: str
    after: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class PlanDifference:
    """A plan, and how another differs from it."""

    before: Plan
    after: Plan
    step: StageDifference
    stages: tuple[StageDifference, ...]
    """All of them, in the order of the step."""
    tiers: tuple[TierChange, ...]
    tables: tuple[TableDifference, ...]
    """Those that are held otherwise."""

    @property
    def moved_bytes(self) -> int:
        """Into ranks that did not hold them."""
        return sum(int(each["moved_bytes"] or 0) for each in self.tables)

    @property
    def units(self) -> tuple[str, str]:
        """Of the two steps: `s`, or that of a rating."""
        before, after = (COST_MODELS[plan.provenance.cost_model].unit for plan in (self.before, self.after))
        return before, after


def plan_difference(before: Plan, after: Plan, source: str, lost_nodes: Sequence[int] = ()) -> PlanDifference:
    """How a plan differs from one before, which messages call `source`, and of which nodes may be lost. Raises
    InputError where a plan places nothing, or the two have no table in common."""
    tables = tuple(table_differences(before, after, source, lost_nodes))
    was, now = ({stage.name: stage.seconds for stage in plan.stages} for plan in (before, after))
    steps = [None if plan.objective is None else plan.objective.step_s for plan in (before, after)]
    return PlanDifference(
        before,
        after,
        StageDifference("step", *steps),
        tuple(StageDifference(name, was.get(name), now.get(name)) for name in _in_order(list(was), list(now))),
        _tier_changes(before, after),
        tables,
    )


def _in_order(was: list[str], now: list[str]) -> list[str]:
    """The stages of both steps: each of the first alone before what follows it there."""
    names = list(now)
    for place, name in enumerate(was):
        if name not in now:
            names.insert(next((names.index(later) for later in was[place:] if later in names), len(names)), name)
    return names


def _tier_changes(before: Plan, after: Plan) -> tuple[TierChange, ...]:
    was = {table.name: table.tier for table in before.tables}
    moved: dict[tuple[str, str], list[str]] = {}
    for table in after.tables:
        if (tier := was.get(table.name, table.tier)) != table.tier:
            moved.setdefault((tier, table.tier), []).append(table.name)
    return tuple(TierChange(*tiers, tuple(names)) for tiers, names in moved.items())
