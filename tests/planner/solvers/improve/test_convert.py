"""Conversions: whole tables change their memory tier where they are, which makes a step shorter where memory allows."""

from dataclasses import replace

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.placement import Placement
from planner.solvers.improve.convert import convert
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.local_searches import check_books


def in_ddr(hbm_bytes: float) -> tuple[Problem, Placement]:
    """Return 12 whole tables in DDR on four ranks whose HBM they may go to; the first block of a table is in HBM."""
    tables = [{"rows": 100_000 + 7 * i, "dim": 64, "pooling_factor": 5 + i} for i in range(12)]
    policy = Policy(tiers=("hbm", "ddr"), shardings=("table_wise",))
    cluster = topology(node_group("n", ranks=4, hbm_bytes=hbm_bytes, ddr_bytes=100e9))
    model = planning_model("physical", cluster, workload(tables), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    return problem, Placement(problem.table_block_start[:-1] + 1, np.arange(12) % 4)


def rounds(problem: Problem, placement: Placement, count: int) -> tuple[SearchState, int]:
    """Return the state after some rounds, and how many tables were converted."""
    state, converted = SearchState(problem, placement, 0), 0
    for _ in range(count):
        converted += convert(state, Smoothing(problem, state.loads, 5, negligible=0.0))
        check_books(state)
        state.note()
    return state, converted


def test_tables_go_to_the_faster_memory_where_it_has_room() -> None:
    """All of them end in HBM, on the ranks where they were."""
    problem, placement = in_ddr(10e9)
    before_s = SearchState(problem, placement, 0).best_s
    state, converted = rounds(problem, placement, 12)
    best = state.best
    assert converted >= 12
    assert np.array_equal(best.item_place, placement.item_place)
    assert np.array_equal(best.item_block, problem.table_block_start[:-1])
    assert state.best_s < before_s


@pytest.mark.parametrize("room", [0.6, 1.5])
def test_memory_is_kept(room: float) -> None:
    """With HBM for one table of each rank's three at most, or for none, no more go there, and none is over-full."""
    problem, placement = in_ddr(10e9)
    whole = problem.table_block_start[:-1]
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0, whole, 0].max()
    capacity = (np.full(4, problem.base_bytes[0] + room * size), *problem.pool_capacity[1:])
    tight = replace(problem, pool_capacity=capacity)
    state, _ = rounds(tight, placement, 12)
    assert state.loads.overflow_bytes() <= 1e-3
    in_hbm = np.isin(state.best.item_block, whole)
    assert np.bincount(state.best.item_place[in_hbm], minlength=4).max() <= int(room)
    assert in_hbm.any() == (room > 1)


def test_without_another_tier_nothing_changes() -> None:
    """Tables that have one option each stay in it."""
    tables = [{"rows": 10_000, "dim": 64}] * 4
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    model = planning_model("physical", topology(node_group("n", ranks=2)), workload(tables), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    state, converted = rounds(problem, Placement(np.arange(4), np.arange(4) % 2), 4)
    assert converted == 0
    assert not state.has_alternatives
