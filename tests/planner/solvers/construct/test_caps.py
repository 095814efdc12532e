"""Caps on single blocks: what keeps to them, and that every table keeps some block."""

import numpy as np
import pytest

from cost_models.shards import WORLD
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.caps import SHARED_POOL_CAPS, capped_blocks, capped_one_by_one, without_single_ranks
from tests.oracles.instances import node_group, tiny_instance, topology, workload


@pytest.mark.parametrize("is_tight", [False, True])
def test_every_table_keeps_a_block_and_masks_differ(is_tight: bool) -> None:
    """No two masks are the same, each is a part of the usual blocks, and the last allows all that can be cut evenly."""
    compared = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        fluid = Fluid(problem)
        if not np.isfinite(fluid.price(fluid.no_multipliers())[0]).all():
            continue
        relaxed = solve_relaxation(fluid)
        masks = [mask for _, mask in capped_blocks(problem, relaxed, np.full(len(problem.pool_capacity), is_tight))]
        assert len({mask.tobytes() for mask in masks}) == len(masks)
        one_by_one = capped_one_by_one(problem, relaxed, np.full(len(problem.pool_capacity), is_tight))
        assert (next(one_by_one)[1] == masks[0]).all()
        for mask in masks:
            assert not (mask & ~problem.usual).any()
            assert (np.unique(problem.table_of_block[mask]) == np.arange(problem.tables)).all()
        compared += len(masks)
    assert compared > 100


def test_blocks_over_a_cap_on_pools_are_the_smallest_of_their_table() -> None:
    """By the share of a pool that each block takes, computed here: what is over the cap has no smaller block beside it
    in the mask that is usable everywhere."""
    problem = tiny_instance(4).problem
    relaxed = solve_relaxation(Fluid(problem))
    tight = np.ones(len(problem.pool_capacity), dtype=bool)
    share = np.where(problem.allowed[..., None], problem.extremes.pool_demand, 0.0).max(axis=(0, 2))
    for (cap, shared_cap), mask in capped_blocks(problem, relaxed, tight):
        over = np.flatnonzero(mask & (share > max(cap, shared_cap)) & (problem.block_extent != WORLD))
        for block in over.tolist():
            own = problem.table_of_block == problem.table_of_block[block]
            below = own & mask & (share <= min(cap, shared_cap)) & problem.block_is_splittable
            assert not below.any() or not problem.block_is_splittable[block]


def test_shared_pools_that_are_tight_have_caps_of_their_own() -> None:
    """Some starts use only blocks that are small for a node's memory, whatever they take of a rank's."""
    policy = Policy(tiers=("hbm", "ddr"))
    tables = [{"name": f"t{i}", "rows": 300_000, "dim": 128} for i in range(64)]
    cluster = topology(node_group("a", ranks=4, nodes=2, hbm_bytes=0.6e9, ddr_bytes=2.9e9))
    model = planning_model("physical", cluster, workload(tables), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    relaxed = solve_relaxation(Fluid(problem))
    ddr = next(m for m, pool in enumerate(problem.pool_of_rank) if len(np.unique(pool)) == 2)
    tight = np.arange(len(problem.pool_capacity)) == ddr
    by_caps = dict(capped_blocks(problem, relaxed, tight))
    without = dict(capped_blocks(problem, relaxed, np.zeros_like(tight)))
    shared = [caps for caps in by_caps if caps[1] in SHARED_POOL_CAPS and caps[0] > caps[1]]
    assert shared
    assert not any(caps[0] > caps[1] for caps in without)
    share = problem.extremes.pool_demand[0, :, ddr]
    whole = problem.block_extent < 2
    largest = {caps: float(share[mask & whole].max()) for caps, mask in by_caps.items()}
    assert min(largest[caps] for caps in shared) < max(largest.values())


def test_tables_that_have_other_blocks_keep_none_on_single_ranks() -> None:
    """Told table by table: one with blocks elsewhere keeps these alone, one without keeps what it has."""
    moved = kept = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        usable = problem.usual & (np.random.default_rng(seed).random(len(problem.usual)) < 0.5)
        left = without_single_ranks(problem, usable)
        for table in range(problem.tables):
            own = np.flatnonzero(usable & (problem.table_of_block == table))
            elsewhere = own[~problem.is_on_rank[own]]
            expected = elsewhere if len(elsewhere) else own
            assert np.flatnonzero(left & (problem.table_of_block == table)).tolist() == expected.tolist()
            moved += 0 < len(elsewhere) < len(own)
            kept += len(own) > 0 and not len(elsewhere)
    assert moved
    assert kept
