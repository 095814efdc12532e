"""Plan documents as commands take them: read, and checked to be plans of their own inputs."""

from pathlib import Path

from planner.document.plan import Plan, read_plan
from planner.document.planned import planned_model
from planner.errors import UnsoundPlanError
from planner.verification.shape import shape_faults
from topologies.errors import Fault


def load_plan(path: str | Path) -> Plan:
    """Read a plan document whose tables, ranks and stages are those of the inputs that it carries.

    Its figures are not looked at: `planner.verify` does. Raises InputError for anything that is no plan document, and
    UnsoundPlanError, an InputError too, for one with a table missing, doubled or renamed, a shard on no rank and the
    like.
    """
    return expect_sound(read_plan(path), str(path))


def expect_sound(plan: Plan, source: str) -> Plan:
    """The plan itself, which messages call `source`. Raises as `load_plan` does."""
    model = planned_model(plan)
    faults = [Fault(source, 0, 0, "", f"was changed: {text}") for text in shape_faults(plan, model)]
    if faults:
        raise UnsoundPlanError(faults)
    return plan
