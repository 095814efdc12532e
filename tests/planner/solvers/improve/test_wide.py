"""Wide blocks: what they bring to each rank, its own part and all of its shared instance, and which are alike."""

import numpy as np

from cost_models.shards import NODE, RANK
from planner.problem.load_state import LoadState, place_block
from planner.solvers.improve.wide import WideBlocks
from tests.oracles.instances import tiny_instance


def test_totals_are_what_placing_the_block_adds() -> None:
    """World-wide ones, and node-wide ones on each node: to loads and free memory as each rank sees them, but for what
    several nodes share, where the block counts as if it were on all of these."""
    placed = 0
    for seed in range(50):
        problem = tiny_instance(seed).problem
        wide = WideBlocks(problem)
        for block in np.flatnonzero(problem.block_extent != RANK).tolist():
            load, size = wide.total(block)
            on_node = problem.block_extent[block] == NODE
            for place in range(int(problem.node_of_rank[-1]) + 1) if on_node else (-1,):
                state, empty = LoadState(problem), LoadState(problem)
                place_block(problem, state, block, place)
                ranks = problem.node_of_rank == place if on_node else np.ones(problem.world, dtype=bool)
                for more, total, instances in (
                    (state.load - empty.load, load, problem.resource_of_rank),
                    (empty.free - state.free, size, problem.pool_of_rank),
                ):
                    own = [set(of[ranks].tolist()).isdisjoint(of[~ranks].tolist()) for of in instances]
                    atol = 1e-15 if total is load else 1e-2
                    np.testing.assert_allclose(more[own][:, ranks], total[own][:, ranks], rtol=1e-9, atol=atol)
                placed += 1
    assert placed > 50


def test_alike_blocks_bring_the_same() -> None:
    """Blocks that count as one are of one table and bring the same; each is like itself or one asked for before."""
    alike = 0
    for seed in range(50):
        problem = tiny_instance(seed).problem
        wide = WideBlocks(problem)
        for block in np.flatnonzero(problem.block_extent != RANK).tolist():
            other = wide.alike(block)
            assert other <= block
            assert problem.table_of_block[other] == problem.table_of_block[block]
            assert problem.block_extent[other] == problem.block_extent[block]
            assert np.array_equal(problem.allowed[:, other], problem.allowed[:, block])
            for amounts in (problem.fixed, problem.by_rows, problem.bytes_fixed, problem.bytes_by_rows):
                assert np.array_equal(amounts[:, other], amounts[:, block])
            alike += other != block
    assert alike


def test_sharing_is_known() -> None:
    """Whether two ranks use one instance of a resource, or one pool."""
    answers = set()
    for seed in range(30):
        problem = tiny_instance(seed).problem
        own = [len(set(instance.tolist())) == problem.world for instance in problem.resource_of_rank]
        own += [len(set(pool.tolist())) == problem.world for pool in problem.pool_of_rank]
        assert WideBlocks(problem).any_shared == (not all(own))
        answers.add(all(own))
    assert False in answers
