"""Exchanges of load balancing: they gain what they say, keep to memory and to the policy, and the index is right."""

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, place_everywhere, place_world
from planner.problem.placement import Placement
from planner.solvers.improve.exchanges import Aim, ExchangeRound, within_spare
from planner.solvers.improve.state import SearchState
from tests.oracles.incumbents import whole_tables
from tests.oracles.local_searches import check_books, tiny


def aim_of(problem: Problem, load: np.ndarray) -> Aim:
    """Return an aim half-way from the longest load of each loaded column to its mean."""
    columns = np.flatnonzero(np.ptp(load, axis=1) > 1e-9 * np.abs(load).max(axis=1))
    longest, mean = load[columns].max(axis=1), load[columns].mean(axis=1)
    none = np.zeros(len(problem.stage_constants))
    return Aim(columns, np.ones(len(columns)), (longest + mean) / 2, longest - (longest + mean) / 2, 1e-3, none)


def excess(load: np.ndarray, aim: Aim) -> np.ndarray:
    """Return what each rank [W] is above the aim by; what is at the stage's longest counts twice."""
    above = np.maximum(load[aim.columns] - aim.load[:, None], 0.0)
    return (aim.weight[:, None] * above * (1 + above / aim.reach[:, None])).sum(axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_an_exchange_gains_what_it_says(seed: int) -> None:
    """Of tables on four ranks, all on one at first: seconds above the aim fall by as much, and each block is still
    there once."""
    problem = whole_tables(12, seed=seed)
    state = SearchState(problem, Placement(np.arange(12), np.array([0] * 9 + [1, 2, 3])), seed)
    aim, random = aim_of(problem, state.loads.load), np.random.default_rng(seed)
    rounds = ExchangeRound(state.exchange_index, state.items, state.loads, state.spare, aim, 0.0, 1.0, random)
    before = excess(state.loads.load, aim).sum()
    gain = rounds.improve(0, 0.0)
    assert gain > 0
    assert rounds.is_changed
    assert state.replace(rounds.items())
    check_books(state)
    after = excess(state.loads.load, aim).sum()
    assert before - after == pytest.approx(gain, rel=1e-3)
    assert sorted(state.placement().item_block.tolist()) == list(range(12))


def test_every_rank_takes_part_once_and_memory_is_kept() -> None:
    """From random placements of every sort, all ranks improved in turn: legal, right, and nothing over-full."""
    changed = 0
    for seed, problem, placement in tiny():
        state = SearchState(problem, placement, seed)
        aim = aim_of(problem, state.loads.load)
        if not len(aim.columns) or not len(state.items.rank):
            continue
        random = np.random.default_rng(seed)
        rounds = ExchangeRound(state.exchange_index, state.items, state.loads, state.spare, aim, 1.0, 1.0, random)
        for rank in range(problem.world):
            if rounds.free[rank]:
                gain = rounds.improve(rank, 0.0)
                assert gain >= 0
                assert not gain or not rounds.free[rank]
        if rounds.is_changed:
            state.replace(rounds.items())
            state.settle(np.array(rounds.settled, dtype=np.int64))
            check_books(state)
            assert state.loads.overflow_bytes() <= 4e-3
            changed += 1
    assert changed >= 15


def test_options_over_the_world_cost_what_placing_them_does() -> None:
    """Of every one: seconds and bytes of the fullest rank, as its blocks placed alone show."""
    compared = 0
    for seed, problem, placement in tiny():
        index = SearchState(problem, placement, seed).exchange_index
        options, load, size = index.world_options
        for number, option in enumerate(options.tolist()):
            types = np.arange(*problem.block_start[option : option + 2])
            blocks = np.repeat(types, problem.block_count[types])
            state, empty = LoadState(problem), LoadState(problem)
            place_everywhere(problem, state, blocks)
            place_world(problem, state, blocks)
            if problem.extremes.sharing.max() == 1 and problem.kinds == 1:
                np.testing.assert_allclose((state.load - empty.load).max(axis=1), load[number], rtol=1e-9, atol=1e-15)
                compared += 1
            own = np.array([len(np.unique(pool)) == problem.world for pool in problem.pool_of_rank])
            np.testing.assert_allclose(
                (empty.free - state.free).max(axis=1)[own], size[number][own], rtol=1e-6, atol=1e-2
            )
    assert compared >= 3


def test_the_step_grows_by_the_longest_of_each_stage() -> None:
    """As computed stage by stage from the columns' levels."""
    random = np.random.default_rng(0)
    for seed, problem, placement in tiny()[:30]:
        index = SearchState(problem, placement, seed).exchange_index
        level = load_state(problem, placement).load.mean(axis=1)
        seconds = random.random((5, len(level))) * level.max()
        least = random.random(len(problem.stage_constants)) * level.max()
        for row, grown in zip(seconds, index.growth_of_step(seconds, level, least), strict=True):
            expected = 0.0
            for stage in range(len(problem.stage_constants)):
                own = problem.stage_of_column == stage
                then, now = (level + row)[own].max(initial=least[stage]), level[own].max(initial=least[stage])
                expected += then - now
            assert grown == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_spare_memory_is_not_given_away() -> None:
    """What is kept is left out; a pool that is over-full stays so, and takes nothing."""
    free, spare = np.array([[10.0, 3.0, -2.0]]), np.array([[4.0]])
    assert within_spare(free, spare).tolist() == [[6.0, 0.0, -2.0]]
