"""Local search: never worse, always complete, within memory, its books in order, the same for the same seed."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.option_space import FEW_CUTS
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.cut_tables import cut_tables
from planner.solvers.improve.improver import TURNS, Improver
from planner.solvers.improve.items import Items
from planner.solvers.improve.smoothing import Smoothing
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import faults, just_large_enough, random_placement, tiny_placement
from topologies.cluster import Topology
from topologies.loading import load_topology

ROUNDS = 48
TIGHT = 4 * ROUNDING_BYTES
"""Bytes by which sums in another order may differ from a full pool."""


TINY = [(seed, *found) for seed in range(160) if (found := tiny_placement(seed)) is not None]


@pytest.fixture(scope="module")
def middle() -> StepModel:
    """200 tables on four nodes of eight ranks."""
    return StepModel(load_topology("zionex", nodes=4), load_workload("synthetic:200@seed=3"))


def run(improver: Improver, rounds: int = ROUNDS) -> int:
    """Rounds at rising norms; how many blocks they moved."""
    return sum(improver.round(number, 3 + 4 * number // rounds) for number in range(rounds))


def check(problem: Problem, start: Placement, improver: Improver) -> None:
    """All that is promised, after some rounds."""
    best = improver.best()
    assert faults(problem, best) == []
    assert faults(problem, improver.state.placement()) == []
    before, after = load_state(problem, start), load_state(problem, best)
    assert after.step_s() == pytest.approx(improver.best_s, rel=1e-9)
    assert improver.best_s <= before.step_s() * (1 + 1e-9)
    assert after.overflow_bytes() <= TIGHT
    now = load_state(problem, improver.state.placement())
    np.testing.assert_allclose(improver.state.loads.load, now.load, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(improver.state.loads.free, now.free, rtol=1e-9, atol=1e-2)
    assert now.overflow_bytes() <= TIGHT


def test_the_instances_are_of_every_sort() -> None:
    """Of one kind of rank and of two, with and without free options, blocks on nodes and merging parts."""
    assert len(TINY) >= 60
    assert {problem.kinds for _, problem, _ in TINY} == {1, 2}
    assert {bool(problem.block_is_free.any()) for _, problem, _ in TINY} == {True, False}
    assert any(problem.block_extent[placement.item_block].tolist().count(1) for _, problem, placement in TINY)


@pytest.mark.parametrize("tight", [False, True])
def test_tiny_placements_improve(tight: bool) -> None:
    """From any placement, in the memory there is and in memory that the start fills."""
    improved = 0
    for seed, ample, placement in TINY:
        problem = just_large_enough(ample, placement) if tight else ample
        improver = Improver(problem, placement, seed)
        run(improver)
        check(problem, placement, improver)
        improved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
    assert tight or improved >= len(TINY) / 4


def test_tables_that_may_not_move_stay() -> None:
    """Block by block, while others move."""
    moved = 0
    for seed, problem, placement in TINY:
        movable = np.random.default_rng(seed).random(problem.tables) < 0.5
        improver = Improver(problem, placement, seed, movable)
        run(improver)
        check(problem, placement, improver)
        held = []
        for found in (placement, improver.best()):
            stays = ~movable[problem.option_table[problem.block_option[found.item_block]]]
            held.append(sorted(zip(found.item_block[stays].tolist(), found.item_place[stays].tolist(), strict=True)))
        assert held[0] == held[1]
        moved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
    assert moved >= len(TINY) / 10


POLICIES = (
    Policy(),
    Policy(tiers=("hbm",), shardings=("table_wise", "column_wise")),
    Policy(tiers=("ddr",), shardings=("table_wise", "column_wise")),
    Policy(tiers=("hbm",), shardings=("column_wise",)),
    Policy(tiers=("hbm", "ddr"), shardings=("table_row_wise", "grid_shard")),
)


def middling(middle: StepModel, policy: Policy, *, tight: bool) -> tuple[Problem, Placement]:
    """A random legal placement that fits, with or without memory to spare."""
    problem = build_problem(middle, enumerate_options(middle, policy, cuts=FEW_CUTS))
    placement = random_placement(problem, np.random.default_rng(5), legal=True)
    over = load_state(problem, placement).overflow_bytes()
    problem = replace(problem, pool_capacity=tuple(capacity + over for capacity in problem.pool_capacity))
    return (just_large_enough(problem, placement) if tight else problem), placement


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("policy", POLICIES, ids=["all", "hbm", "ddr", "column_wise", "nodes"])
def test_middling_placements_improve(middle: StepModel, policy: Policy, tight: bool) -> None:
    """Of hundreds of blocks, where many pairs move at once; DDR belongs to a node, so that pairs compete for it."""
    problem, placement = middling(middle, policy, tight=tight)
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


def test_the_same_seed_gives_the_same_placement(middle: StepModel) -> None:
    """To the last bit; another seed gives another."""
    problem = build_problem(middle, enumerate_options(middle, Policy(tiers=("hbm",))))
    start = random_placement(problem, np.random.default_rng(5), legal=True)
    over = load_state(problem, start).overflow_bytes()
    problem = replace(problem, pool_capacity=tuple(capacity + over for capacity in problem.pool_capacity))
    found = []
    for seed in (1, 1, 2):
        improver = Improver(problem, start, seed)
        run(improver)
        found.append((improver.best_s, improver.best()))
    (first_s, first), (again_s, again), (_, other) = found
    assert first_s == again_s
    assert np.array_equal(first.item_block, again.item_block)
    assert np.array_equal(first.item_place, again.item_place)
    assert len(first.item_place) != len(other.item_place) or (first.item_place != other.item_place).any()


@pytest.mark.parametrize("tight", [False, True])
def test_cuts_alone_keep_the_books(middle: StepModel, tight: bool) -> None:
    """Tables are divided between ranks and joined again; loads, memory and widths stay right.

    With memory to spare the step falls, too.
    """
    problem, start = middling(middle, Policy(tiers=("hbm",)), tight=tight)
    improver = Improver(problem, start, 0)
    before = improver.state.items
    step_s = np.inf
    for _ in range(ROUNDS):
        cut_tables(improver.state, Smoothing(problem, improver.state.loads, 4))
        step_s = min(step_s, improver.state.loads.step_s())
    check(problem, start, improver)
    assert len(before.units) != len(improver.state.items.units) or (before.units != improver.state.items.units).any()
    assert tight or step_s < load_state(problem, start).step_s()


def level(improver: Improver, rounds: int = ROUNDS) -> None:
    """Rounds of levelling, until no lower aim is reached."""
    for _ in range(rounds):
        if not improver.balance():
            break


@pytest.mark.parametrize("tight", [False, True])
def test_levelling_tiny_placements(tight: bool) -> None:
    """From any placement, on one kind of rank or two; tables may go to the whole world on the way."""
    improved = spread = 0
    for seed, ample, placement in TINY:
        problem = just_large_enough(ample, placement) if tight else ample
        improver = Improver(problem, placement, seed)
        level(improver)
        check(problem, placement, improver)
        improved += improver.best_s < load_state(problem, placement).step_s() * (1 - 1e-6)
        spread += (improver.best().item_place < 0).sum() > (placement.item_place < 0).sum()
    assert tight or (improved >= len(TINY) / 4 and spread)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("policy", POLICIES, ids=["all", "hbm", "ddr", "column_wise", "nodes"])
def test_levelling_keeps_the_books(middle: StepModel, policy: Policy, tight: bool) -> None:
    """Of hundreds of blocks: loads, memory and widths stay right, and nothing is over-full."""
    problem, placement = middling(middle, policy, tight=tight)
    improver = Improver(problem, placement, 0)
    level(improver)
    check(problem, placement, improver)
    nodes_only = policy.shardings is not None and policy.shardings[0] == "table_row_wise"
    assert nodes_only or tight or improver.best_s < 0.95 * load_state(problem, placement).step_s()


def test_levelling_keeps_tables_within_their_ranks(middle: StepModel) -> None:
    """A table that may use half of the ranks stays there, and is not spread over all."""
    problem = build_problem(
        middle, enumerate_options(middle, Policy(tiers=("hbm",), shardings=("table_wise", "row_wise")))
    )
    half = np.arange(problem.world) < problem.world // 2
    confined = np.where(np.arange(problem.tables) % 3 == 0, 1, 0)
    problem = replace(problem, rank_sets=np.stack([np.ones_like(half), half]), table_rank_set=confined)
    whole = [
        int(np.flatnonzero(problem.block_is_free & (problem.table_of_block == t))[-1]) for t in range(problem.tables)
    ]
    start = Placement(np.array(whole), np.zeros(problem.tables, dtype=np.int64))
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, start, 0)
    level(improver)
    check(problem, start, improver)
    best = improver.best()
    mine = confined[problem.table_of_block[best.item_block]] == 1
    assert half[best.item_place[mine]].all()
    assert (best.item_place[mine] >= 0).all()
    assert (~half[best.item_place[~mine]]).any()


def test_levelling_moves_tables_to_another_kind_of_rank() -> None:
    """All tables stand on the A100s at first; with the H100s beside them the step is much shorter."""
    a100 = load_topology("dgx-a100-40", overrides=["nodes.0.count=2"]).nodes[0]
    h100 = load_topology("dgx-h100").nodes[0]
    model = StepModel(Topology(name="mixed", nodes=(a100, h100)), load_workload("synthetic:60"))
    problem = build_problem(
        model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_wise", "column_wise")))
    )
    picks = np.array([problem.table_block_start[t + 1] - 1 for t in range(problem.tables)])
    start = Placement(picks, np.arange(problem.tables) % 16)
    capacity = tuple(np.full_like(pool, 1e15) for pool in problem.pool_capacity)
    problem = replace(problem, pool_capacity=capacity, allowed=np.ones_like(problem.allowed))
    improver = Improver(problem, start, 0)
    for number in range(ROUNDS):
        improver.round(number, 3 + number // 10)
    before = improver.best_s
    level(improver, 4 * ROUNDS)
    check(problem, start, improver)
    assert improver.best_s < 0.9 * before


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
    found = Improver(problem, start, 0).best()
    assert sorted(zip(found.item_block.tolist(), found.item_place.tolist(), strict=True)) == [(1, 1), (1, 2), (2, 0)]


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


def test_one_rank_has_nothing_to_improve() -> None:
    """No pairs: no round moves anything, whatever its kind, and none fails."""
    model = StepModel(topology(node_group("a", ranks=1)), workload([{"rows": 10_000, "dim": 64}] * 3))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    start = Placement(np.array(problem.table_block_start[:-1]), np.zeros(3, dtype=np.int64))
    improver = Improver(problem, start, 0)
    assert sum(improver.round(number, 3) for number in range(2 * TURNS)) == 0
    check(problem, start, improver)


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
        for one, first in block_of.items():
            for two, second in block_of.items():
                if (joint := block_of.get(one + two)) is not None:
                    assert (size[:, joint] <= (size[:, first] + size[:, second]) * (1 + 1e-12)).all()
