"""Over which ranks blocks reach: one rank, the ranks of a node, all of them."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK, WORLD
from planner.problem.load_state import LoadState, place_block
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
