"""Whether the groups of ranks of a plan are what its policy allows, and what it says of other choices is consistent."""

from collections.abc import Iterator

from cost_models.model import CostModel
from planner.document.plan import Plan
from planner.formulation.replica_choices import candidates
from planner.verification.figures import TOLERANCE
from planner.verification.other_choices import faults_of_other
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
        name, step_s, stages = f"replicas: {other.factor} copies", other.step_s, other.stages
        yield from faults_of_other(plan, name, other)
        if step_s is not None and stages is not None and abs(sum(stages.values()) - step_s) > TOLERANCE * step_s:
            yield f"{name}: the stages do not add up to the step"
