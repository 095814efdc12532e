"""Over-full placements made to fit: by exchanges between tiers, and never with a table lost."""

from dataclasses import replace

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.repair import repaired
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import faults


def problem_of(sizes: list[float], ranks: int = 1, hbm_bytes: float = 10e9, ddr_bytes: float = 100e9) -> Problem:
    """Whole tables of so many rows of 256 bytes, in HBM or in place in DDR."""
    tables = [{"name": f"t{i}", "rows": int(rows), "dim": 64} for i, rows in enumerate(sizes)]
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_wise",))
    cluster = topology(node_group("a", ranks=ranks, hbm_bytes=hbm_bytes, ddr_bytes=ddr_bytes))
    model = planning_model("physical", cluster, workload(tables), policy)
    return build_problem(model, enumerate_options(model, policy))


def placement_of(problem: Problem, random: np.random.Generator) -> Placement:
    """Each table as one of its blocks, on any rank."""
    start = problem.table_block_start
    block = np.array([int(random.integers(start[t], start[t + 1])) for t in range(problem.tables)])
    return Placement(block, random.integers(0, problem.world, problem.tables))


def tiers_of(problem: Problem, placement: Placement) -> list[int]:
    """The tier of each table."""
    size = problem.bytes_fixed[0] + problem.bytes_by_rows[0]
    table = problem.table_of_block[placement.item_block]
    return [int(size[placement.item_block[table == t]].sum(axis=0).argmax()) for t in range(problem.tables)]


def with_room(problem: Problem, placement: Placement, *room: float) -> Problem:
    """The problem with pools that have so many bytes [M] free beside what the placement takes; less than 0: too few."""
    free = load_state(problem, placement).free
    pools = enumerate(zip(problem.pool_capacity, room, strict=True))
    capacity = [size - float(free[m].min()) + more for m, (size, more) in pools]
    return replace(problem, pool_capacity=tuple(np.asarray(size) for size in capacity))


def test_tables_of_two_tiers_change_places() -> None:
    """Neither tier has room for another table: the larger one must go to the tier that has room for the difference."""
    problem = problem_of([4e6, 3.6e6])
    size = problem.bytes_fixed[0] + problem.bytes_by_rows[0]
    start = problem.table_block_start
    in_hbm = [next(b for b in range(*start[t : t + 2]) if size[b, 0] > 5e8) for t in (0, 1)]
    in_ddr = [next(b for b in range(*start[t : t + 2]) if size[b, 1] > 5e8) for t in (0, 1)]
    placement = Placement(np.array([in_hbm[0], in_ddr[1]]), np.zeros(2, dtype=np.int64))
    tight = with_room(problem, placement, -50e6, 150e6, *[0.0] * (len(problem.pool_capacity) - 2))
    assert load_state(tight, placement).overflow_bytes() > 0
    after = repaired(tight, placement, np.zeros(len(size)), 1.0)
    assert after is not None
    assert load_state(tight, after).overflow_bytes() == 0
    assert tiers_of(tight, after) == [1, 0]


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_fits_is_a_placement_and_most_that_is_too_full_comes_to_fit(ranks: int) -> None:
    """Tables on random ranks in random tiers, 2 % of the memory to spare: they are all placed, and it fits."""
    fits = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        problem = problem_of(list(random.uniform(0.2e6, 3e6, 24)), ranks)
        aim = placement_of(problem, random)
        taken = [size - load_state(problem, aim).free[m].min() for m, size in enumerate(problem.pool_capacity)]
        tight = replace(problem, pool_capacity=tuple(np.asarray(of * 1.02 + 1.0) for of in taken))
        before = placement_of(tight, random)
        after = repaired(tight, before, Fluid(tight).block_values(Fluid(tight).no_multipliers()), 1.0)
        if after is not None:
            assert faults(tight, after) == []
            assert load_state(tight, after).overflow_bytes() <= 1e-3
            fits += 1
    assert fits >= 15
