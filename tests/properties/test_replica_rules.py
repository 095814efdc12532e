"""Tables with more copies than others in one problem: neighbours, or ranks of several nodes, that stand in for single
ranks, and rows that they share."""

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import keep_some_options, node_group, topology, workload
from tests.oracles.placements import faults
from tests.seeds import seeds


def with_rules(seed: int, layout: str) -> Problem:
    """A random problem on two nodes of four ranks, of one kind or two, or on four nodes of two ranks (inter), some
    tables of which have two or four copies: averaged after the step or cut, with vectors that travel flat or through
    towers."""
    random = np.random.default_rng(seed)
    copies, kinds, nodes = int(random.choice([2, 4])), int(random.integers(1, 3)), 2
    if layout == "inter":
        kinds, nodes = 1, 4
    tables = [
        {
            "name": f"{'user' if number % 2 else 'item'}_{number}",
            "rows": int(10 ** random.uniform(1, 5)),
            "dim": int(random.choice([8, 16, 32])),
            "pooling_factor": int(random.integers(1, 60)),
        }
        for number in range(3)
    ]
    stored = sum(4.2 * int(str(table["rows"])) * int(str(table["dim"])) for table in tables)
    groups = [
        node_group(
            f"n{k}",
            nodes=nodes // kinds,
            ranks=8 // nodes,
            hbm_bytes=float(random.choice([60.0, 2.0, 1.0])) * stored + 2e8,
            hbm_bytes_per_s=float(random.choice([0.9e12, 3.3e12])),
            ranks_per_switch=8 // nodes,
            cards=int(random.choice([1, 8 // nodes])),
        )
        for k in range(kinds)
    ]
    rules = [{"tables": "user_*", "factor": copies}]
    policy = Policy.model_validate(
        {
            "tiers": "hbm",
            "exchange": ("flat", "sptt")[seed // 2 % 2],
            "shardings": ["table_wise", "column_wise", "row_wise", "table_row_wise", "grid_shard"],
            "replicas": {
                "factor": 1,
                "layout": layout,
                "rules": rules,
                "strategy": ("default", "fully_sharded")[seed % 2],
            },
        }
    )
    below = int(random.choice([1, 2])) if layout == "inter" else 1
    levels = [(below, ratio)] if (ratio := float(random.choice([1.0, 2.5]))) > 1 else []
    cluster = topology(*groups, levels=levels)
    model = planning_model("physical", cluster, workload(tables), policy)
    return build_problem(model, keep_some_options(enumerate_options(model, policy), 3, random))


@pytest.mark.parametrize("layout", ["intra", "inter"])
@pytest.mark.parametrize("seed", seeds(range(6), range(30)))
def test_bound_optimum_and_plan(seed: int, layout: str) -> None:
    """Bound <= optimum, found by trying everything, <= plan, which is legal, and the optimum where that is proven."""
    problem = with_rules(seed, layout)
    best, outcome = optimum(problem), solve(problem, SearchLimits(gap=0.0))
    if best is None:
        assert outcome.placement is None
        return
    assert outcome.bound_s is not None
    assert outcome.bound_s <= best.step_s * (1 + 1e-12)
    if outcome.placement is None:
        return
    state = load_state(problem, outcome.placement)
    assert faults(problem, outcome.placement) == []
    assert state.overflow_bytes() <= ROUNDING_BYTES
    assert state.step_s() == pytest.approx(outcome.step_s, rel=1e-9)
    assert best.step_s <= state.step_s() * (1 + 1e-12)
    if outcome.status == "optimal":
        assert state.step_s() <= best.step_s * (1 + 1e-9)
