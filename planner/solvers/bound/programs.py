"""Linear programs solved by the simplex method through MathOpt, whatever state a solver ends in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

LEAST_ITERATIONS, ITERATIONS_PER_LINE = 5_000, 50
"""Simplex iterations at most: the former, and the latter for each variable and constraint. The programs of DLRM-DCN
v2 and Model-F on 128 ranks and `hugectr-180` on 8 end after 218 at most, and 0.4 for each variable and constraint."""


def optimum(
    model: "mathopt.Model", solver: "mathopt.IncrementalSolver", most_iterations: int | None = None
) -> "mathopt.SolveResult | None":
    """Solve on from the last optimum; afresh, by one solver and then another, where that ends in an imprecise answer.

    None where all of them give up, each after `most_iterations`, or as many as no program that ends has been seen to
    take: GLOP cycles now and then.
    """
    from ortools.math_opt.python import mathopt

    if most_iterations is None:
        lines = model.get_num_variables() + model.get_num_linear_constraints()
        most_iterations = LEAST_ITERATIONS + ITERATIONS_PER_LINE * lines
    limits = {
        "params": mathopt.SolveParameters(iteration_limit=most_iterations),
        # nobody reads reduced costs
        "model_params": mathopt.ModelSolveParameters(reduced_costs_filter=mathopt.VariableFilter(filtered_items=())),
    }
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
