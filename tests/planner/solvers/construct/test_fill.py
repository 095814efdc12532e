"""Filling scarce memory with whole options: what it may take, and that no other choice is better."""

import itertools

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct import rounding
from planner.solvers.construct.rounding import fill, round_picks
from tests.oracles.instances import node_group, topology, workload

TABLES = 6


@pytest.mark.parametrize("seed", range(8))
def test_no_other_choice_fills_the_memory_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits, and no choice of options that fits into a little less is faster at the prices."""
    monkeypatch.setattr(rounding, "FILL_WORTH", np.inf)
    random = np.random.default_rng(seed)
    tables = [
        {
            "name": f"t{i}",
            "rows": int(random.integers(1e6, 4e6)),
            "dim": 64,
            "pooling_factor": int(random.integers(1, 30)),
        }
        for i in range(TABLES)
    ]
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_wise",))
    cluster = topology(node_group("a", ranks=2, hbm_bytes=1.2e9, ddr_bytes=100e9))
    model = planning_model("torchrec", cluster, workload(tables), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    tier = int(relaxed.prices.byte[0].argmax())
    assert relaxed.prices.byte[0, tier] > 0
    usable = np.ones(len(problem.block_option), dtype=bool)
    picks = fill(fluid, relaxed, round_picks(fluid, relaxed), usable, 1.0)
    size = fluid.pick_bytes(0, tier)
    seconds = fluid.pick_values(relaxed.prices) - relaxed.prices.byte[0, tier] * size
    room = float(fluid.capacity[0, tier])
    assert size[picks].sum() <= room
    of_table = [range(*problem.table_block_start[t : t + 2]) for t in range(problem.tables)]
    choices = np.array(list(itertools.product(*of_table)))
    fits = size[choices].sum(axis=1) <= 0.98 * room
    assert seconds[picks].sum() <= seconds[choices[fits]].sum(axis=1).min() * (1 + 1e-9)
