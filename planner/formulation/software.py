"""Whose overheads and overlaps a plan is priced with: those of the runtime that is to execute it, unless the user chose
others."""

from cost_models.workload.models import Workload
from planner.formulation.policy import Policy


def priced_as_run(workload: Workload, policy: Policy) -> Workload:
    """The workload with the software profile of the policy's runtime; as it is where its user chose a profile, or where
    any runtime will do."""
    if policy.runtime in ("any", workload.software) or workload.names_software:
        return workload
    return workload.model_copy(update={"software": policy.runtime})


def software_warnings(workload: Workload, policy: Policy) -> tuple[str, ...]:
    """What a reader must know of the profile that a plan is priced with; mostly nothing."""
    if policy.runtime in ("any", workload.software):
        return ()
    return (
        f"the plan is for {policy.runtime} (runtime), but its times are those of {workload.software}"
        f" (workload.software); leave workload.software out, or set it to {policy.runtime}",
    )
