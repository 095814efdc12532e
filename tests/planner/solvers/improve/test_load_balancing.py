"""Load balancing: ranks come below their aim, placements stay legal, and loads stay right."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.improver import Improver
from tests.oracles.local_searches import POLICIES, ROUNDS, balance, check, middle_model, middling, tiny
from tests.oracles.placements import just_large_enough
from topologies.cluster import Topology
from topologies.loading import load_topology


@pytest.mark.parametrize("tight", [False, True])
def test_balancing_tiny_placements(tight: bool) -> None:
    """From any placement, on one kind of rank or two; tables may go to the whole world on the way."""
    improved = spread = 0
    for seed, ample, placement in tiny():
        problem = just_large_enough(ample, placement) if tight else ample
        improver = Improver(problem, placement, seed)
        balance(improver)
        check(problem, placement, improver)
        improved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
        spread += (improver.best().item_place < 0).sum() > (placement.item_place < 0).sum()
    assert tight or (improved >= len(tiny()) / 5 and spread)


@pytest.mark.parametrize(
    ("policy", "tight"),
    [*((policy, False) for policy in POLICIES), (POLICIES[0], True), (POLICIES[3], True)],
    ids=["all", "hbm", "ddr", "column_wise", "nodes", "all, tight", "column_wise, tight"],
)
def test_balancing_keeps_the_books(policy: Policy, tight: bool) -> None:
    """Of hundreds of blocks: loads, memory and widths stay right, and nothing is over-full."""
    problem, placement = middling(policy, tight=tight)
    improver = Improver(problem, placement, 0)
    balance(improver)
    check(problem, placement, improver)
    nodes_only = policy.shardings is not None and policy.shardings[0] == "table_row_wise"
    assert nodes_only or tight or improver.best_s < 0.95 * load_state(problem, placement).step_s()


def test_balancing_keeps_tables_within_their_ranks() -> None:
    """A table that may use half of the ranks stays there, and is not spread over all."""
    problem = build_problem(
        middle_model(), enumerate_options(middle_model(), Policy(tiers=("hbm",), shardings=("table_wise", "row_wise")))
    )
    half = np.arange(problem.world) < problem.world // 2
    confined = np.where(np.arange(problem.tables) % 3 == 0, 1, 0)
    problem = replace(problem, rank_sets=np.stack([np.ones_like(half), half]), table_rank_set=confined)
    whole = [
        int(np.flatnonzero(problem.block_is_splittable & (problem.table_of_block == t))[-1])
        for t in range(problem.tables)
    ]
    start = Placement(np.array(whole), np.zeros(problem.tables, dtype=np.int64))
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, start, 0)
    balance(improver)
    check(problem, start, improver)
    best = improver.best()
    mine = confined[problem.table_of_block[best.item_block]] == 1
    assert half[best.item_place[mine]].all()
    assert (best.item_place[mine] >= 0).all()
    assert (~half[best.item_place[~mine]]).any()


def test_balancing_moves_tables_to_another_kind_of_rank() -> None:
    """All tables stand on the A100s at first; with the H100s beside them the step is much shorter."""
    a100 = load_topology("dgx-a100-40", overrides=["nodes.0.count=2"]).nodes[0]
    h100 = load_topology("dgx-h100").nodes[0]
    model = StepModel(Topology(name="mixed", nodes=(a100, h100)), load_workload("synthetic:60"))
    problem = build_problem(
        model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_wise", "column_wise")))
    )
    choices = np.array([problem.table_block_start[t + 1] - 1 for t in range(problem.tables)])
    start = Placement(choices, np.arange(problem.tables) % 16)
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, start, 0)
    for number in range(ROUNDS):
        improver.round(number, 3 + number // 10)
    before = improver.best_s
    balance(improver, 4 * ROUNDS)
    check(problem, start, improver)
    assert improver.best_s < 0.9 * before
