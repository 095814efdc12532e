"""Changes of a placement: the step that each would lead to is that of the placement it leads to, for all ranks."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.changes import Changeable
from tests.oracles.placements import faults, tiny_placements


def step_of(problem: Problem, block: np.ndarray, place: np.ndarray) -> float:
    """Return the step of blocks at places; infinite where they do not fit or may not be there."""
    placement = Placement(block, place)
    state = load_state(problem, placement)
    is_legal = not [fault for fault in faults(problem, placement) if "may not" in fault or "outside" in fault]
    return state.step_s() if is_legal and state.overflow_bytes() <= ROUNDING_BYTES else np.inf


def test_an_item_elsewhere_makes_the_step_that_is_said() -> None:
    """On every rank, also where it does not fit."""
    compared = 0
    for problem, placement in tiny_placements(90):
        now = Changeable(problem, placement)
        for item in np.flatnonzero(now.may_move)[:4].tolist():
            offers = now.offers(now.without([item]), [item], int(now.block[item]))
            for rank in range(problem.world):
                place = placement.item_place.copy()
                place[item] = rank
                expected = step_of(problem, placement.item_block, place)
                assert offers.step_s[rank] == pytest.approx(expected, rel=1e-9)
                compared += 1
    assert compared > 100


def test_swaps_make_the_steps_that_are_said() -> None:
    """With every partner on another rank."""
    compared = 0
    for problem, placement in tiny_placements(90):
        now = Changeable(problem, placement)
        movable = np.flatnonzero(now.may_move)
        for item in movable[:3].tolist():
            others, steps = now.swaps(item, movable)
            for other, step_s in zip(others.tolist(), steps.tolist(), strict=True):
                place = placement.item_place.copy()
                place[[item, other]] = place[[other, item]]
                assert step_s == pytest.approx(step_of(problem, placement.item_block, place), rel=1e-9)
                compared += 1
    assert compared > 30


def test_a_change_that_is_made_leads_to_its_placement() -> None:
    """Its step and its loads are those of the new placement, and the blocks are those that were to come."""
    random, made = np.random.default_rng(0), 0
    for problem, placement in tiny_placements(90):
        now = Changeable(problem, placement)
        for _ in range(4):
            movable = np.flatnonzero(now.may_move)
            if not len(movable):
                break
            item, rank = int(random.choice(movable)), int(random.integers(problem.world))
            change = now.exchange([item], ((int(now.block[item]), rank),))
            if change is None or not problem.may_hold(int(now.block[item]))[rank]:
                continue
            now.make(change)
            after = load_state(problem, now.placement())
            assert now.step_s == pytest.approx(after.step_s(), rel=1e-9)
            assert change.step_s == pytest.approx(now.step_s, rel=1e-9)
            np.testing.assert_allclose(now.state.free, after.free, rtol=1e-9, atol=1e-2)
            assert faults(problem, now.placement()) == []
            made += 1
    assert made > 30


def test_whole_blocks_hold_the_table_on_one_rank() -> None:
    """Each alone is the whole table, of every option that some rank may hold so, and no other is."""
    for problem, placement in tiny_placements(90)[:20]:
        now = Changeable(problem, placement)
        for table in range(problem.tables):
            whole = set(now.whole_on_rank(table).tolist())
            for block in range(*problem.table_block_start[table : table + 2]):
                option = problem.block_option[block]
                types = np.arange(*problem.block_start[option : option + 2])
                alone = (
                    problem.block_units[block] == problem.option_units[option]
                    if problem.option_units[option]
                    else len(types) == 1 and problem.block_count[block] == 1
                )
                on_rank = problem.block_extent[block] == RANK and problem.allowed[:, block].any()
                assert (block in whole) == bool(alone and on_rank)
