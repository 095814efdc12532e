"""What a plan for groups of ranks is measured against: the best plan that is found for all ranks as one world."""

from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.document.replicas import OtherReplicas
from planner.planning.planning import plan
from planner.planning.replica_choice import as_other


def beside_one_world(planned: Plan) -> tuple[OtherReplicas, ...]:
    """The other choices of a plan for groups of ranks, with a plan for one world among them; none for one world.

    It is searched for as `planner plan --effort 1` does, under the plan's policy and seed.
    """
    groups, origin = planned.replicas, planned.provenance
    if groups is None or groups.is_one_world:
        return () if groups is None else groups.others
    others = tuple(each for each in groups.others if each.layout is not None or each.step_s is not None)
    if any(each.layout is None for each in others):
        return others
    policy = origin.policy.model_copy(update={"replicas": None})
    inputs = planned_inputs(planned)
    one = plan(
        *inputs,
        cost_model=origin.cost_model,
        policy=policy,
        effort=1,
        seed=origin.seed,
        seeds=origin.seeds,
        simulate=False,
    )
    return (as_other(None, one), *others)
