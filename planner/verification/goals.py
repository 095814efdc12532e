"""Whether a plan reaches the goals of its policy as far as its document says, and within their tolerances."""

from collections.abc import Iterator

import numpy as np

from planner.document.goals import goal_value
from planner.document.plan import Plan
from planner.problem.goals import CROWDED

TOLERANCE = 1e-6
"""Relative difference that rounded bytes, and a search at other protocols, may make."""


def faults_of_goals(plan: Plan) -> Iterator[str]:
    """What a document says of goals and its tables and ranks do not; values beyond the tolerance of their best."""
    asked = plan.provenance.policy.goals or ()
    if [(each.name, each.tolerance) for each in plan.goals] != [(goal.name, goal.share) for goal in asked]:
        yield "goals: not those of the policy, in its order, with its tolerances"
        return
    for goal in plan.goals:
        if goal.name == "crowded_ranks":  # a rank may be crowded by less than its bytes are rounded by
            least, most = (goal_value(plan, goal.name, CROWDED * factor) for factor in (1 + TOLERANCE, 1 - TOLERANCE))
        else:
            least = most = goal_value(plan, goal.name)
        if not least - TOLERANCE * least <= goal.value <= most + TOLERANCE * most:
            yield f"goals: {goal.name} is {most!r}, the document says {goal.value!r}"
        if goal.value > goal.best * (1 + goal.tolerance + TOLERANCE) and not np.isclose(goal.value, goal.best):
            yield f"goals: {goal.name} is {goal.value!r}, beyond {goal.tolerance:.3%} of its best {goal.best!r}"
        if goal.name == "step" and plan.objective is not None:
            best_s = plan.objective.best_step_s or plan.objective.step_s
            if not np.isclose(goal.best, best_s, rtol=TOLERANCE, atol=0.0):
                yield f"goals: the best step is {best_s!r} by the objective, the document says {goal.best!r}"
