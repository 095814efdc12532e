"""Rounding the relaxation to one option per table: totals stay near, memory is kept, and scarce memory is filled."""

import itertools

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct import rounding
from planner.solvers.construct.rounding import OVER, choose, fill, repair_choices, round_choices
from tests.oracles.instances import node_group, topology, workload

TABLES = 6


def problem_of(sizes: list[float], ranks: int, hbm_bytes: float, ddr_bytes: float) -> Problem:
    """Whole tables of so many rows of 256 bytes, in HBM or in place in DDR."""
    tables = [{"name": f"t{i}", "rows": int(rows), "dim": 64} for i, rows in enumerate(sizes)]
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_wise",))
    cluster = topology(node_group("a", ranks=ranks, hbm_bytes=hbm_bytes, ddr_bytes=ddr_bytes))
    model = planning_model("physical", cluster, workload(tables), policy)
    return build_problem(model, enumerate_options(model, policy))


@pytest.mark.parametrize("seed", range(8))
def test_no_other_choice_fills_the_memory_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits, and no choice of options that fits into a little less is faster at the multipliers."""
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
    tier = int(relaxed.multipliers.byte[0].argmax())
    assert relaxed.multipliers.byte[0, tier] > 0
    usable = np.ones(len(problem.block_option), dtype=bool)
    choices = fill(fluid, relaxed, round_choices(fluid, relaxed), usable, 1.0)
    size = fluid.choice_bytes(0, tier)
    seconds = fluid.choice_values(relaxed.multipliers) - relaxed.multipliers.byte[0, tier] * size
    room = float(fluid.capacity[0, tier])
    assert size[choices].sum() <= room
    of_table = [range(*problem.table_block_start[t : t + 2]) for t in range(problem.tables)]
    every_choice = np.array(list(itertools.product(*of_table)))
    fits = size[every_choice].sum(axis=1) <= 0.98 * room
    assert seconds[choices].sum() <= seconds[every_choice[fits]].sum(axis=1).min() * (1 + 1e-9)


def test_options_are_mended_until_they_fit_together() -> None:
    """Random options of three times what HBM holds: mended, they take no more of any tier than there is."""
    for seed in range(10):
        random = np.random.default_rng(seed)
        sizes = list(random.uniform(0.2e6, 3e6, 24))
        problem = problem_of(sizes, 2, hbm_bytes=3e9, ddr_bytes=8e9)
        fluid = Fluid(problem)
        relaxed = solve_relaxation(fluid)
        start = problem.table_block_start
        in_hbm = np.array([int(start[t]) for t in range(problem.tables)])
        usable = np.ones(len(problem.block_option), dtype=bool)
        before = fluid.usage(relaxed.multipliers, in_hbm)[1]
        after = fluid.usage(relaxed.multipliers, repair_choices(fluid, relaxed, in_hbm, usable, 1.0))[1]
        assert (before > fluid.capacity).any()
        assert (after <= fluid.capacity * (1 + 1e-5)).all()


@pytest.mark.parametrize("seed", range(6))
def test_every_table_has_an_option_that_the_optimum_mixes(seed: int) -> None:
    """What all proposals agree on is kept; what they mix is rounded so that no total of the many is far off."""
    random = np.random.default_rng(seed)
    problem = problem_of(list(random.uniform(0.2e6, 3e6, 40)), 2, hbm_bytes=5e9, ddr_bytes=30e9)
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    choices = round_choices(fluid, relaxed)
    assert len(choices) == problem.tables
    for table in range(problem.tables):
        assert choices[table] in relaxed.choices[:, table]
    shared = sum(
        share * fluid.usage(relaxed.multipliers, mixed)[1]
        for mixed, share in zip(relaxed.choices, relaxed.shares, strict=True)
    )
    largest = max(float(fluid.choice_bytes(0, tier).max()) for tier in range(fluid.capacity.shape[1]))
    assert np.abs(fluid.usage(relaxed.multipliers, choices)[1] - shared).max() <= largest


@pytest.mark.parametrize("headroom", [1.0, 0.9])
def test_a_choice_keeps_to_the_memory_and_to_what_is_usable(headroom: float) -> None:
    """Of the usable blocks alone, within the headroom but for what can be repaired; None where it cannot be."""
    random = np.random.default_rng(4)
    problem = problem_of(list(random.uniform(0.2e6, 3e6, 30)), 2, hbm_bytes=4e9, ddr_bytes=20e9)
    fluid = Fluid(problem)
    usable = np.ones(len(problem.block_option), dtype=bool)
    usable[problem.blocks_of_choice(0)] = False
    chosen = choose(fluid, usable, headroom)
    assert chosen is not None
    relaxed, choices = chosen
    assert usable[choices].all()
    assert (fluid.usage(relaxed.multipliers, choices)[1] <= fluid.capacity * (headroom + OVER)).all()
    assert choose(fluid, usable, 1e-3) is None
