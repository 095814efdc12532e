"""Longest-first placement: complete, within memory, where the policy lets it, and sensibly balanced."""

import numpy as np
import pytest

from cost_models.step import StepModel
from planner.options import Policy, build_problem, enumerate_options
from planner.problem import NODE, RANK, WORLD, Placement, Problem, load_state
from planner.solvers.greedy import place
from tests.oracles.instances import node_group, tiny_instance, topology, workload


def placed(problem: Problem, seed: int) -> tuple[np.ndarray, Placement, float] | None:
    """A random choice of options, placed; with the step that the placer says it takes."""
    random = np.random.default_rng(seed)
    chosen = np.array([random.integers(*problem.option_start[table : table + 2]) for table in range(problem.tables)])
    found = place(problem, chosen, problem.stage_constants + 1e-3)
    return None if found is None else (chosen, found[0], found[1].step_s())


def test_every_block_has_a_place_that_it_may_have() -> None:
    """Every block of every chosen option once, on kinds that are allowed, tied ones apart on one node, and all fit."""
    complete = 0
    for seed in range(90):
        problem = tiny_instance(seed).problem
        found = placed(problem, seed)
        if found is None:
            continue
        complete += 1
        chosen, placement, step_s = found
        assert (placement.option_of_table == chosen).all()
        count = np.bincount(placement.item_block, minlength=len(problem.block_option))
        expected = np.where(np.isin(problem.block_option, chosen), problem.block_count, 0)
        assert (count == expected).all()
        extent, where = problem.block_extent[placement.item_block], placement.item_place
        assert ((where == -1) == (extent == WORLD)).all()
        on_rank, on_node = extent == RANK, extent == NODE
        assert problem.allowed[problem.kind_of_rank[where[on_rank]], placement.item_block[on_rank]].all()
        first = problem.node_start[where[on_node]]
        assert problem.allowed[problem.kind_of_rank[first], placement.item_block[on_node]].all()
        for option in chosen[problem.option_tied[chosen]]:
            ranks = where[problem.block_option[placement.item_block] == option]
            assert len(set(ranks.tolist())) == len(ranks)
            assert len(set(problem.node_of_rank[ranks].tolist())) == 1
        state = load_state(problem, placement)
        assert state.overflow_bytes() == 0
        assert state.step_s() == pytest.approx(step_s, rel=1e-9)
    assert complete >= 30


def test_equal_tables_spread_evenly() -> None:
    """Eight equal tables on four equal ranks: two on each."""
    cluster = topology(node_group("a", ranks=4, hbm_bytes=10e9))
    model = StepModel(cluster, workload([{"rows": 10_000, "dim": 64}] * 8))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    found = place(problem, np.arange(8), problem.stage_constants + 1e-3)
    assert found is not None
    assert np.bincount(found[0].item_place).tolist() == [2, 2, 2, 2]


def test_a_full_rank_is_left_alone() -> None:
    """Memory decides where load does not: two tables that fill a rank each go to two ranks; three do not fit."""
    tables = [{"rows": 1_000_000, "dim": 64}] * 2
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.4e9))
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    for count in (2, 3):
        model = StepModel(cluster, workload((tables * 2)[:count], global_batch=64))
        problem = build_problem(model, enumerate_options(model, policy))
        assert problem.allowed.all()
        found = place(problem, np.arange(count), problem.stage_constants + 1e-3)
        if count == 3:
            assert found is None
        else:
            assert found is not None
            assert sorted(found[0].item_place.tolist()) == [0, 1]
