"""Kelley's cutting planes: they end at the optimum of the linear program whose dual they solve."""

import numpy as np
import pytest

from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.relaxations import FluidProgram, roomy


def test_the_bound_is_the_optimum_of_the_linear_program() -> None:
    """Within 1e-4 and never above it, on clusters of one and of two kinds, with ample and with tight memory."""
    compared = {1: 0, 2: 0}
    for seed in range(60):
        if (problem := roomy(seed)) is None:
            continue
        expected = FluidProgram(problem).optimum_s()
        found = solve_relaxation(Fluid(problem)).bound_s
        assert found <= expected * (1 + 1e-6), seed
        assert found == pytest.approx(expected, rel=1e-4), seed
        compared[problem.kinds] += 1
    assert min(compared.values()) >= 10


def test_the_best_prices_prove_the_bound_again() -> None:
    """The prices of a solution give its bound by plain arithmetic, and their weights sum to one per stage."""
    for problem in filter(None, map(roomy, range(0, 36, 3))):
        fluid = Fluid(problem)
        solution = solve_relaxation(fluid)
        assert fluid.bound(solution.multipliers)[0] == pytest.approx(solution.bound_s, rel=1e-12)
        own = ~fluid.shared_columns | (np.arange(problem.kinds)[:, None] == 0)
        total = (solution.multipliers.weight * fluid.instances * own).sum(axis=0)
        for stage in np.unique(problem.stage_of_column):
            assert total[problem.stage_of_column == stage].sum() == pytest.approx(1.0)
        assert solution.shares.sum() == pytest.approx(1.0)
        assert (solution.multipliers.byte >= 0).all()


def test_less_memory_never_shortens_the_relaxed_step() -> None:
    """With headroom the fluid optimum is no better than without, and worse where memory is what binds."""
    worse = 0
    for seed in range(90):
        problem = roomy(seed)
        if problem is None or shortage(Fluid(problem), headroom=0.9) is not None:
            continue
        fluid = Fluid(problem)
        full, less = solve_relaxation(fluid).bound_s, solve_relaxation(fluid, headroom=0.9).bound_s
        assert less >= full * (1 - 1e-4), seed
        worse += less > full * (1 + 1e-3)
    assert worse


def test_a_table_is_held_alone_where_that_is_asked() -> None:
    """Held in the stages that its largest block outlasts in the optimum, it raises the bound; no other table is."""
    raised = 0
    for problem in filter(None, map(roomy, range(0, 60, 2))):
        fluid = Fluid(problem)
        plain, every = solve_relaxation(fluid), solve_relaxation(fluid, excess=1e-4)
        for table in sorted({table for table, _ in every.lone})[:2]:
            held = solve_relaxation(fluid, excess=1e-4, among=table)
            assert {table for table, _ in held.lone} <= {table}
            assert held.bound_s >= plain.bound_s * (1 - 1e-3)
            assert held.bound_s == pytest.approx(fluid.bound(held.multipliers)[0], rel=1e-12)
            raised += held.bound_s > plain.bound_s * (1 + 1e-3)
    assert raised > 3
