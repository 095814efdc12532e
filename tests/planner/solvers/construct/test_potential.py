"""The potential of a partial placement: how much it grows by each block on each rank, and where there is no room."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placement


def seeds() -> list[int]:
    """Those of tiny instances that have options."""
    return [seed for seed in range(60) if len(tiny_instance(seed).options.table)]


def half_placed(problem: Problem, seed: int) -> PartialPlacement:
    """Return the state after some blocks of single ranks went anywhere."""
    partial = PartialPlacement(problem, None, None)
    placement = random_placement(problem, np.random.default_rng(seed))
    for block, place in zip(placement.item_block.tolist()[::2], placement.item_place.tolist()[::2], strict=True):
        if problem.block_extent[block] == RANK:
            before = partial.snapshot()
            partial.put(block, place, np.array([place]))
            if partial.state.overflow_bytes() > 0:
                partial.restore(before)
    return partial


def grown(problem: Problem, state: LoadState, aim_s: float, scarce: np.ndarray, block: int, rank: int) -> float:
    """Return the growth by a block on a rank, rank by rank and column by column: loads, and scarce bytes, to the 8th
    power, nothing while a load is below zero; columns in which it adds above zero less than a fiftieth of the most that
    it adds to any do not count. Infinite without room.
    """
    kinds = problem.kind_of_rank
    load = problem.fixed[:, block] + problem.by_rows[:, block]
    added = np.array([load[kind] + np.minimum(state.load[:, on], 0.0) for on, kind in enumerate(kinds)]).max(axis=0)
    size = problem.bytes_fixed[:, block] + problem.bytes_by_rows[:, block]
    total, empty = 0.0, LoadState(problem).free
    for column in range(len(problem.stage_of_column)):
        if added[column] > 0.02 * added.max():
            now, more = float(state.load[column, rank]), float(load[kinds[rank]][column])
            total += (max(now + more, 0.0) / aim_s) ** 8 - (max(now, 0.0) / aim_s) ** 8
    for tier in range(len(problem.pool_capacity)):
        free, more = float(state.free[tier, rank]), float(size[kinds[rank]][tier])
        if more > free:
            return np.inf
        if scarce[tier]:
            room = max(float(empty[tier, rank]), 1.0)
            total += (1 - (free - more) / room) ** 8 - (1 - free / room) ** 8
    return total if problem.may_hold(block)[rank] else np.inf


@pytest.mark.parametrize("is_scarce", [False, True])
def test_growth_is_that_of_the_eighth_powers(is_scarce: bool) -> None:
    """Of every block of a single rank, alone and among others that are looked at together."""
    aim_s, compared, infinite = 1e-3, 0, 0
    for seed in seeds():
        problem = tiny_instance(seed).problem
        partial = half_placed(problem, seed)
        scarce = is_scarce & (partial.state.free.min(axis=1) > 0)
        potential = Potential(partial, problem.stage_constants + aim_s, scarce, None)
        for block in np.flatnonzero(problem.block_extent == RANK).tolist():
            growth = potential.by_block_on_rank(block)
            ranks = range(problem.world)
            expected = np.array([grown(problem, partial.state, aim_s, scarce, block, rank) for rank in ranks])
            infinite += int(np.isinf(expected).sum())
            np.testing.assert_allclose(growth, expected, rtol=1e-9, atol=1e-12 * np.abs(partial.state.load).max())
            load = problem.fixed[:, [block]] + problem.by_rows[:, [block]]
            size = problem.bytes_fixed[:, [block]] + problem.bytes_by_rows[:, [block]]
            at_once = potential.by_each(load, size)[0]
            here = np.isfinite(expected)
            top = max(((partial.state.load + 0.0) / aim_s).max() ** 8, 1.0)
            np.testing.assert_allclose(at_once[here], expected[here], rtol=1e-3, atol=1e-5 * top)
            compared += 1
    assert compared > 100
    assert infinite > 10


def test_blocks_on_one_rank_grow_together() -> None:
    """Several blocks that go to one rank grow the potential as their sum does, and fit only together."""
    aim_s = 1e-3
    for seed in seeds()[:20]:
        problem = tiny_instance(seed).problem
        partial = PartialPlacement(problem, None, None)
        none = np.zeros(len(problem.pool_capacity), dtype=bool)
        potential = Potential(partial, problem.stage_constants + aim_s, none, None)
        blocks = np.flatnonzero(problem.block_extent == RANK).tolist()[:3]
        if not blocks:
            continue
        together = potential.by_blocks_on_one_rank(blocks)
        for rank in range(problem.world):
            kind = problem.kind_of_rank[rank]
            size = sum(problem.bytes_fixed[kind, b] + problem.bytes_by_rows[kind, b] for b in blocks)
            more = sum(problem.fixed[kind, b] + problem.by_rows[kind, b] for b in blocks)
            now = partial.state.load[:, rank]
            fits = (size <= partial.state.free[:, rank]).all() and all(problem.may_hold(b)[rank] for b in blocks)
            powers = [(np.maximum(seconds, 0.0) / aim_s) ** 8 for seconds in (now + more, now)]
            expected = (powers[0] - powers[1]).sum() if fits else np.inf
            assert together[rank] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_largest_share_is_a_blocks_size() -> None:
    """Of a stage's time or of a rank's memory, on the kind of rank where it is largest."""
    aim_s = 1e-3
    for seed in seeds()[:30]:
        problem = tiny_instance(seed).problem
        none = np.zeros(len(problem.pool_capacity), dtype=bool)
        partial = PartialPlacement(problem, None, None)
        potential = Potential(partial, problem.stage_constants + aim_s, none, None)
        blocks = np.flatnonzero(problem.block_extent == RANK)
        sizes = potential.sizes(blocks)
        room = np.maximum(partial.state.free.max(axis=1), 1.0)
        for block in blocks.tolist():
            hidden = np.minimum(problem.extremes.base_of_instance, 0.0)
            load = (problem.fixed[:, block] + problem.by_rows[:, block] + hidden).max() / aim_s
            size = ((problem.bytes_fixed[:, block] + problem.bytes_by_rows[:, block]) / room).max()
            assert sizes[block] == pytest.approx(max(load, size), rel=1e-9)
