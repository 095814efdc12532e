"""The integer programme of a problem handed to a solver, and what it says as far as its tolerances allow."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING
from planner.solvers.integer.constraints import power_of_two
from planner.solvers.integer.programme import Programme
from planner.solvers.integer.scip import parameters, result_in_time
from planner.solvers.limits import Clock

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

REDUCED_COST = 1e-7
"""By which SCIP's dual solutions may be wrong for each variable: `numerics/dualfeastol`, its default."""


@dataclass(frozen=True)
class Solved:
    """What the solver found and says."""

    placement: Placement | None
    """The best that it found, if it fits and is better than what was known."""
    step_s: float
    """Its step; of no placement, infinite."""
    bound_s: float
    """No placement takes less, the solver says, as far as `longest_s`: rounded down by its tolerances."""
    nodes: int
    """Branch nodes that it looked at."""
    ran_out_of_time: bool


@dataclass(frozen=True)
class SolverLimits:
    """When a solver ends at the latest."""

    gap: float
    """When its placement is within this of what it proves."""
    nodes: int
    """After so many branch nodes."""
    in_vain: int | None = None
    """After so many in which it finds nothing better; None: these do not end it."""
    cuts: bool = True
    """Whether it looks for cutting planes: in a small programme of few nodes these take more than half of its time."""


def solved(
    problem: Problem, scale_s: float, longest_s: float, known: Placement | None, limits: SolverLimits, clock: Clock
) -> Solved:
    """Solve for a placement that takes at most `longest_s`, from a `known` one, if there is one, within the limits or
    until the clock is over.

    `scale_s` is about as long as the step.
    """
    from ortools.math_opt.python import mathopt

    programme = Programme.of(problem, power_of_two(scale_s), longest_s)
    result = _result(programme, known, limits, clock)
    if result is None:
        return Solved(None, math.inf, 0.0, limits.nodes, clock.ran_out)
    used, termination = int(result.solve_stats.node_count), result.termination
    is_timed = termination.limit is mathopt.Limit.TIME
    if termination.reason is mathopt.TerminationReason.INFEASIBLE:
        return Solved(None, math.inf, _rounded_down(programme, longest_s / programme.unit_s), used, is_timed)
    bound_s = min(longest_s, _rounded_down(programme, termination.objective_bounds.dual_bound))
    if not result.has_primal_feasible_solution():
        return Solved(None, math.inf, bound_s, used, is_timed)
    values = result.variable_values()
    placement = programme.placement(np.array([values[variable] for variable in programme.variables.count]))
    state = load_state(problem, placement)
    if state.overflow_bytes() > 0:
        return Solved(None, math.inf, bound_s, used, is_timed)
    return Solved(placement, state.step_s(), bound_s, used, is_timed)


def _rounded_down(programme: Programme, dual_bound: float) -> float:
    """The solver's bound in seconds, less what its tolerances may have added to it.

    The left sides of loads and memories are sums of what is not negative, of which a solver drops what is nearly 0:
    that lets more placements in, and is safe. What is not: a reduced cost that should not be below 0, on any of the
    options and blocks that a solution has, or of its stages.
    """
    if not math.isfinite(dual_bound):
        return math.inf if dual_bound > 0 else 0.0
    choices = programme.variables.choices
    at_most = choices.problem.tables + choices.most_blocks + len(programme.variables.stage)
    return max(0.0, dual_bound - at_most * REDUCED_COST) * (1 - ROUNDING) * programme.unit_s


def _result(
    programme: Programme, known: Placement | None, limits: SolverLimits, clock: Clock
) -> "mathopt.SolveResult | None":
    """What the solver says; None where it breaks down, or is left alone because somebody said stop."""
    from ortools.math_opt.python import mathopt

    told = parameters(limits.nodes, clock)
    told.relative_gap_tolerance, told.absolute_gap_tolerance = limits.gap, 0.0
    if not limits.cuts:
        told.cuts = mathopt.Emphasis.OFF
    if limits.in_vain is not None:
        told.gscip.long_params["limits/stallnodes"] = limits.in_vain
    return result_in_time(programme.model, told, [] if known is None else [programme.hint(known)], clock)
