"""Loads in whole steps: their common amount, the level below, and blocks that keep ranks off it."""

import numpy as np
import pytest

from cost_models.shards import NODE, RANK, WORLD
from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.load_steps import blocks_in_steps, common_amount, level_below
from topologies.loading import load_topology


@pytest.mark.parametrize(
    ("seconds", "amount"),
    [
        ([2.0, 4.0, 6.0, 0.0], 2.0),
        ([4.0, 6.0, 10.0], 2.0),
        ([4.0, 5.5], 0.0),
        ([1.0, 400.0], 0.0),
        ([0.0], 0.0),
        ([], 0.0),
    ],
)
def test_a_common_amount_is_one_of_the_loads_or_between_two(seconds: list[float], amount: float) -> None:
    """And none where loads are no multiples of it, or of hundreds of it."""
    assert common_amount(np.array(seconds) * 1e-3) == pytest.approx(amount * 1e-3)


def test_the_level_below_is_where_most_ranks_can_stand() -> None:
    """Whatever all of them hold beside; None where they have no steps in common."""
    load = np.array([0.3, 4.3, 8.3, 8.3, 9.1])
    assert level_below(load, 4.0, 9.0) == pytest.approx(8.3)
    assert level_below(load, 4.0, 8.3) == pytest.approx(8.3)
    assert level_below(load, 4.0, 8.2) == pytest.approx(4.3)
    assert level_below(np.array([0.0, 1.3, 2.9, 3.4]), 4.0, 3.0) is None


def test_blocks_over_a_node_may_keep_ranks_off_the_steps() -> None:
    """Some do and some do not; whole tables of single ranks and replicated ones never."""
    flat = ["software=distributed-embeddings"]  # sums of nodes at the rate of everything else
    model = StepModel(load_topology("zionex-16", nodes=8), load_workload("synthetic:600@seed=3", overrides=flat))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    found = blocks_in_steps(problem, solve_relaxation(Fluid(problem)))
    over_node = found[problem.block_extent == NODE]
    assert over_node.any()
    assert not over_node.all()
    assert found[problem.block_extent == WORLD].all()
    whole = (problem.block_extent == RANK) & (problem.block_units == problem.option_units[problem.block_option])
    assert found[whole & problem.block_is_splittable].mean() > 0.9
