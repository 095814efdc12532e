"""Longest-first placement: complete, within memory, where the policy lets it, and sensibly balanced."""

import itertools

import numpy as np
import pytest

from cost_models.shards import PlacementTier
from cost_models.step import StepModel
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.choices import cheapest_first
from planner.solvers.construct.greedy import place
from tests.oracles.instances import confined_instance, node_group, tiny_instance, topology, workload
from tests.oracles.placements import faults


def placed(problem: Problem, seed: int) -> tuple[np.ndarray, Placement, float] | None:
    """A random choice of options, placed; with the step that the placer says it takes."""
    random = np.random.default_rng(seed)
    starts = problem.table_block_start
    choices = np.array([random.integers(*starts[table : table + 2]) for table in range(problem.tables)])
    greedy = place(problem, choices, problem.stage_constants + 1e-3)
    return None if greedy is None else (choices, greedy[0], greedy[1].step_s())


def test_every_block_has_a_place_that_it_may_have() -> None:
    """Every block of every chosen option once, on kinds that are allowed, colocated ones apart on one node, and all
    fit."""
    complete = 0
    for seed in range(90):
        problem = tiny_instance(seed).problem
        case = placed(problem, seed)
        if case is None:
            continue
        complete += 1
        choices, placement, step_s = case
        expected = [block for choice in choices.tolist() for block in problem.blocks_of_choice(choice)]
        assert sorted(placement.item_block.tolist()) == sorted(expected)
        assert faults(problem, placement) == []
        state = load_state(problem, placement)
        assert state.overflow_bytes() == 0
        assert state.step_s() == pytest.approx(step_s, rel=1e-9)
    assert complete >= 30


def test_what_is_preplaced_stays_and_the_rest_is_placed_around_it() -> None:
    """Some tables keep all their places, one loses the place of a block, the others are picked."""
    complete = 0
    for seed in range(90):
        problem = tiny_instance(seed).problem
        case = placed(problem, seed)
        if case is None or problem.tables < 3:
            continue
        choices, before, _ = case
        table = problem.option_table[problem.block_option[before.item_block]]
        option = problem.block_option[before.item_block]
        is_loose = (
            (table == 0) & (np.cumsum(table == 0) == 1) & (before.item_place >= 0) & ~problem.option_colocated[option]
        )
        is_held = (table < 2) & ~is_loose
        preplaced = Placement(before.item_block[is_held], before.item_place[is_held])
        again = place(problem, choices[2:], problem.stage_constants + 1e-3, preplaced, before.item_block[is_loose])
        if again is None:
            continue
        complete += 1
        placement, state = again
        assert faults(problem, placement) == []
        assert sorted(placement.item_block.tolist()) == sorted(before.item_block.tolist())
        pairs = list(zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True))
        for pair in zip(preplaced.item_block.tolist(), preplaced.item_place.tolist(), strict=True):
            pairs.remove(pair)
        assert state.step_s() == pytest.approx(load_state(problem, placement).step_s(), rel=1e-9)
        assert state.overflow_bytes() == 0
    assert complete >= 10


def test_equal_tables_spread_evenly() -> None:
    """Eight equal tables on four equal ranks: two on each."""
    cluster = topology(node_group("a", ranks=4, hbm_bytes=10e9))
    model = StepModel(cluster, workload([{"rows": 10_000, "dim": 64}] * 8))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    greedy = place(problem, np.arange(8), problem.stage_constants + 1e-3)
    assert greedy is not None
    assert np.bincount(greedy[0].item_place).tolist() == [2, 2, 2, 2]


def test_a_full_rank_is_left_alone() -> None:
    """Memory decides where load does not: two tables that fill a rank each go to two ranks; three do not fit."""
    tables = [{"rows": 1_000_000, "dim": 64}] * 2
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.4e9))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    for count in (2, 3):
        model = StepModel(cluster, workload((tables * 2)[:count], global_batch=64))
        problem = build_problem(model, enumerate_options(model, policy))
        assert problem.allowed.all()
        greedy = place(problem, np.arange(count), problem.stage_constants + 1e-3)
        if count == 3:
            assert greedy is None
        else:
            assert greedy is not None
            assert sorted(greedy[0].item_place.tolist()) == [0, 1]


