"""Linear programs through MathOpt, whatever state a solver ends in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

MOST_ITERATIONS = 20_000
"""Of one solver: GLOP has been seen to go round in circles."""


def optimum(model: "mathopt.Model", solver: "mathopt.IncrementalSolver") -> "mathopt.SolveResult | None":
    """Solve on from the last optimum; afresh, by one solver and then another, where that ends in an imprecise answer.

    None where all of them give up.
    """
    from ortools.math_opt.python import mathopt

    limit = mathopt.SolveParameters(iteration_limit=MOST_ITERATIONS)
    afresh = (mathopt.SolverType.GLOP, mathopt.SolverType.HIGHS)
    for attempt in (
        lambda: solver.solve(params=limit),
        *(lambda kind=kind: mathopt.solve(model, kind, params=limit) for kind in afresh),
    ):
        result = _finished(attempt)
        if result is not None and result.termination.reason is mathopt.TerminationReason.OPTIMAL:
            return result
    return None


def _finished(attempt: "Callable[[], mathopt.SolveResult]") -> "mathopt.SolveResult | None":
    """The result of a solver; None where it breaks down.

    MathOpt turns a status that is not OK into an AttributeError, or an error of its own (or-tools issue 4606).
    """
    try:
        return attempt()
    except (AttributeError, RuntimeError, ValueError):
        return None
