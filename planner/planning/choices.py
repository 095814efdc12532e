"""The best of several questions that differ in one choice: a plan for each, or as much of a search as its bound needs
to be out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.document.plan import Plan
from planner.document.replicas import Rejected
from planner.formulation.question import Question
from planner.solvers.incumbent import Progress
from planner.solvers.limits import Clock, SearchLimits

Bounded = Callable[[Question, Progress], float | None]
"""The bound of a question without a search for a plan; None where nothing fits among its usual options."""
Planned = Callable[[Question, SearchLimits, Progress], Plan]


class _Judged:
    """One choice while its plan is sought: it is out once its bound reaches the best step of the others, `best_s`."""

    def __init__(self, words: str, best_s: float, limits: SearchLimits, progress: Progress | None) -> None:
        self._words, self._best_s, self._limits, self._progress = words, best_s, limits, progress
        self.bound_s: float | None = None
        """The bound by which it is out."""

    def tell(self, step: str, best_s: float | None, bound_s: float | None) -> None:
        """Hear how far the search is."""
        if self._progress is not None:
            self._progress(f"{self._words}: {step}", best_s, bound_s)
        if self.bound_s is None and bound_s is not None and bound_s >= self._best_s:
            self.bound_s = bound_s

    def stop(self) -> bool:
        """Whether to go no further."""
        return self.bound_s is not None or (self._limits.stop is not None and self._limits.stop())


@dataclass(frozen=True)
class Found:
    """What was found of a choice: a plan, or the bound by which it is out, or none of them in time."""

    plan: Plan | None
    bound_s: float | None

    @property
    def step_s(self) -> float:
        """Of the plan; infinite where there is none."""
        return math.inf if self.plan is None or self.plan.objective is None else self.plan.objective.step_s

    @property
    def rejected(self) -> Rejected:
        """Why it is not the one that is taken."""
        if self.bound_s is not None:
            return "bound"
        if self.plan is None or self.plan.objective is None:
            return "infeasible" if self.plan is not None and self.plan.status == "infeasible" else "timeout"
        return "plan"


@dataclass(frozen=True)
class Choices:
    """Questions, each with its choice in words, the simplest first."""

    questions: Sequence[Question]
    words: Sequence[str]
    roomiest: int = 0
    """The one that says why, where nothing fits."""

    def searched(
        self, bounded: Bounded, planned: Planned, limits: SearchLimits, progress: Progress | None
    ) -> tuple[int, list[Found]]:
        """The one with the shortest step, the first of equals, and what was found of each.

        Each choice is bounded; then they are planned in the order of their bounds, until the bounds of all others say
        that they are slower. Where no choice has a plan, that of the `roomiest` says why, if it was sought. The search
        for all of them keeps to the limits: one that they end before anything was planned plans for the roomiest.
        """
        questions, clock = self.questions, Clock(limits)
        found: dict[int, Found] = {}
        best_s = math.inf

        def search(number: int) -> None:
            nonlocal best_s
            judged = _Judged(self.words[number], best_s, limits, progress)
            plan = planned(questions[number], replace(limits.left_of(clock), stop=judged.stop), judged.tell)
            found[number] = Found(plan if judged.bound_s is None else None, judged.bound_s)
            best_s = min(best_s, found[number].step_s)

        bounds: dict[int, float] = {}
        for number, question in enumerate(questions):
            if clock.is_over():
                break
            bound_s = bounded(question, _Judged(self.words[number], best_s, limits, progress).tell)
            if bound_s is None:
                search(number)
            else:
                bounds[number] = bound_s
        for number in sorted(bounds, key=bounds.__getitem__):
            if bounds[number] >= best_s:
                found[number] = Found(None, bounds[number])
            elif not clock.is_over():
                search(number)
        if all(each.plan is None for each in found.values()):
            search(self.roomiest)
        every = [found.get(number, Found(None, None)) for number in range(len(questions))]
        planned_for = [number for number, each in enumerate(every) if each.plan]
        best = min(every[number].step_s for number in planned_for)
        if math.isinf(best) and self.roomiest in planned_for:
            return self.roomiest, every
        return next(number for number in planned_for if every[number].step_s == best), every
