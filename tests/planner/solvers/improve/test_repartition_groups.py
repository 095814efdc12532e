"""Pairwise repartition of nodes: with two nodes and few tables the best of all divisions."""

import itertools

import numpy as np
import pytest

from cost_models.shards import NODE
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.repartition_groups import repartition_groups
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.local_searches import check_books
from tests.oracles.placements import faults


def tables_over_nodes(tables: int, nodes: int, seed: int) -> tuple[Problem, np.ndarray]:
    """Return unlike tables that are each cut by rows over one node; and the block of each."""
    random = np.random.default_rng(seed)
    profiles = [
        {"rows": int(rows), "dim": 64, "pooling_factor": int(pooling)}
        for rows, pooling in zip(10 ** random.uniform(4, 6, tables), random.integers(1, 40, tables), strict=True)
    ]
    policy = Policy(tiers=("hbm",), shardings=("table_row_wise",))
    model = planning_model(
        "physical", topology(node_group("n", nodes=nodes, ranks=2, hbm_bytes=40e9)), workload(profiles), policy
    )
    problem = build_problem(model, enumerate_options(model, policy))
    assert (problem.block_extent == NODE).all()
    return problem, problem.table_block_start[:-1]


@pytest.mark.parametrize("seed", range(5))
def test_two_nodes_divide_their_tables_in_the_best_way(seed: int) -> None:
    """Of all divisions of seven tables, tried one by one, none has a shorter step after a few rounds."""
    problem, blocks = tables_over_nodes(7, 2, seed)
    state = SearchState(problem, Placement(blocks, np.zeros(7, dtype=np.int64)), seed)
    for squarings in (3, 5, 7, 7):
        repartition_groups(state, Smoothing(problem, state.loads, squarings))
        state.note()
        check_books(state)
    steps = [
        load_state(problem, Placement(blocks, np.array(places))).step_s()
        for places in itertools.product(range(2), repeat=7)
    ]
    assert min(steps) * (1 - 1e-9) <= state.best_s <= min(steps) * (1 + 2e-3)


def test_tables_stay_on_nodes_that_they_may_use() -> None:
    """Many tables on many nodes: some move, all are on one node, and loads and memory stay right."""
    problem, blocks = tables_over_nodes(30, 6, 1)
    state, moved = SearchState(problem, Placement(blocks, np.zeros(30, dtype=np.int64)), 0), 0
    for _ in range(6):
        moved += repartition_groups(state, Smoothing(problem, state.loads, 3))
        check_books(state)
    assert moved
    assert faults(problem, state.placement()) == []
    assert len(np.unique(state.group_site)) == 6


def test_one_node_has_nothing_to_divide() -> None:
    """Without a partner nothing moves."""
    problem, blocks = tables_over_nodes(3, 1, 0)
    state = SearchState(problem, Placement(blocks, np.zeros(3, dtype=np.int64)), 0)
    assert repartition_groups(state, Smoothing(problem, state.loads, 3)) == 0
