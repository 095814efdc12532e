"""What a trainer has to be told of tables that leave HBM between the passes of a step."""

from planner.document.plan import Plan
from topologies.errors import Fault, InputError

STASHED = "hbm_stash_weights"
"""The tier whose rows TorchRec stashes (`stash_weights` of EmbeddingBagConfig, TorchRec 1.8.0): no ShardingPlan says
so."""


def stash_notes(plan: Plan) -> tuple[str, ...]:
    """Which tables have it; none where none has."""
    names = [table.name for table in plan.tables if table.tier == STASHED]
    if not names:
        return ()
    few = ", ".join(names[:8]) + (f" and {len(names) - 8} more (tier {STASHED} of the plan)" if len(names) > 8 else "")
    return (f"Tables whose rows leave HBM between the passes have stash_weights=True in their config: {few}",)


def expect_unstashed(plan: Plan, source: str, runtime: str) -> None:
    """Raise InputError with every stashed table, for a file that has no word for it."""
    faults = [
        Fault(source, 0, 0, f"tables.{number}", f"{runtime} is not told to stash {table.name!r}; plan without stash")
        for number, table in enumerate(plan.tables)
        if table.tier == STASHED
    ]
    if faults:
        raise InputError(faults)