@pytest.mark.parametrize("seed", [239, 278])
def test_a_zone_that_was_tried_in_vain_leaves_no_trace(seed: int) -> None:
    """The loads are those of the placement, also where a group did not fit into the first zone it was tried in."""
    problem = confined_instance(seed).problem
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    placed = 0
    for choices in itertools.islice(
        cheapest_first(fluid.choice_values(relaxed.multipliers), problem.table_block_start), 60
    ):
        greedy = place(problem, choices, relaxed.stage_seconds)
        if greedy is not None:
            placed += 1
            assert greedy[1].step_s() == pytest.approx(load_state(problem, greedy[0]).step_s(), rel=1e-9)
    assert placed


MANY = topology(node_group("a", nodes=32, ranks=8, hbm_bytes=10e9))


def test_equal_tables_spread_evenly_over_many_ranks() -> None:
    """Blocks that are placed together go to different ranks: 512 equal tables on 256 ranks, two on each."""
    model = StepModel(MANY, workload([{"rows": 10_000, "dim": 64}] * 512))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_wise",))))
    greedy = place(problem, np.arange(512), problem.stage_constants + 1e-3)
    assert greedy is not None
    assert np.bincount(greedy[0].item_place).tolist() == [2] * 256


@pytest.mark.parametrize("tiers", [("hbm",), ("ddr",), ("hbm", "ddr_cached")])
def test_placing_blocks_together_keeps_the_books(tiers: tuple[PlacementTier, ...]) -> None:
    """Of all sizes and options, on two kinds of rank: every block once, where it may be, and the loads are right."""
    cluster = topology(
        node_group("a", nodes=20, ranks=8, hbm_bytes=80e9, ddr_bytes=1e12),
        node_group("b", nodes=16, ranks=8, hbm_bytes=80e9, ddr_bytes=1e12, hbm_bytes_per_s=3e12),
    )
    random = np.random.default_rng(3)
    tables = [
        {"rows": int(rows), "dim": int(dim)}
        for rows, dim in zip(10 ** random.uniform(2, 6, 400), random.choice([16, 64, 128], 400), strict=True)
    ]
    model = StepModel(cluster, workload(tables))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=tiers)))
    starts = problem.table_block_start
    choices = np.array([random.integers(*starts[table : table + 2]) for table in range(problem.tables)])
    greedy = place(problem, choices, problem.stage_constants + 1e-2)
    assert greedy is not None
    placement, state = greedy
    assert faults(problem, placement) == []
    expected = [block for choice in choices.tolist() for block in problem.blocks_of_choice(choice)]
    assert sorted(placement.item_block.tolist()) == sorted(expected)
    again = load_state(problem, placement)
    np.testing.assert_allclose(state.load, again.load, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(state.free, again.free, rtol=1e-9, atol=1e-2)


@pytest.mark.parametrize("ranks", [4, 256])
def test_memory_is_spared_only_where_it_can_be(ranks: int) -> None:
    """One table fills 80 % of each rank: with a tenth to spare, and with half, which cannot be, all are placed."""
    cluster = topology(node_group("a", nodes=ranks // 4, ranks=4, hbm_bytes=0.4e9))
    model = StepModel(cluster, workload([{"rows": 1_200_000, "dim": 64}] * ranks, global_batch=64))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_wise",))))
    for spare in (0.04e9, 0.2e9):
        greedy = place(problem, np.arange(ranks), problem.stage_constants + 1e-3, spare=np.array([spare, 0.0, 0.0]))
        assert greedy is not None
        assert sorted(greedy[0].item_place.tolist()) == list(range(ranks))
        assert greedy[1].free.min() == pytest.approx(load_state(problem, greedy[0]).free.min())
