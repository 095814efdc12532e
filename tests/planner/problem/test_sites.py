"""Over which ranks blocks reach: one rank, the ranks of a node, all of them."""

import numpy as np

from cost_models.shards import NODE, RANK, WORLD
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from planner.problem.sites import NOWHERE, Sites
from tests.oracles.instances import tiny_instance


def _sharing(problem: Problem, ranks: np.ndarray) -> np.ndarray:
    """Return whether each rank [W] is one of some ranks [W], or shares a resource or a memory with one of them."""
    shares = ranks.copy()
    for instance in (*problem.resource_of_rank, *problem.pool_of_rank):
        shares |= np.isin(instance, instance[ranks])
    return shares


def test_a_block_loads_the_ranks_of_its_extent_only() -> None:
    """Each with those that share something with them; and of every extent there are blocks."""
    seen = {RANK: 0, NODE: 0, WORLD: 0}
    for seed in range(40):
        problem = tiny_instance(seed).problem
        for block, extent in enumerate(problem.block_extent.tolist()):
            places = {RANK: range(problem.world), NODE: range(len(problem.node_start) - 1), WORLD: [-1]}[extent]
            for place in places:
                state, before = LoadState(problem), LoadState(problem)
                place_block(problem, state, block, place)
                changed = (state.load != before.load).any(axis=0) | (state.free != before.free).any(axis=0)
                within = {
                    RANK: np.arange(problem.world) == place,
                    NODE: problem.node_of_rank == place,
                    WORLD: np.ones(problem.world, dtype=bool),
                }[extent]
                assert changed.any()
                assert not (changed & ~_sharing(problem, within)).any()
                seen[extent] += 1
    assert min(seen.values()) > 20


def test_sites_are_runs_of_ranks() -> None:
    """Their ranks, sums and flags, counted by hand: two ranks, one rank, three ranks."""
    sites = Sites("group", np.array([0, 0, 1, 2, 2, 2]))
    assert sites.count == 3
    assert sites.first.tolist() == [0, 2, 3]
    assert sites.sizes.tolist() == [2, 1, 3]
    assert [sites.ranks(place) for place in range(3)] == [slice(0, 2), slice(2, 3), slice(3, 6)]
    assert sites.sum(np.array([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])).tolist() == [[3.0, 4.0, 56.0]]
    flags = np.array([True, False, True, False, False, False])
    assert sites.all(flags).tolist() == [False, True, False]
    assert sites.any(flags).tolist() == [True, True, False]


def test_ranks_of_a_site_may_be_apart() -> None:
    """Then they are listed, and sums are over them."""
    sites = Sites("group", np.array([0, 1, 0, 1, 0, 1]))
    assert (sites.count, sites.first.tolist(), sites.sizes.tolist()) == (2, [0, 1], [3, 3])
    assert [sites.members(place).tolist() for place in range(2)] == [[0, 2, 4], [1, 3, 5]]
    assert sites.position_of_rank.tolist() == [0, 0, 1, 1, 2, 2]
    assert sites.sum(np.array([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])).tolist() == [[21.0, 42.0]]
    assert sites.all(np.array([True, False, True, True, True, True])).tolist() == [True, False]
    assert sites.any(np.array([False, False, False, True, False, False])).tolist() == [False, True]


def test_a_world_wide_block_has_one_place() -> None:
    """It is nowhere in particular: on all ranks."""
    assert Sites("world", np.zeros(4, dtype=np.int64)).ranks(NOWHERE) == slice(0, 4)
