"""SCIP: ends with a clock, and says what it found by then."""

import itertools
import time

from ortools.math_opt.python import mathopt

from planner.solvers.integer.scip import solved
from planner.solvers.limits import Clock, SearchLimits

AT_ONCE_S = 12.0


def steiner(points: int) -> mathopt.Model:
    """Cover each pair of three points in a row of a hard covering problem: nobody proves it in seconds."""
    model = mathopt.Model()
    taken = [model.add_binary_variable() for _ in range(points)]
    for a, b in itertools.combinations(range(points), 2):
        model.add_linear_constraint(taken[a] + taken[b] + taken[(3 * a + 5 * b) % points] >= 1.0 + (a * b) % 2)
    model.minimize(mathopt.fast_sum([(1.0 + 0.01 * (i * 7 % 13)) * each for i, each in enumerate(taken)]))
    return model


def test_a_solver_is_left_alone_when_somebody_says_stop() -> None:
    model = steiner(300)
    began = time.monotonic()
    left = iter([False, True])
    solved(model, 10**9, Clock(SearchLimits(stop=lambda: next(left, True))))
    assert time.monotonic() - began < AT_ONCE_S


def test_time_ends_it_with_what_it_has() -> None:
    model = steiner(300)
    began = time.monotonic()
    values = solved(model, 10**9, Clock(SearchLimits(time_limit_s=1.0)))
    assert time.monotonic() - began < AT_ONCE_S
    assert values is not None


def test_what_has_no_solution_has_none() -> None:
    model = mathopt.Model()
    one = model.add_binary_variable()
    model.add_linear_constraint(one >= 2.0)
    assert solved(model, 10, Clock(SearchLimits())) is None
