"""Thresholds: bounds that the dual-approximation argument raises, never above the optimum."""

import numpy as np
import pytest

from planner.problem.load_state import load_state
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import least_of_stages, step_of_block, tighten
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import tiny_placement
from tests.oracles.relaxations import roomy


def test_a_threshold_raises_the_bound_up_to_the_optimum() -> None:
    """Relaxation ≤ tightened ≤ optimum, with multipliers that prove it again; many are raised by more than a hair."""
    raised = 0
    for seed in range(0, 60, 2):
        problem = tiny_instance(seed).problem
        best = optimum(problem)
        if best is None:
            continue
        fluid = Fluid(problem)
        relaxed = solve_relaxation(fluid)
        bound = tighten(fluid, relaxed, best.step_s)
        assert relaxed.bound_s <= bound.seconds <= best.step_s * (1 + 1e-12)
        if bound.threshold_s is not None:
            usable = step_of_block(fluid, bound.multipliers) < bound.threshold_s
            proven_s = min(bound.threshold_s, fluid.bound(bound.multipliers, usable)[0])
            assert proven_s == pytest.approx(bound.seconds, rel=1e-12)
        raised += bound.seconds > relaxed.bound_s * 1.001
    assert raised > 5


def test_no_plan_is_faster_than_its_blocks_and_stages() -> None:
    """Legal random placements take as long as any of their blocks demands, and every stage its least seconds."""
    compared = 0
    for seed in range(80):
        placed = tiny_placement(seed)
        if placed is None or roomy(seed) is None:
            continue
        problem, placement = placed
        fluid = Fluid(problem)
        multipliers = solve_relaxation(fluid).multipliers
        state = load_state(problem, placement)
        assert step_of_block(fluid, multipliers)[placement.item_block].max() <= state.step_s() * (1 + 1e-12)
        seconds = state.stage_seconds() - problem.stage_constants
        assert (least_of_stages(fluid, multipliers) <= seconds * (1 + 1e-12) + 1e-15).all()
        compared += 1
    assert compared >= 10


def test_a_known_bound_is_never_lost() -> None:
    """Where no better one is below the step, it comes back as it was."""
    problem = next(filter(None, map(roomy, range(9))))
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    known = tighten(fluid, relaxed, relaxed.bound_s * 1.5)
    assert tighten(fluid, relaxed, known.seconds, known) is known
    assert np.isfinite(known.seconds)
