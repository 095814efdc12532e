"""The bound of a question, without a search for a plan."""

from planner.formulation.question import Question
from planner.planning.pipeline import Pipeline, Steps
from planner.planning.protocols import relaxed_s
from planner.planning.time_limit import TimeLimit
from planner.solvers.incumbent import Progress
from planner.solvers.limits import SearchLimits


def bound_of_question(question: Question, limits: SearchLimits, progress: Progress | None) -> float | None:
    """The bound of a question that leaves no choice of replicas, under all exchanges that it leaves open; None where
    nothing fits among its usual options."""
    clock = TimeLimit(limits.time_limit_s, limits.stop)
    pipeline = Pipeline(question.policy, limits, Steps(), progress)
    first, *others = map(question.settled, question.exchanges)
    tell = progress or (lambda *_: None)
    formulation = pipeline.refined(first.formulation(tell), has_time=clock.has_time)
    bounds = []
    for each in (formulation, *(formulation.under(other.model()) for other in others)):
        seconds = relaxed_s(each)
        if seconds is None:
            return None
        bounds.append(each.model.whole_step_s(seconds))
    return min(bounds)
