"""An extent that nothing was written for: blocks over two nodes, planned, bounded and proven like the others."""

from dataclasses import replace

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.rounding import ROUNDING_BYTES
from planner.problem.sites import Sites
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import keep_some_options, node_group, topology, workload
from tests.oracles.placements import faults

INSTANCES = 60


def with_pairs_of_nodes(seed: int) -> Problem:
    """A random problem on four nodes, half of whose node-wide options are over the first two or the last two nodes."""
    random = np.random.default_rng(seed)
    ranks, kinds = int(random.integers(1, 3)), int(random.integers(1, 3))
    tables = [
        {
            "rows": int(10 ** random.uniform(1, 5)),
            "dim": int(random.choice([8, 16, 32])),
            "pooling_factor": int(pooling),
        }
        for pooling in random.integers(1, 60, int(random.integers(2, 4)))
    ]
    stored = sum(4.2 * int(table["rows"]) * int(table["dim"]) for table in tables) / (4 * ranks)
    groups = [
        node_group(
            f"n{k}",
            nodes=4 // kinds,
            ranks=ranks,
            hbm_bytes=float(random.choice([60.0, 4.0, 2.0])) * stored + 4e8,
            hbm_bytes_per_s=float(random.choice([0.9e12, 3.3e12])),
        )
        for k in range(kinds)
    ]
    policy = Policy(tiers=("hbm",), shardings=("table_wise", "row_wise", "table_row_wise", "grid_shard"))
    model = planning_model(
        "physical", topology(*groups, oversubscription=float(random.choice([1.0, 2.5]))), workload(tables), policy
    )
    problem = build_problem(model, keep_some_options(enumerate_options(model, policy), 4, random))
    pairs = Sites("group", problem.node_of_rank // 2)
    is_paired = problem.is_on_group & (random.random(len(problem.option_table)) < 0.6)[problem.block_option]
    extent = np.where(is_paired, len(problem.sites), problem.block_extent)
    return replace(problem, sites=(*problem.sites, pairs), block_extent=extent)


@pytest.mark.slow
def test_bound_optimum_and_plan_of_blocks_over_two_nodes() -> None:
    """Bound <= optimum, found by trying everything, <= plan; most are found and proven, and the plans are legal."""
    paired_in_optimum = proven = found = feasible = 0
    for seed in range(INSTANCES):
        problem = with_pairs_of_nodes(seed)
        best, outcome = optimum(problem), solve(problem, SearchLimits(gap=0.0))
        if best is None:
            assert outcome.placement is None, seed
            continue
        feasible += 1
        extents = {int(problem.block_extent[block]) for _, places in best.choices for block, _ in places}
        paired_in_optimum += len(problem.sites) - 1 in extents
        assert outcome.bound_s is not None, seed
        assert outcome.bound_s <= best.step_s * (1 + 1e-12), seed
        if outcome.placement is None:
            continue
        state = load_state(problem, outcome.placement)
        assert faults(problem, outcome.placement) == [], seed
        assert state.overflow_bytes() <= ROUNDING_BYTES, seed
        assert state.step_s() == pytest.approx(outcome.step_s, rel=1e-9), seed
        assert best.step_s <= state.step_s() * (1 + 1e-12), seed
        found += state.step_s() <= best.step_s * (1 + 1e-9)
        proven += outcome.status == "optimal"
    assert feasible >= 0.7 * INSTANCES
    assert paired_in_optimum >= 0.2 * feasible
    assert found >= 0.95 * feasible
    assert proven >= 0.95 * feasible
