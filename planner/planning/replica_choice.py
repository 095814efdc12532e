"""The best of several choices of replicas: a plan for each, or as much of a search as its bound needs to be out."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas, Rejected
from planner.formulation.question import Question
from planner.solvers.incumbent import Progress
from planner.solvers.limits import Clock, SearchLimits

Planned = Callable[[Question, SearchLimits, Progress], Plan]


class _Judged:
    """One choice while its plan is sought: out as soon as its bound reaches the best step of the others."""

    def __init__(self, words: str, best_s: float | None, limits: SearchLimits, progress: Progress | None) -> None:
        self._words, self._best_s, self._limits, self._progress = words, best_s, limits, progress
        self.bound_s: float | None = None
        """The bound that says that it is out."""

    def tell(self, step: str, best_s: float | None, bound_s: float | None) -> None:
        """Hear how far the search is."""
        if self._progress is not None:
            self._progress(f"{self._words}: {step}", best_s, bound_s)
        is_out = self._best_s is not None and bound_s is not None and bound_s >= self._best_s
        if is_out and self.bound_s is None:
            self.bound_s = bound_s

    def stop(self) -> bool:
        """Whether to go no further."""
        return self.bound_s is not None or (self._limits.stop is not None and self._limits.stop())


def best_of_replicas(
    questions: Sequence[Question], planned: Planned, limits: SearchLimits, progress: Progress | None
) -> Plan:
    """The plan with the shortest step, of the fewest copies among equals, with what was found of the other choices.

    Where no choice has a plan, that of the last one says why. The search for all of them keeps to the limits.
    """
    clock = Clock(limits)
    found: list[tuple[Question, Plan, float | None]] = []
    best_s: float | None = None
    for question in questions:
        judged = _Judged(_words(question), best_s, limits, progress)
        plan = planned(question, replace(limits.left_of(clock), stop=judged.stop), judged.tell)
        found.append((question, plan, judged.bound_s))
        if plan.objective is not None and judged.bound_s is None:
            best_s = plan.objective.step_s if best_s is None else min(best_s, plan.objective.step_s)
    in_time = [plan for _, plan, bound_s in found if bound_s is None]
    placed = [plan for plan in in_time if plan.objective is not None]
    best = min(placed, key=_step_s) if placed else in_time[-1]
    others = [_other(*each) for each in found if each[1] is not best]
    assert best.replicas is not None
    return best.model_copy(update={"replicas": best.replicas.model_copy(update={"others": tuple(others)})})


def _words(question: Question) -> str:
    assert question.chosen is not None
    (replicas,) = question.chosen
    return "one world" if replicas is None else replicas.words


def _step_s(plan: Plan) -> float:
    assert plan.objective is not None
    return plan.objective.step_s


def _other(question: Question, plan: Plan, bound_s: float | None) -> OtherReplicas:
    """What was found of a choice that is not taken; `bound_s` is the bound by which it was out, if it was."""
    assert question.chosen is not None
    (replicas,) = question.chosen
    of_choice = (
        {"factor": 1, "layout": None} if replicas is None else {"factor": replicas.factor, "layout": replicas.layout}
    )
    if bound_s is not None:
        return OtherReplicas(**of_choice, rejected="bound", lower_bound_s=bound_s, step_s=None)
    if plan.objective is None:
        rejected: Rejected = "infeasible" if plan.status == "infeasible" else "timeout"
        return OtherReplicas(**of_choice, rejected=rejected, lower_bound_s=None, step_s=None)
    found = plan.objective
    return OtherReplicas(
        **of_choice,
        rejected="plan",
        lower_bound_s=found.lower_bound_s,
        step_s=found.step_s,
        stages={stage.name: stage.seconds for stage in plan.stages},
        fullest_bytes=max(rank.bytes["hbm"] for rank in plan.ranks),
    )
