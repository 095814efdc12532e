"""The target: what it says a block adds is what the value grows by, and evenly loaded nothing is faster."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.load_state import load_state, place_block
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.target import Target, target_seconds
from planner.solvers.improve.wide import WideBlocks
from tests.oracles.placements import tiny_placements


def test_the_growth_of_a_block_is_that_of_the_value() -> None:
    """On every rank of problems in which ranks share nothing: loads and bytes apart, and both together."""
    compared = 0
    for problem, placement in tiny_placements(90):
        if problem.extremes.sharing.max() > 1 or any(len(np.unique(p)) < problem.world for p in problem.pool_of_rank):
            continue
        relaxed = solve_relaxation(Fluid(problem))
        target = Target(problem, relaxed.multipliers, relaxed.stage_seconds)
        state, ranks = load_state(problem, placement), np.arange(problem.world)
        before = target.value(state)
        for block in np.flatnonzero(problem.block_extent == RANK)[:6].tolist():
            kind = problem.kind_of_rank
            load = (problem.fixed + problem.by_rows)[kind, block][:, None]
            size = (problem.bytes_fixed + problem.bytes_by_rows)[kind, block]
            growth = target.growth(state, load, ranks)[:, 0]
            growth += sum(target.byte_growth(state, size[:, [m]], m, ranks)[:, 0] for m in range(size.shape[1]))
            for rank in range(problem.world):
                then = state.copy()
                place_block(problem, then, block, rank)
                expected = target.value(then) - before
                assert growth[rank] == pytest.approx(expected, rel=1e-6, abs=1e-9 * abs(before))
                compared += 1
    assert compared >= 30


def test_wide_blocks_add_up_over_their_ranks() -> None:
    """The parts of all ranks are the growth of the value, shared resources counted once."""
    compared = 0
    for problem, placement in tiny_placements(90):
        wide = WideBlocks(problem)
        relaxed = solve_relaxation(Fluid(problem))
        target, state = Target(problem, relaxed.multipliers, relaxed.stage_seconds), load_state(problem, placement)
        for block in np.flatnonzero(problem.block_extent == 2)[:4].tolist():
            then = state.copy()
            place_block(problem, then, block, -1)
            expected = target.value(then) - target.value(state)
            grown = float(target.wide_growth(state, *wide.total(block)).sum())
            assert grown == pytest.approx(expected, rel=1e-6, abs=1e-9 * abs(target.value(state)))
            compared += 1
    assert compared >= 10


def test_stage_times_make_up_the_step() -> None:
    """Target times of a step sum to it, each as long in proportion as in the relaxation."""
    for problem, _ in tiny_placements(90)[:20]:
        fluid = Fluid(problem)
        relaxed = solve_relaxation(fluid)
        seconds = target_seconds(fluid, relaxed, relaxed.bound_s * 1.5)
        working = relaxed.stage_seconds - problem.stage_constants
        if working.sum() > 1e-12:
            assert seconds.sum() == pytest.approx(relaxed.bound_s * 1.5, rel=1e-9)
            share = (seconds - problem.stage_constants) / (seconds - problem.stage_constants).sum()
            np.testing.assert_allclose(share, np.maximum(working, 0.0) / np.maximum(working, 0.0).sum(), atol=1e-9)


def test_a_target_only_falls_and_what_is_over_it_is_dear() -> None:
    """A higher one changes nothing; with a lower one the same state costs more."""
    for problem, placement in tiny_placements(90)[:20]:
        relaxed = solve_relaxation(Fluid(problem))
        state = load_state(problem, placement)
        target = Target(problem, relaxed.multipliers, state.stage_seconds() * 1.2)
        value, aim = target.value(state), target.aim.copy()
        target.lower(state.stage_seconds() * 2)
        assert target.value(state) == value
        target.lower(problem.stage_constants + (state.stage_seconds() - problem.stage_constants) * 0.5)
        assert (target.aim <= aim).all()
        assert target.even_s(state) <= state.step_s() * (1 + 1e-9)
