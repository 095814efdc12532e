"""The master program: its optimum over the cuts is a bound of all multipliers."""

import numpy as np
import pytest

from planner.certificates.multipliers import Multipliers
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.master import Master
from planner.solvers.bound.programs import LinearProgram
from tests.oracles.relaxations import roomy
from tests.properties.test_tiny_instances import random_prices


def test_an_imprecise_linear_program_is_solved_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is the same without a single precise warm start."""
    for problem in list(filter(None, map(roomy, range(12))))[:5]:
        expected = solve_relaxation(Fluid(problem)).bound_s
        with monkeypatch.context() as patched:
            patched.setattr(LinearProgram, "solve_on", lambda *_: None)
            assert solve_relaxation(Fluid(problem)).bound_s == pytest.approx(expected, rel=1e-4)


def test_no_multipliers_prove_more_than_the_program_says() -> None:
    """After a few cuts: the value of the program, constants added, is above the bound of any multipliers."""
    for seed, problem in enumerate(filter(None, map(roomy, range(20)))):
        fluid, random = Fluid(problem), np.random.default_rng(seed)
        master = Master(problem, fluid.instances, fluid.shared_columns, fluid.capacity, fluid.floors)
        multipliers, ceilings = master.start(), [np.inf]
        for _ in range(6):
            master.add_cut(*fluid.usage(multipliers, fluid.bound(multipliers)[1]), [])
            solved = master.attempt()
            assert solved is not None
            multipliers = solved[0]
            ceilings.append(solved[1] + float(problem.stage_constants.sum()))
        assert (np.diff(ceilings[1:]) <= 1e-6 * abs(ceilings[1])).all()
        assert master.shares().sum() == pytest.approx(1.0)
        for _ in range(5):
            drawn = random_prices(problem, random, ceilings[-1])
            plain = Multipliers(drawn.weight, drawn.byte)
            assert fluid.bound(plain)[0] <= ceilings[-1] * (1 + 1e-6)
