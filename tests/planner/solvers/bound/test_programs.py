"""Linear programs end, and what becomes of those that no solver ends is never a false claim."""

import numpy as np
import pytest

from planner.solvers.bound import infeasible, master, programs
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import fits, shortage
from planner.solvers.improve import shares
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance

SEEDS = range(24)


def test_every_program_has_an_iteration_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for it: a solver that cycles comes to an end."""
    from ortools.math_opt.python import mathopt

    limits: list[int | None] = []
    solved = mathopt.IncrementalSolver.solve

    def noted(self: object, *, params: mathopt.SolveParameters | None = None, **given: object) -> object:
        limits.append(None if params is None else params.iteration_limit)
        return solved(self, params=params, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(mathopt.IncrementalSolver, "solve", noted)
    for seed in SEEDS:
        solve(tiny_instance(seed).problem, SearchLimits())
    assert limits
    assert None not in limits


@pytest.mark.parametrize("ends_after", [0, 1, 3])
def test_programs_that_do_not_end_prove_nothing_false(monkeypatch: pytest.MonkeyPatch, ends_after: int) -> None:
    """Solvers that give up from the first program on, or after a few: bounds stay below the optimum, what can be placed
    is never said not to fit, and memory that is too small never to suffice."""
    solved, count = programs.optimum, [0]

    def stubborn(*given: object) -> object:
        count[0] += 1
        return solved(*given) if count[0] <= ends_after else None  # type: ignore[arg-type]

    for module in (infeasible, master, shares):
        monkeypatch.setattr(module, "optimum", stubborn)
    for seed in SEEDS:
        problem, count[0] = tiny_instance(seed).problem, 0
        best = optimum(problem)
        found = solve(problem, SearchLimits(gap=0.0))
        if best is None:
            assert found.placement is None
            count[0] = 0
            is_proven = shortage(Fluid(problem)) is not None
            count[0] = 0
            assert not (is_proven and fits(Fluid(problem)))
            continue
        assert found.status != "infeasible"
        assert found.bound_s is not None
        assert found.bound_s <= best.step_s * (1 + 1e-9)
        if found.step_s is not None:
            assert found.step_s >= best.step_s * (1 - 1e-9)
        assert np.isfinite(found.bound_s)
