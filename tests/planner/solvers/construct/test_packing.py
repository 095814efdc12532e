"""Packing: what it returns fits, is complete, and is found where first fit must find it."""

import numpy as np

from cost_models.shards import NODE
from cost_models.step import StepModel
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.block_sizes import block_shares, smallest_shares
from planner.problem.load_state import load_state
from planner.solvers.construct.packing import pack
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, tiny_instance, topology, workload


def test_what_is_packed_fits_and_is_complete() -> None:
    """Over random tiny instances: every table is covered by one option, no pool is over its capacity, and nothing is
    packed that no placement exists for; nearly all that fits is packed."""
    possible = packed = 0
    for seed in range(60):
        problem = tiny_instance(seed).problem
        exists = optimum(problem) is not None
        placement = pack(problem)
        possible += exists
        if placement is None:
            continue
        assert exists, seed
        packed += 1
        assert load_state(problem, placement).overflow_bytes() <= 0, seed
        options = placement.option_of_table(problem)
        assert (options >= 0).all(), seed
        for option in options.tolist():
            own = placement.item_block[problem.block_option[placement.item_block] == option]
            if problem.option_units[option]:
                assert problem.block_units[own].sum() == problem.option_units[option], seed
            else:
                count = np.bincount(own, minlength=len(problem.block_option))
                types = np.flatnonzero(problem.block_option == option)
                assert np.array_equal(count[types], problem.block_count[types]), seed
    assert possible >= 30
    assert packed >= 0.9 * possible


def test_tables_that_are_left_over_are_cut_finer() -> None:
    """Three tables of 0.6 of a rank on two ranks: one of them must be cut, though whole ones take fewer bytes."""
    model = StepModel(
        topology(node_group("a", hbm_bytes=1e9)), workload([{"rows": 2_300_000, "dim": 64}] * 3, global_batch=64)
    )
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    packed = pack(problem)
    assert packed is not None
    assert load_state(problem, packed).overflow_bytes() <= 0


def test_the_smallest_share_of_a_table_that_fits_nowhere_is_infinite() -> None:
    """And that of one that fits is what its smallest cut takes of a rank."""
    model = StepModel(
        topology(node_group("a", hbm_bytes=1e9)),
        workload([{"rows": 10**9, "dim": 64}, {"rows": 1_000_000, "dim": 64}], global_batch=64),
    )
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    problem = build_problem(model, enumerate_options(model, policy))
    whole, small = smallest_shares(problem, block_shares(problem))
    assert np.isinf(whole)
    assert 0.26 <= small <= 0.27


def test_ranks_that_no_table_may_use_stay_empty() -> None:
    """Where all tables keep off the same rank, none of them is confined beside the others; they keep off it still."""
    cluster = topology(node_group("a", nodes=2, hbm_bytes=1e9))
    model = StepModel(cluster, workload([{"rows": 2_000_000, "dim": 64}] * 2, global_batch=64))
    for shardings in (("table_wise", "column_wise"), ("table_row_wise", "grid_shard")):
        problem = build_problem(
            model, enumerate_options(model, Policy(tiers=("hbm",), shardings=shardings, forbid_ranks=(0,)))
        )
        packed = pack(problem)
        assert packed is not None
        on_node = problem.block_extent[packed.item_block] == NODE
        nodes = np.where(on_node, packed.item_place, problem.node_of_rank[packed.item_place])
        ranks = np.where(on_node, -1, packed.item_place)
        assert (ranks != 0).all()
        assert (nodes[on_node] != 0).all()
