"""A placement that grows: loads are those of its blocks, spare memory is kept, undoing leaves no trace."""

import functools

import numpy as np
import pytest

from cost_models.shards import NODE, RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.placement import Placement
from planner.solvers.construct.partial_placement import PartialPlacement
from tests.oracles.placements import random_placement, tiny_placement


@functools.cache
def cases() -> list[tuple[Problem, Placement]]:
    return [found for seed in range(120) if (found := tiny_placement(seed)) is not None]


def put_all(partial: PartialPlacement, placement: Placement) -> None:
    """Put all blocks of a placement but for world-wide ones, which have their places from the beginning."""
    problem = partial.problem
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        if problem.block_extent[block] == RANK:
            partial.put(block, place, np.array([place]))
        elif problem.block_extent[block] == NODE:
            partial.put(block, place, np.flatnonzero(problem.node_of_rank == place))


@pytest.mark.parametrize("is_spared", [False, True])
def test_the_end_is_the_placement_with_its_loads(is_spared: bool) -> None:
    """Blocks in their order, at their places; all memory that was spared is there again."""
    assert len(cases()) >= 10
    for problem, placement in cases():
        spare = np.full(len(problem.pool_capacity), 10.0) if is_spared else None
        partial = PartialPlacement(problem, None, spare)
        assert (LoadState(problem).free - partial.state.free == (10.0 if is_spared else 0.0)).all()
        partial.charge_everywhere(placement.item_block)
        partial.confine([])
        put_all(partial, placement)
        finished, state = partial.finished()
        pairs = sorted(zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True))
        assert sorted(zip(finished.item_block.tolist(), finished.item_place.tolist(), strict=True)) == pairs
        assert (np.diff(finished.item_block) >= 0).all()
        expected = load_state(problem, placement)
        np.testing.assert_allclose(state.load, expected.load, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(state.free, expected.free, rtol=1e-9, atol=1e-3)


def test_what_was_undone_leaves_no_trace() -> None:
    """After going back to a snapshot another placement comes out as if the first had never been tried."""
    for number, (problem, placement) in enumerate(cases()):
        partial = PartialPlacement(problem, None, None)
        before, load = partial.snapshot(), partial.state.load.copy()
        put_all(partial, random_placement(problem, np.random.default_rng(number)))
        partial.restore(before)
        assert np.array_equal(partial.state.load, load)
        partial.charge_everywhere(placement.item_block)
        put_all(partial, placement)
        finished, state = partial.finished()
        assert len(finished.item_block) == len(placement.item_block)
        np.testing.assert_allclose(state.load, load_state(problem, placement).load, rtol=1e-9, atol=1e-15)
