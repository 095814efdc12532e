"""Whether the groups of ranks of a plan are what its policy allows, and what it says of other choices is consistent."""

from collections.abc import Iterator

from cost_models.model import CostModel
from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas, PlannedReplicas
from planner.formulation.replica_choices import candidates
from planner.verification.figures import TOLERANCE
from topologies.errors import InputError


def faults_of_replicas(plan: Plan, model: CostModel) -> Iterator[str]:
    """In words: groups that the policy does not allow or that are not those of the cluster, other choices left out or
    made up, and reasons against them that are none."""
    choices, planned = plan.provenance.policy.replicas, plan.replicas
    if (choices is None) != (planned is None):
        yield f"replicas: {'missing' if planned is None else 'there'}, and the policy says {choices}"
    if choices is None or planned is None:
        return
    try:
        allowed = candidates(choices, model.cluster, model.stated_workload)
    except InputError as error:
        yield from (f"replicas: {fault.message}" for fault in error.faults)
        return
    if model.replicas not in allowed:
        yield "replicas: is none of the policy's choices"
    if planned.group_ranks != model.topology.world_size:
        yield f"replicas: a group has {model.topology.world_size} ranks, the document says {planned.group_ranks}"
    stated = [(each.factor, each.layout) for each in planned.others]
    others = [(1, None) if each is None else (each.factor, each.layout) for each in allowed if each != model.replicas]
    if plan.moves is not None:  # a plan that follows another keeps its groups
        others = []
    if sorted(stated, key=str) != sorted(others, key=str):
        yield f"replicas: the other choices are {others}, the document has {stated}"
    for other in planned.others:
        yield from _faults_of_other(plan, planned, other)


def _faults_of_other(plan: Plan, planned: PlannedReplicas, other: OtherReplicas) -> Iterator[str]:
    """Whether it was rightly rejected, as far as its figures tell."""
    name, best_s = f"replicas: {other.factor} copies", None if plan.objective is None else plan.objective.step_s
    bound, step = other.lower_bound_s, other.step_s
    if best_s is not None and step is not None and step < best_s * (1 - TOLERANCE):
        yield f"{name}: have a step of {step!r}, shorter than that of {planned.factor}"
    if other.rejected == "bound" and (bound is None or best_s is None or bound < best_s * (1 - TOLERANCE)):
        yield f"{name}: their bound {bound!r} does not say that they are slower"
    if (other.rejected == "plan") != (step is not None):
        yield f"{name}: rejected for {other.rejected}, {'with' if step is not None else 'without'} a step"
    if step is not None and other.stages is not None and abs(sum(other.stages.values()) - step) > TOLERANCE * step:
        yield f"{name}: their stages do not add up to their step"
    if bound is not None and step is not None and bound > step * (1 + TOLERANCE):
        yield f"{name}: their bound {bound!r} is above their step {step!r}"
