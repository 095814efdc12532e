"""Whether a choice that a plan does not take, of replicas or of the dense part, was rightly rejected."""

from collections.abc import Iterator

from planner.document.dense import OtherDense
from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas
from planner.verification.figures import TOLERANCE


def faults_of_other(plan: Plan, name: str, other: OtherDense | OtherReplicas) -> Iterator[str]:
    """In words, which begin with `name`: figures of the choice that speak against its rejection, or each other."""
    best_s = None if plan.objective is None else plan.objective.step_s
    bound, step = other.lower_bound_s, other.step_s
    if best_s is not None and step is not None and step < best_s * (1 - TOLERANCE):
        yield f"{name}: the step is {step!r}, shorter than that of the plan"
    if other.rejected == "bound" and (bound is None or best_s is None or bound < best_s * (1 - TOLERANCE)):
        yield f"{name}: the bound {bound!r} does not say that the plan is faster"
    if (other.rejected == "plan") != (step is not None):
        yield f"{name}: rejected for {other.rejected}, {'with' if step is not None else 'without'} a step"
    if bound is not None and step is not None and bound > step * (1 + TOLERANCE):
        yield f"{name}: the bound {bound!r} is above the step {step!r}"
