"""Bounds with what proves them: the multipliers and the threshold of a bound prove its seconds again."""

import numpy as np
import pytest

from planner.certificates.lagrangian import lagrangian_s, least_step_of_block_s
from planner.certificates.multipliers import Bound, Multipliers
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import tighten
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance


def test_a_bound_follows_from_its_multipliers_and_threshold() -> None:
    """Over the blocks that a plan below the threshold may hold; never above the best of all plans."""
    with_threshold = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        best = optimum(problem)
        if best is None:
            continue
        fluid = Fluid(problem)
        bound = tighten(fluid, solve_relaxation(fluid), best.step_s)
        usable, threshold_s = problem.allowed.any(axis=0), np.inf
        if bound.threshold_s is not None:
            threshold_s = bound.threshold_s
            usable &= least_step_of_block_s(problem, bound.multipliers) < threshold_s
            with_threshold += 1
        nothing = np.zeros(len(problem.stage_constants))
        proven = min(threshold_s, lagrangian_s(problem, bound.multipliers, usable, nothing))
        assert proven == pytest.approx(bound.seconds, rel=1e-6)
        assert bound.seconds <= best.step_s * (1 + 1e-12)
    assert with_threshold > 5


def test_a_bound_is_proven_by_multipliers_alone_unless_it_says_otherwise() -> None:
    """No packing, no tree and no exhaustive search belong to it, and no table has a weight."""
    multipliers = Multipliers(np.zeros((1, 2)), np.zeros((1, 1)))
    bound = Bound(1.0, multipliers, None)
    assert (bound.packing, bound.tree, bound.exhaustive_search_s) == (None, None, None)
    assert dict(multipliers.of_table) == {}
