"""The best of several choices of replicas, with what was found of the others."""

from collections.abc import Sequence

from cost_models.replicas import Replicas
from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas
from planner.formulation.question import Question
from planner.planning.choices import Bounded, Choices, Found, Planned
from planner.solvers.incumbent import Progress
from planner.solvers.limits import SearchLimits


def best_of_replicas(
    questions: Sequence[Question],
    bounded: Bounded,
    planned: Planned,
    limits: SearchLimits,
    progress: Progress | None,
) -> Plan:
    """The plan with the shortest step, of the fewest copies among equals, with what was found of the other choices; see
    `Choices.searched`."""
    choices = Choices(questions, [each.groups for each in questions])
    taken, every = choices.searched(bounded, planned, limits, progress)
    others = [_other(questions[number], each) for number, each in enumerate(every) if number != taken]
    best = every[taken].plan
    assert best is not None
    assert best.replicas is not None
    return best.model_copy(update={"replicas": best.replicas.model_copy(update={"others": tuple(others)})})


def of_each_group(bounded: Bounded, planned: Planned) -> tuple[Bounded, Planned]:
    """The same of questions that leave a choice of replicas: the least bound of these choices, and the best plan."""

    def bounded_of_all(question: Question, tell: Progress) -> float | None:
        bounds = [bounded(each, tell) for each in question.choices_of_replicas()]
        known = [each for each in bounds if each is not None]
        return min(known) if len(known) == len(bounds) else None

    def planned_of_all(question: Question, limits: SearchLimits, tell: Progress) -> Plan:
        return best_of_replicas(question.choices_of_replicas(), bounded, planned, limits, tell)

    return bounded_of_all, planned_of_all


def _other(question: Question, found: Found) -> OtherReplicas:
    """What was found of a choice that is not taken."""
    assert question.chosen is not None
    (replicas,) = question.chosen
    return as_other(replicas, found.plan, found.bound_s)


def as_other(replicas: Replicas | None, plan: Plan | None, out_by_s: float | None = None) -> OtherReplicas:
    """A plan for a choice of replicas, or the bound by which it was out, as the document of another plan has it; of
    neither, that there was no time."""
    chosen = {"factor": 1, "layout": None} if replicas is None else replicas.model_dump(include={"factor", "layout"})
    rejected = Found(plan, out_by_s).rejected
    if plan is None or plan.objective is None or out_by_s is not None:
        return OtherReplicas(**chosen, rejected=rejected, lower_bound_s=out_by_s, step_s=None)
    return OtherReplicas(
        **chosen,
        rejected="plan",
        lower_bound_s=plan.objective.lower_bound_s,
        step_s=plan.objective.step_s,
        stages={stage.name: stage.seconds for stage in plan.stages},
        fullest_bytes=max(rank.bytes["hbm"] for rank in plan.ranks),
    )
