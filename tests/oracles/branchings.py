"""Trees of branch nodes of small problems, for whoever checks or changes them."""

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats
from planner.solvers.bound.branching import BranchingResult, StopRule, branch
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import least_of_stages, tighten

NODES = 60


def branched(problem: Problem, step_s: float) -> tuple[BranchingResult, Floats]:
    """The tree below a known step, and the seconds that every plan takes in each stage."""
    fluid = Fluid(problem)
    bound = tighten(fluid, solve_relaxation(fluid), step_s)
    least = least_of_stages(fluid, bound.multipliers)
    return branch(problem, bound.multipliers, least, step_s, StopRule(NODES)), least
