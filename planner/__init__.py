"""Which placement is best, and how we say so: `from planner import plan, load_topology, load_workload`."""

from typing import TYPE_CHECKING, Any

from planner._version import VERSION

if TYPE_CHECKING:
    from cost_models.workload.loading import load_workload
    from planner.document.plan import Plan, read_plan, write_plan
    from planner.formulation.policy import Policy, load_policy
    from planner.planning.planning import plan
    from planner.reports.frames import plan_frame, shard_frame
    from planner.studies.run import run_study
    from planner.verification.verify import verify
    from topologies.loading import load_topology

__version__ = VERSION

__all__ = [
    "Plan",
    "Policy",
    "__version__",
    "load_policy",
    "load_topology",
    "load_workload",
    "plan",
    "plan_frame",
    "read_plan",
    "run_study",
    "shard_frame",
    "verify",
    "write_plan",
]

_HOMES = {
    "Plan": "planner.document.plan",
    "Policy": "planner.formulation.policy",
    "load_policy": "planner.formulation.policy",
    "load_topology": "topologies.loading",
    "load_workload": "cost_models.workload.loading",
    "plan": "planner.planning.planning",
    "plan_frame": "planner.reports.frames",
    "read_plan": "planner.document.plan",
    "run_study": "planner.studies.run",
    "shard_frame": "planner.reports.frames",
    "verify": "planner.verification.verify",
    "write_plan": "planner.document.plan",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that the command line starts without numpy and ortools."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
