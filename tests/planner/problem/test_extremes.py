"""The most that single blocks ask: what placing each of them on empty ranks shows."""

import numpy as np
import pytest

from cost_models.shards import NODE, RANK, WORLD
from planner.problem.load_state import LoadState, load_state, place_block
from planner.problem.placement import Placement
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import tiny_placement


@pytest.mark.parametrize("seed", range(30))
def test_no_stage_is_shorter_than_a_block_makes_it(seed: int) -> None:
    """Wherever a block is on a kind, the stages last as long as its peaks say; on single ranks no longer."""
    problem = tiny_instance(seed).problem
    peaks = problem.extremes.stage_peaks_of_kind
    for block, extent in enumerate(problem.block_extent.tolist()):
        for kind in range(problem.kinds):
            if not problem.allowed[kind, block]:
                assert np.isinf(peaks[kind, block]).all()
                continue
            if extent == WORLD:
                base = LoadState(problem).stage_seconds() - problem.stage_constants
                assert (peaks[kind, block] <= base + 1e-15).all()
                continue
            ranks = np.flatnonzero(problem.kind_of_rank == kind)
            for place in ranks if extent == RANK else np.unique(problem.node_of_rank[ranks]):
                state = LoadState(problem)
                place_block(problem, state, block, int(place))
                held = state.load[:, [place]] if extent == RANK else state.load[:, problem.node_of_rank == place]
                longest = np.zeros(len(problem.stage_constants))
                np.maximum.at(longest, problem.stage_of_column, held.max(axis=1))
                assert (peaks[kind, block] <= longest * (1 + 1e-12)).all()
                if extent == RANK and problem.kinds == 1:
                    assert peaks[kind, block] == pytest.approx(longest, rel=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_demand_is_the_share_that_the_fullest_pool_gives(seed: int) -> None:
    """Of the pools of a kind's first node, whatever the block's extent."""
    problem = tiny_instance(seed).problem
    for kind in range(problem.kinds):
        rank = int(np.flatnonzero(problem.kind_of_rank == kind)[0])
        node = int(problem.node_of_rank[rank])
        for block, extent in enumerate(problem.block_extent.tolist()):
            if extent == WORLD:
                continue
            before, after = LoadState(problem), LoadState(problem)
            place_block(problem, after, block, rank if extent == RANK else node)
            here = problem.node_of_rank == node if extent == NODE else np.arange(problem.world) == rank
            for m in range(len(problem.pool_capacity)):
                taken, free = (before.free - after.free)[m, here], before.free[m, here]
                expected = [t / f if f > 0 else np.inf if t > 0 else 0.0 for t, f in zip(taken, free, strict=True)]
                assert problem.extremes.pool_demand[kind, block, m] == pytest.approx(max(expected), rel=1e-6, abs=1e-9)


def test_what_was_there_before_counts_once_for_each_instance() -> None:
    """The least base load of an instance that a kind's ranks use, and how many of a node's ranks share the first."""
    for seed in range(30):
        problem = tiny_instance(seed).problem
        load = problem.base_loads[problem.kind_of_rank]
        for kind in range(problem.kinds):
            own = np.flatnonzero(problem.kind_of_rank == kind)
            node = np.flatnonzero(problem.node_of_rank == problem.node_of_rank[own[0]])
            for c, instance in enumerate(problem.resource_of_rank):
                total = min(sum(load[r, c] for r in np.flatnonzero(instance == instance[rank])) for rank in own)
                assert problem.extremes.base_of_instance[kind, c] == pytest.approx(total)
                assert problem.extremes.sharing[kind, c] == (instance[node] == instance[node[0]]).sum()


def test_every_instance_has_what_all_have_of_each_block() -> None:
    """Of random placements, the least loaded instance of each resource; just that of copies on all ranks."""
    compared, equal = 0, 0
    for seed in range(80):
        placed = tiny_placement(seed)
        if placed is None or placed[0].kinds > 1:
            continue
        problem, placement = placed
        copied = problem.is_world_wide & problem.block_replicated
        for chosen in (np.ones(len(placement.item_block), dtype=bool), copied[placement.item_block]):
            some = Placement(placement.item_block[chosen], placement.item_place[chosen])
            more = load_state(problem, some).load - LoadState(problem).load
            for column, load in enumerate(more):
                of_all = float(problem.extremes.of_all(column)[some.item_block].sum())
                assert of_all <= load.min() * (1 + 1e-9) + 1e-15
                compared += of_all > 0
                equal += bool(of_all > 0 and of_all == pytest.approx(load.min(), rel=1e-9) and chosen.any())
    assert compared > 20
    assert equal > 10
