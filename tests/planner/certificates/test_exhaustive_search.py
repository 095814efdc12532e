"""Trying every plan: the optimum of small problems, whatever the policy; too large ones are left to others."""

import numpy as np
import pytest

from cost_models.step import StepModel
from planner.certificates.exhaustive_search import proven_s, search_exhaustively
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.brute_force import optimum
from tests.oracles.instances import Instance, confined_instance, node_group, tiny_instance, topology, workload
from tests.oracles.placements import faults

SEEDS = range(41)


def instances(seed: int) -> list[Instance]:
    """A plain one, and one with a confining policy, where it leaves options."""
    return [each for each in (tiny_instance(seed), confined_instance(seed)) if len(each.options.table)]


def multipliers(problem: Problem) -> tuple[Floats, Floats]:
    """Those of the fluid relaxation, or none that matter where it does not fit."""
    fluid = Fluid(problem)
    multipliers = fluid.no_multipliers() if shortage(fluid) else solve_relaxation(fluid).multipliers
    return multipliers.weight, multipliers.byte


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_plan_is_found_and_nothing_below_it(seed: int) -> None:
    """The brute-force optimum, in a placement without faults; and below the optimum there is no plan. It is looked for
    up to 0.5 % above the optimum, or up to 0.2 % where there are too many plans as near as that."""
    for instance in instances(seed):
        problem = instance.problem
        best, given = optimum(problem), multipliers(problem)
        if best is None:
            found = search_exhaustively(problem.without_seconds(), 1.0)
            assert found is not None
            assert found.placement is None
            continue
        found = search_exhaustively(problem, best.step_s * 1.005, *given) or search_exhaustively(
            problem, best.step_s * 1.002, *given
        )
        assert found is not None
        assert found.placement is not None
        assert found.step_s == pytest.approx(best.step_s, rel=1e-9)
        assert load_state(problem, found.placement).step_s() == pytest.approx(best.step_s, rel=1e-9)
        assert faults(problem, found.placement) == []
        below = search_exhaustively(problem, best.step_s, *given)
        assert below is not None
        assert below.placement is None
        assert proven_s(best.step_s) <= best.step_s


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_any_multipliers_will_do(seed: int) -> None:
    """However wrong: too large, negative, or none, the optimum is found."""
    problem = tiny_instance(seed).problem
    best = optimum(problem)
    if best is None:
        return
    weight, byte = multipliers(problem)
    random = np.random.default_rng(seed)
    for factor in (0.0, -1.0, 10.0, random.random(weight.shape)):
        found = search_exhaustively(problem, best.step_s * 1.001, weight * factor, byte * random.random(byte.shape))
        assert found is not None
        assert found.step_s == pytest.approx(best.step_s, rel=1e-9)


def test_equal_ranks_are_counted_once() -> None:
    """Ten like tables on four like ranks: 4^10 placements, tried as the 23 ways to write 10 as four sums."""
    cluster = topology(node_group("a", ranks=4))
    model = StepModel(cluster, workload([{"rows": 1000, "dim": 32}] * 10))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    found = search_exhaustively(problem, 1.0, work=1e6)
    assert found is not None
    assert found.placement is not None
    assert np.bincount(found.placement.item_place).max() == 3


def test_too_much_work_is_given_up() -> None:
    """Beyond the work that is allowed, or when told so, nothing is said."""
    problem = tiny_instance(18).problem
    best = optimum(problem)
    assert best is not None
    assert search_exhaustively(problem, best.step_s * 1.1, work=1e3) is None
    assert search_exhaustively(problem, best.step_s * 1.1, is_over=lambda: True) is None
