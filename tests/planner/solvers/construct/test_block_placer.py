"""Blocks put where the potential grows least: by comparison with every other place, one by one and at once."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cost_models.shards import NODE, RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.construct.block_placer import BlockPlacer
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential
from tests.oracles.incumbents import whole_tables
from tests.oracles.instances import tiny_instance

AIM_S = 1e-3


def placer_of(problem: Problem, *, one_by_one: bool = True) -> tuple[PartialPlacement, BlockPlacer]:
    """Return an empty placement and what puts blocks into it."""
    partial = PartialPlacement(problem, None, None)
    none = np.zeros(len(problem.pool_capacity), dtype=bool)
    potential = Potential(partial, problem.stage_constants + AIM_S, none, None)
    return partial, BlockPlacer(partial, potential, one_by_one=one_by_one)


def value(load: np.ndarray) -> float:
    """Return the sum of the 8th powers of all loads [C, W]."""
    return float(((load / AIM_S) ** 8).sum())


def test_a_block_goes_where_the_sum_of_powers_grows_least() -> None:
    """Of equal tables in turn, by trying each rank: no other rank has a lower sum; all loads count."""
    problem = whole_tables(12, seed=3)
    partial, placer = placer_of(problem)
    for block in range(12):
        before = partial.state.load.copy()
        assert placer.put_on_rank(block)
        grown = value(partial.state.load)
        for rank in range(problem.world):
            other = before.copy()
            load = problem.fixed[0, block] + problem.by_rows[0, block]
            shared = problem.resource_of_rank == problem.resource_of_rank[:, [rank]]
            other += np.where(shared, load[:, None], 0.0)
            alone = (problem.resource_of_rank[:, :1] != problem.resource_of_rank[:, 1:]).all()
            assert not alone or grown <= value(other) * (1 + 1e-6)


def test_a_block_without_room_is_not_put() -> None:
    """Memory for two tables on each of two ranks: the fifth has no place, and nothing has changed by asking."""
    problem = whole_tables(5, ranks=2, seed=1)
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0].max(axis=0)
    capacity = tuple(
        np.full(len(pool), problem.base_bytes[m] + 2.01 * size[m]) for m, pool in enumerate(problem.pool_capacity)
    )
    same = np.broadcast_to(problem.bytes_by_rows.max(axis=1, keepdims=True), problem.bytes_by_rows.shape)
    problem = replace(problem, pool_capacity=capacity, bytes_by_rows=same, bytes_fixed=np.zeros_like(same))
    partial, placer = placer_of(problem)
    assert placer.put_on_ranks([0, 1, 2, 3])
    load = partial.state.load.copy()
    assert not placer.put_on_rank(4)
    assert np.array_equal(partial.state.load, load)


def test_many_blocks_at_once_keep_the_books() -> None:
    """On 256 ranks, 512 unlike tables: every block once, some on every rank, and the memory that is left is right."""
    problem = whole_tables(512, nodes=32, ranks=8, seed=2)
    partial, placer = placer_of(problem, one_by_one=False)
    order = np.argsort(-(problem.fixed + problem.by_rows)[0].max(axis=1)).tolist()
    assert placer.put_on_ranks(order)
    placement, state = partial.finished()
    assert placement.item_block.tolist() == list(range(512))
    np.testing.assert_allclose(state.free, load_state(problem, placement).free, rtol=1e-9)
    assert (np.bincount(placement.item_place, minlength=256) > 0).all()


@pytest.mark.parametrize("extent", [RANK, NODE])
def test_colocated_blocks_and_wide_ones_stay_on_one_node(extent: int) -> None:
    """Blocks of a node-colocated option go to different ranks of one node; a wide one to a node that may hold it."""
    put = 0
    for seed in range(160):
        problem = tiny_instance(seed).problem
        partial, placer = placer_of(problem)
        if extent == NODE:
            for block in np.flatnonzero(problem.block_extent == NODE).tolist():
                if placer.put_on_group(block):
                    placement, _ = partial.finished()
                    ranks = problem.node_of_rank == placement.item_place[placement.item_block == block][-1]
                    assert problem.may_hold(block)[ranks].all()
                    assert partial.state.overflow_bytes() == 0
                    put += 1
            continue
        for option in np.flatnonzero(problem.option_colocated).tolist():
            types = np.arange(*problem.block_start[option : option + 2])
            blocks = np.repeat(types, problem.block_count[types]).tolist()
            before = partial.snapshot()
            if placer.put_within_one_node(blocks):
                places = partial.finished()[0].item_place
                assert len(set(places.tolist())) == len(blocks)
                assert len({int(problem.node_of_rank[place]) for place in places}) == 1
                put += 1
            partial.restore(before)
    assert put >= 5


def test_a_wide_block_goes_to_the_emptier_node() -> None:
    """With one node loaded already, of two alike the other one is chosen."""
    chosen = 0
    for seed in itertools.count():
        problem = tiny_instance(seed).problem
        wide = np.flatnonzero(problem.block_extent == NODE)
        nodes = len(problem.node_start) - 1
        if not len(wide) or nodes < 2 or problem.kinds > 1 or not problem.may_hold(int(wide[0])).all():
            continue
        partial, placer = placer_of(problem)
        free = partial.state.free.copy()
        first = int(wide[0])
        if placer.put_on_group(first) and placer.put_on_group(first):
            placement, state = partial.finished()
            assert (state.free <= free).all()
            assert placement.item_place[0] != placement.item_place[1]
            chosen += 1
        if chosen == 3 or seed > 400:
            break
    assert chosen
