"""Linear programs end, and what becomes of those that no solver ends is never a false claim."""

import numpy as np
import pytest

from planner.solvers.bound import infeasible, master, programs
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import fits, shortage
from planner.solvers.bound.programs import LinearProgram, Optimum
from planner.solvers.bound.programs import optimum as optimal
from planner.solvers.improve import shares
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance

SEEDS = range(24)


def test_every_program_has_an_iteration_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for it: a solver that cycles comes to an end."""
    limits: list[int] = []
    solved = LinearProgram.solve_on

    def noted(self: LinearProgram, most_iterations: int) -> Optimum | None:
        limits.append(most_iterations)
        return solved(self, most_iterations)

    monkeypatch.setattr(LinearProgram, "solve_on", noted)
    for seed in SEEDS:
        solve(tiny_instance(seed).problem, SearchLimits())
    assert limits
    assert min(limits) > 0


def test_too_few_iterations_are_no_optimum() -> None:
    """The limit reaches the solver: what cannot end within it is not called optimal."""
    random, program = np.random.default_rng(1), LinearProgram(maximize=True)
    variables = program.add_variables(20, is_counted=True)
    for _ in range(20):
        program.add_row(variables, random.uniform(0.1, 1.0, 20), -np.inf, 1.0)
    assert program.solve_on(1) is None
    assert program.solve_on(1000) is not None


def _program_of_two() -> LinearProgram:
    """The largest x + y with x + 2 y <= 4 and 3 x + y <= 6: 1.6 and 1.2."""
    program = LinearProgram(maximize=True)
    program.add_variables(2, is_counted=True)
    program.add_row([0, 1], [1.0, 2.0], -np.inf, 4.0)
    program.add_row([1, 0], [1.0, 3.0], -np.inf, 6.0)
    return program


def test_a_program_and_its_prices() -> None:
    """Worked out by hand: the values, and what a unit more of each limit brings."""
    found = optimal(_program_of_two())
    assert found is not None
    assert found.values == pytest.approx([1.6, 1.2])
    assert found.duals == pytest.approx([0.4, 0.2])


def test_a_smallest_sum() -> None:
    """Minimised where that is asked."""
    program = LinearProgram(maximize=False)
    (variable,) = program.add_variables(1, is_counted=True)
    program.add_row([variable], [2.0], 3.0, np.inf)
    found = optimal(program)
    assert found is not None
    assert found.values == pytest.approx([1.5])


def test_a_program_grows_between_solves() -> None:
    """New rows, new variables in old rows and in new ones, new limits: each time the optimum of the whole, the same as
    that of solvers which know nothing yet."""
    from ortools.math_opt import parameters_pb2

    random = np.random.default_rng(3)
    program = LinearProgram(maximize=True)
    variables = program.add_variables(4, upper=2.0, is_counted=True)
    program.add_row(variables, np.ones(4), -np.inf, 5.0)
    for step in range(12):
        found = optimal(program)
        others = [
            program.solve_afresh(kind, 10_000)
            for kind in (parameters_pb2.SOLVER_TYPE_GLOP, parameters_pb2.SOLVER_TYPE_HIGHS)
        ]
        assert found is not None
        for other in others:
            assert other is not None
            assert other.values[variables].sum() == pytest.approx(found.values[variables].sum())
        row = program.add_row(variables, random.uniform(-1.0, 2.0, len(variables)), -np.inf, 3.0)
        new = program.add_variables(1, upper=1.0, is_counted=True)
        for of in (0, row):
            program.append(of, new[0], float(random.uniform(0.5, 1.5)))
        program.limit(variables[step % 4], float(random.uniform(0.5, 2.0)))
        program.limit(new[0], 0.5)
        variables += new


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
