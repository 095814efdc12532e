"""The best of several strategies of the dense part, with what was found of the others."""

import math
from collections.abc import Sequence

from planner.document.dense import OtherDense, TrainedDense
from planner.document.plan import Plan
from planner.formulation.dense_choices import leanest
from planner.formulation.question import Question
from planner.planning.choices import Bounded, Choices, Found, Planned
from planner.solvers.incumbent import Progress
from planner.solvers.limits import Clock, SearchLimits


def best_of_dense(
    questions: Sequence[Question],
    bounded: Bounded,
    planned: Planned,
    limits: SearchLimits,
    progress: Progress | None,
) -> Plan:
    """The plan with the shortest step, replicated before sharded among equals, with what was found of the other
    strategies; where nothing fits, that of the least bytes says why. See `Choices.searched`. From the best of one
    strategy for all layers on, each layer has its own where that is worth it (`layer_choice`)."""
    from planner.planning.layer_choice import by_layer, with_layer_bound

    clock, workloads = Clock(limits), [each.workload for each in questions]
    roomiest = leanest(questions[0].topology, workloads)
    choices = Choices(questions, [TrainedDense.stated_by(each).words for each in workloads], roomiest)
    taken, every = choices.searched(bounded, planned, limits, progress)
    whole = every[taken].plan
    assert whole is not None
    best = by_layer(whole, questions[taken], bounded, planned, limits.left_of(clock), progress)
    others = [_other(questions[number], each) for number, each in enumerate(every) if number != taken or best != whole]
    assert best.dense is not None
    best = best.model_copy(update={"dense": best.dense.model_copy(update={"others": tuple(others)})})
    return with_layer_bound(best)


def best_of_robust(
    questions: Sequence[Question], planned: Planned, limits: SearchLimits, progress: Progress | None
) -> Plan:
    """The robust plan with the smallest quantile of the step, the first of equals, with what was found of the others;
    where nothing fits, that of the least bytes says why. No bound of the step at the means rules a quantile out, so
    that each is planned."""
    clock, workloads = Clock(limits), [each.workload for each in questions]
    words = [TrainedDense.stated_by(each).words for each in workloads]

    def tell_of(number: int) -> Progress:
        return lambda step, best_s, _: progress(f"{words[number]}: {step}", best_s, None) if progress else None

    plans = [planned(each, limits.left_of(clock), tell_of(number)) for number, each in enumerate(questions)]
    ranked = [(_overfull(plan), quantile_s(plan), number) for number, plan in enumerate(plans)]
    taken = min(ranked)[-1] if any(plan.robust for plan in plans) else leanest(questions[0].topology, workloads)
    others = [_other(questions[n], Found(plan, None)) for n, plan in enumerate(plans) if n != taken]
    best = plans[taken]
    assert best.dense is not None
    return best.model_copy(update={"dense": best.dense.model_copy(update={"others": tuple(others)})})


def quantile_s(plan: Plan) -> float:
    """The quantile of a robust plan's step in the scenarios that it was sought in; infinite without one."""
    return math.inf if plan.robust is None else plan.robust.sampled.planned.quantile_s


def _overfull(plan: Plan) -> float:
    overfull = None if plan.robust is None else plan.robust.sampled.planned.overfull
    return math.inf if overfull is None else overfull


def _other(question: Question, found: Found) -> OtherDense:
    """What was found of a strategy that is not taken."""
    chosen, plan = TrainedDense.stated_by(question.workload).model_dump(), found.plan
    if plan is None or plan.objective is None or found.bound_s is not None:
        return OtherDense(**chosen, rejected=found.rejected, lower_bound_s=found.bound_s, step_s=None)
    return OtherDense(
        **chosen,
        rejected="plan",
        lower_bound_s=plan.objective.lower_bound_s,
        step_s=plan.objective.step_s,
        fullest_bytes=max(rank.bytes["hbm"] for rank in plan.ranks),
    )
