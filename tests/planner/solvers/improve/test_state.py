"""What moves share: blocks that meet become one, what cannot be is refused, and the best placement is kept."""

import numpy as np
import pytest

from cost_models.step import StepModel
from planner.formulation.option_space import FEW_CUTS
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.placement import Placement
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.items import Items
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.local_searches import check, run
from tests.oracles.placements import faults


def quartered() -> Problem:
    """One table in DDR on two nodes of two ranks: whole, or in halves, quarters or eighths, and nothing between."""
    model = StepModel(topology(node_group("a", nodes=2)), workload([{"rows": 10_000, "dim": 64}]))
    policy = Policy(tiers=("ddr",), shardings=("table_wise", "column_wise"))
    problem = build_problem(model, enumerate_options(model, policy, cuts=FEW_CUTS))
    assert (problem.block_units * 8 / problem.option_units[0]).tolist() == [1, 2, 4, 8]
    return problem


def test_parts_that_meet_become_one_block() -> None:
    """Two quarters on one rank are a half; that costs less, and holds no more."""
    problem = quartered()
    start = Placement(np.array([1, 1, 1, 1]), np.array([0, 0, 1, 2]))
    best = Improver(problem, start, 0).best()
    assert sorted(zip(best.item_block.tolist(), best.item_place.tolist(), strict=True)) == [(1, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize("places", [[0, 0, 0, 1], [3, 3, 3, 2]])
def test_parts_without_a_joint_width_stay_as_they_are(places: list[int]) -> None:
    """Three quarters on one rank are no block; the placement is right all the same, and stays so."""
    problem = quartered()
    start = Placement(np.array([1, 1, 1, 1]), np.array(places))
    improver = Improver(problem, start, 0)
    assert faults(problem, improver.best()) == []
    run(improver)
    check(problem, start, improver)


def test_a_merger_to_a_width_that_does_not_exist_is_refused() -> None:
    """Nothing changes: items, loads and memory are those before."""
    problem = quartered()
    improver = Improver(problem, Placement(np.array([1, 1, 2]), np.array([0, 1, 2])), 0)
    items, load, free = improver.state.items, improver.state.loads.load.copy(), improver.state.loads.free.copy()
    eighths = items.units
    three_quarters = Items(items.family, eighths, np.where(items.rank == 1, 2, items.rank))
    assert not improver.state.replace(three_quarters)
    assert improver.state.items is items
    assert np.array_equal(improver.state.loads.load, load)
    assert np.array_equal(improver.state.loads.free, free)
    half = Items(items.family, eighths, np.where(items.rank == 1, 0, items.rank))
    assert improver.state.replace(half)
    assert improver.state.items.rank.tolist() == [0, 2]
    check(problem, improver.state.placement(), improver)


@pytest.mark.parametrize("policy", [Policy(), Policy(tiers=("hbm", "ddr_cached", "ddr"))])
def test_joining_parts_never_takes_more_memory(policy: Policy) -> None:
    """What merging relies on: a block of two widths takes at most what blocks of the two take."""
    dims = [16, 64, 100, 128, 256]
    tables = [{"rows": 12_345, "dim": dim, "pooled": i % 2 == 0} for i, dim in enumerate(dims)]
    model = StepModel(topology(node_group("a", ssd_bytes=1e13)), workload(tables))
    problem = build_problem(model, enumerate_options(model, policy))
    size = problem.bytes_fixed + problem.bytes_by_rows
    for option in np.flatnonzero(problem.option_units):
        types = np.flatnonzero(problem.block_option == option)
        block_of = dict(zip(problem.block_units[types].tolist(), types.tolist(), strict=True))
        for width, first in block_of.items():
            for other_width, second in block_of.items():
                if (joint := block_of.get(width + other_width)) is not None:
                    assert (size[:, joint] <= (size[:, first] + size[:, second]) * (1 + 1e-12)).all()
