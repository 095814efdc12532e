"""The master program: its optimum over the cuts is a bound of all multipliers."""

import pytest
from ortools.math_opt.python import mathopt

from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from tests.oracles.relaxations import roomy


class ImpreciseSolver:
    """GLOP with a warm start that always ends as IMPRECISE, as it does now and then."""

    def __init__(self, *given: object) -> None:
        self._solver = INCREMENTAL_SOLVER(*given)

    def solve(self, *, params: mathopt.SolveParameters) -> mathopt.SolveResult:
        result = self._solver.solve(params=params)
        result.termination.reason = mathopt.TerminationReason.IMPRECISE
        return result


INCREMENTAL_SOLVER = mathopt.IncrementalSolver


def test_an_imprecise_linear_program_is_solved_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is the same without a single precise warm start."""
    for problem in list(filter(None, map(roomy, range(12))))[:5]:
        expected = solve_relaxation(Fluid(problem)).bound_s
        with monkeypatch.context() as patched:
            patched.setattr(mathopt, "IncrementalSolver", ImpreciseSolver)
            assert solve_relaxation(Fluid(problem)).bound_s == pytest.approx(expected, rel=1e-4)
