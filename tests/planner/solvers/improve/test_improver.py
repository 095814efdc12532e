"""Local search: never worse, always complete, within memory, its books in order, the same for the same seed."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.improver import TURNS, Improver
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.local_searches import POLICIES, ROUNDS, TIGHT, check, middle_model, middling, run, tiny
from tests.oracles.placements import just_large_enough, random_placement


def test_the_instances_are_of_every_sort() -> None:
    """Of one kind of rank and of two, with and without free options, blocks on nodes and merging parts."""
    assert len(tiny()) >= 60
    assert {problem.kinds for _, problem, _ in tiny()} == {1, 2}
    assert {bool(problem.block_is_splittable.any()) for _, problem, _ in tiny()} == {True, False}
    assert any(problem.block_extent[placement.item_block].tolist().count(1) for _, problem, placement in tiny())


@pytest.mark.parametrize("tight", [False, True])
def test_tiny_placements_improve(tight: bool) -> None:
    """From any placement, in the memory there is and in memory that the start fills."""
    improved = 0
    for seed, ample, placement in tiny():
        problem = just_large_enough(ample, placement) if tight else ample
        improver = Improver(problem, placement, seed)
        run(improver)
        check(problem, placement, improver)
        improved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
    assert tight or improved >= len(tiny()) / 4


def test_tables_that_may_not_move_stay() -> None:
    """Block by block, while others move."""
    moved = 0
    for seed, problem, placement in tiny():
        movable = np.random.default_rng(seed).random(problem.tables) < 0.5
        improver = Improver(problem, placement, seed, movable)
        run(improver)
        check(problem, placement, improver)
        fixed_items = []
        for each in (placement, improver.best()):
            stays = ~movable[problem.option_table[problem.block_option[each.item_block]]]
            fixed_items.append(
                sorted(zip(each.item_block[stays].tolist(), each.item_place[stays].tolist(), strict=True))
            )
        assert fixed_items[0] == fixed_items[1]
        moved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
    assert moved >= len(tiny()) / 10


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("policy", POLICIES, ids=["all", "hbm", "ddr", "column_wise", "nodes"])
def test_middling_placements_improve(policy: Policy, tight: bool) -> None:
    """Of hundreds of blocks, where many pairs move at once; DDR belongs to a node, so that pairs compete for it."""
    problem, placement = middling(policy, tight=tight)
    improver = Improver(problem, placement, 0)
    moved = run(improver)
    check(problem, placement, improver)
    assert moved or (tight and policy.shardings[0] == "table_row_wise")


def test_a_shared_pool_is_not_filled_twice() -> None:
    """Eight ranks of a node each have room for what comes to them alone, but not for all of it together."""
    cluster = topology(node_group("a", ranks=8, nodes=2, ddr_bytes=10e9))
    model = StepModel(cluster, workload([{"rows": 100_000, "dim": 64}] * 64))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("ddr",), shardings=("table_wise",))))
    start = Placement(np.arange(64), np.where(np.arange(64) < 40, np.arange(64) % 8, 8 + np.arange(64) % 8))
    taken = 10e9 - load_state(problem, start).free[1]
    room = 1.5 * taken[0] / 40
    capacity = (problem.pool_capacity[0], taken[[0, 8]] + room, problem.pool_capacity[2])
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    for seed in range(20):
        improver = Improver(problem, start, seed)
        for number in range(ROUNDS):
            improver.round(number, 3)
            assert improver.state.loads.overflow_bytes() <= TIGHT


def test_the_same_seed_gives_the_same_placement() -> None:
    """To the last bit; another seed gives another."""
    problem = build_problem(middle_model(), enumerate_options(middle_model(), Policy(tiers=("hbm",))))
    start = random_placement(problem, np.random.default_rng(5), legal=True)
    over = load_state(problem, start).overflow_bytes()
    problem = replace(problem, pool_capacity=tuple(capacity + over for capacity in problem.pool_capacity))
    results = []
    for seed in (1, 1, 2):
        improver = Improver(problem, start, seed)
        run(improver)
        results.append((improver.best_s, improver.best()))
    (first_s, first), (again_s, again), (_, other) = results
    assert first_s == again_s
    assert np.array_equal(first.item_block, again.item_block)
    assert np.array_equal(first.item_place, again.item_place)
    assert len(first.item_place) != len(other.item_place) or (first.item_place != other.item_place).any()


def test_one_rank_has_nothing_to_improve() -> None:
    """No pairs: no round moves anything, whatever its kind, and none fails."""
    model = StepModel(topology(node_group("a", ranks=1)), workload([{"rows": 10_000, "dim": 64}] * 3))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    start = Placement(np.array(problem.table_block_start[:-1]), np.zeros(3, dtype=np.int64))
    improver = Improver(problem, start, 0)
    assert sum(improver.round(number, 3) for number in range(2 * TURNS)) == 0
    check(problem, start, improver)
