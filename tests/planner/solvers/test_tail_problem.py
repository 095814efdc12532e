"""The mean of several scenarios as one problem: its step is the mean of theirs, whatever is placed."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.tail_problem import mean_problem
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placement


def _scaled(problem: Problem, factor: float, *, stage_s: float | None = None) -> Problem:
    """Other seconds, and a stage more that takes so long whatever is placed."""
    constants = problem.stage_constants * factor
    return replace(
        problem,
        stage_constants=constants if stage_s is None else np.append(constants, stage_s),
        base_loads=problem.base_loads * factor,
        fixed=problem.fixed * factor,
        by_rows=problem.by_rows * factor**2,
        everywhere=problem.everywhere * factor,
    )


@pytest.mark.parametrize("seed", range(12))
def test_its_step_is_the_mean_of_the_scenarios(seed: int) -> None:
    """Bytes stay as they are; one scenario has a stage more than the others."""
    problem = tiny_instance(seed).problem
    scenarios = [_scaled(problem, 0.7), _scaled(problem, 1.3, stage_s=0.25), _scaled(problem, 2.0)]
    mean = mean_problem(problem, scenarios)
    placement = random_placement(problem, np.random.default_rng(seed))
    steps = [load_state(each, placement).step_s() for each in scenarios]
    assert load_state(mean, placement).step_s() == pytest.approx(np.mean(steps))
    assert (load_state(mean, placement).free == load_state(problem, placement).free).all()
