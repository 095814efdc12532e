"""SCIP, through MathOpt: on one thread and for so many branch nodes, so that it repeats, unless a clock is over before.

Of the solvers that come with MathOpt and take integers, SCIP ends at the same node on every run, and writes nothing of
its own; HiGHS takes as long, and now and then prints on stdout; CP-SAT refuses a limit of nodes.
"""

import contextlib
import datetime
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.solvers.limits import Clock

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

SOLVER = "SCIP"
FEASIBILITY = 1e-9
"""By which a solution may break a constraint: of a memory's bytes, or of the step. What breaks a memory is refused."""
POLLED_S, GRACE_S = 0.05, 2.0
"""How often it is asked whether to stop, and how long is waited for a solver whose time is up."""


def solved(
    model: "mathopt.Model", nodes: int, clock: Clock, known: "dict[mathopt.Variable, float] | None" = None
) -> "dict[mathopt.Variable, float] | None":
    """Return the best solution that is found, of one that is `known` and others; None where there is none after so many
    branch nodes, or in time."""
    from ortools.math_opt.python import mathopt

    hints = [] if known is None else [mathopt.SolutionHint(variable_values=known)]
    result = result_in_time(model, parameters(nodes, clock), hints, clock)
    if result is None or not result.has_primal_feasible_solution():
        return None
    return dict(result.variable_values())


def parameters(nodes: int, clock: Clock) -> "mathopt.SolveParameters":
    """Return what SCIP is told of so many branch nodes, and of the time that is left."""
    from ortools.math_opt.python import mathopt

    limit = datetime.timedelta(seconds=clock.left_s()) if math.isfinite(clock.left_s()) else None
    told = mathopt.SolveParameters(threads=1, random_seed=0, node_limit=nodes, time_limit=limit)
    told.gscip.real_params["numerics/feastol"] = FEASIBILITY
    return told


def result_in_time(
    model: "mathopt.Model",
    told: "mathopt.SolveParameters",
    hints: "Sequence[mathopt.SolutionHint]",
    clock: Clock,
) -> "mathopt.SolveResult | None":
    """Return what the solver says; None where it breaks down, or is left alone because somebody said stop.

    It hears neither of signals nor of its time from here, so it works beside: what was asked to stop goes on.
    """
    from ortools.math_opt.python import mathopt

    results: list[mathopt.SolveResult] = []
    start = mathopt.ModelSolveParameters(solution_hints=list(hints))

    def work() -> None:
        # MathOpt turns a status that is not OK into an AttributeError, or an error of its own (or-tools issue 4606)
        with contextlib.suppress(AttributeError, RuntimeError, ValueError):
            results.append(mathopt.solve(model, mathopt.SolverType.GSCIP, params=told, model_params=start))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive() and not clock.is_over():
        worker.join(POLLED_S)
    if clock.ran_out:
        worker.join(GRACE_S)
    return results[0] if results else None
