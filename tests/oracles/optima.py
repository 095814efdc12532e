"""Tiny problems with the optimum that brute force finds, and what a search of one begins with."""

import functools

import numpy as np

from planner.problem.arrays import Problem
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance


@functools.cache
def tiny_optima(first: int, last: int, step: int = 1) -> list[tuple[Problem, float]]:
    """Return the tiny problems of some seeds whose relaxation has a solution, with their optimum; infinite for none."""
    optima = []
    for seed in range(first, last, step):
        problem = tiny_instance(seed).problem
        if len(np.unique(problem.option_table)) == problem.tables and shortage(Fluid(problem)) is None:
            best = optimum(problem)
            optima.append((problem, np.inf if best is None else best.step_s))
    return optima


def solvable_problems() -> list[tuple[Problem, float]]:
    """Return 45 seeds' tiny problems that have a placement, with their optimum."""
    return [(problem, best_s) for problem, best_s in tiny_optima(0, 45) if np.isfinite(best_s)]
