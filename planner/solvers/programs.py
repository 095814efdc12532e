"""Linear programs through MathOpt, whatever state a solver ends in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt


def optimum(
    model: "mathopt.Model", solver: "mathopt.IncrementalSolver", most_iterations: int | None = None
) -> "mathopt.SolveResult | None":
    """Solve on from the last optimum; afresh, by one solver and then another, where that ends in an imprecise answer.

    None where all of them give up, each after `most_iterations` if that is given: GLOP has been seen to cycle.
    """
    from ortools.math_opt.python import mathopt

    limits = {} if most_iterations is None else {"params": mathopt.SolveParameters(iteration_limit=most_iterations)}
    afresh = (mathopt.SolverType.GLOP, mathopt.SolverType.HIGHS)
    attempts = [
        lambda: solver.solve(**limits),
        *(lambda kind=kind: mathopt.solve(model, kind, **limits) for kind in afresh),
    ]
    for attempt in attempts:
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
