"""Two bins divide their blocks anew: the best of all ways, within memory."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.repartition import BLOCKS, Bins, repartitioned
from planner.solvers.improve.smoothing import Smoothing
from tests.oracles.instances import tiny_instance

SQUARINGS = 3
CLEARLY = 1e-4
"""Relative difference that single precision tells apart."""


def smoothing_of(problem: Problem) -> Smoothing:
    """Any: around the dense part alone, every column counts as it comes."""
    state = LoadState(problem)
    state.load += np.random.default_rng(1).random(state.load.shape) * 1e-3
    return Smoothing(problem, state, SQUARINGS)


def random_bins(problem: Problem, seed: int, *, ranks: int, items: int, room: float, hidden: slice = slice(0)) -> Bins:
    """Two bins of some ranks with items in them; about `room` of an item's bytes are left on each rank. Of the
    `hidden` columns something hides more than items load."""
    random = np.random.default_rng(seed)
    columns = len(problem.stage_of_column)
    item_load = random.random((items, ranks, columns)) * 1e-3 / items * random.random((items, 1, 1))
    item_bytes = random.integers(1, 10**9, (items, ranks, 3)).astype(float)
    item_bytes[..., 2] = 0.0
    item_bin = np.sort(random.integers(0, 2, items))
    base = random.random((2, ranks, columns)) * 3e-4
    base[..., hidden] -= 5e-3
    load = base + np.stack([item_load[item_bin == b].sum(axis=0) for b in range(2)])
    free = random.random((2, ranks, 3)) * room * 1e9
    free[..., 2] = 0.0
    return Bins(load, free, item_bin, item_load, item_bytes)


def value(bins: Bins, smoothing: Smoothing, places: np.ndarray) -> float:
    """Powers of the fuller bin's loads with the items at `places`, summed; infinite where a rank is over-full."""
    loads = []
    for b in range(2):
        then, before = places == b, bins.item_bin == b
        loads.append(bins.load[b] + bins.item_load[then].sum(axis=0) - bins.item_load[before].sum(axis=0))
        room = bins.free[b] + bins.item_bytes[before].sum(axis=0) - bins.item_bytes[then].sum(axis=0)
        if (room < -ROUNDING_BYTES).any():
            return np.inf
    return float(smoothing.value_of(smoothing.relative(np.maximum(*loads))))


def divided(bins: Bins, smoothing: Smoothing) -> np.ndarray:
    moved, target = repartitioned(bins, np.array([0]), np.array([1]), smoothing, np.random.default_rng(0))
    places = bins.item_bin.copy()
    places[moved] = target
    assert (places[moved] != bins.item_bin[moved]).all(), "only what changes bins is named"
    return places


@pytest.mark.parametrize("room", [0.0, 0.3, 10.0])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_the_split_is_the_best_of_all(seed: int, ranks: int, room: float) -> None:
    """Against all 2^n, in memory that is full, tight and ample."""
    problem = tiny_instance(3 * seed).problem
    smoothing = smoothing_of(problem)
    bins = random_bins(problem, seed, ranks=ranks, items=2 + seed % 7, room=room)
    places = divided(bins, smoothing)
    ways = itertools.product((0, 1), repeat=len(bins.item_bin))
    best = min(value(bins, smoothing, np.array(way)) for way in ways)
    reached = value(bins, smoothing, places)
    assert np.isfinite(reached)
    assert reached <= best * (1 + CLEARLY)
    assert reached <= value(bins, smoothing, bins.item_bin) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_hidden_divides_nothing(seed: int) -> None:
    """Loads below zero count like nothing, however far below they are: powers of them would count most."""
    problem = tiny_instance(3 * seed).problem
    smoothing = smoothing_of(problem)
    hidden = slice(0, len(problem.stage_of_column), 2)
    bins = random_bins(problem, seed, ranks=2, items=3 + seed, room=10.0, hidden=hidden)
    without = replace(bins, load=bins.load.copy(), item_load=bins.item_load.copy())
    without.load[..., hidden] = without.item_load[..., hidden] = 0.0
    ways = itertools.product((0, 1), repeat=len(bins.item_bin))
    best = min(value(bins, smoothing, np.array(way)) for way in ways)
    assert value(bins, smoothing, divided(bins, smoothing)) <= best * (1 + CLEARLY)
    np.testing.assert_array_equal(divided(bins, smoothing), divided(without, smoothing))


def test_full_bins_divide_some_of_their_blocks() -> None:
    """More than fit one round: never worse than before, never over-full, and at most as many move as are drawn."""
    problem = tiny_instance(0).problem
    smoothing = smoothing_of(problem)
    improved = 0
    for seed in range(30):
        bins = random_bins(problem, seed, ranks=2, items=3 * BLOCKS, room=1.0)
        places = divided(bins, smoothing)
        before, after = value(bins, smoothing, bins.item_bin), value(bins, smoothing, places)
        assert after <= before
        assert (places != bins.item_bin).sum() <= BLOCKS
        improved += after < before
    assert improved >= 10


def test_pairs_are_divided_on_their_own() -> None:
    """Many pairs at once give what each gives alone."""
    problem = tiny_instance(0).problem
    smoothing = smoothing_of(problem)
    alone = [random_bins(problem, seed, ranks=1, items=4 + seed % 3, room=1.0) for seed in range(6)]
    together = Bins(
        np.concatenate([bins.load for bins in alone]),
        np.concatenate([bins.free for bins in alone]),
        np.concatenate([bins.item_bin + 2 * i for i, bins in enumerate(alone)]),
        np.concatenate([bins.item_load for bins in alone]),
        np.concatenate([bins.item_bytes for bins in alone]),
    )
    left = np.arange(0, 12, 2)
    moved, target = repartitioned(together, left, left + 1, smoothing, np.random.default_rng(0))
    places = together.item_bin.copy()
    places[moved] = target
    first = np.cumsum([0, *(len(bins.item_bin) for bins in alone)])
    for i, bins in enumerate(alone):
        own = places[first[i] : first[i + 1]] - 2 * i
        assert value(bins, smoothing, own) == pytest.approx(value(bins, smoothing, divided(bins, smoothing)), rel=1e-5)


def test_nothing_moves_where_there_are_no_pairs() -> None:
    """A single bin has no partner."""
    problem = tiny_instance(0).problem
    bins = random_bins(problem, 0, ranks=1, items=3, room=1.0)
    nobody = np.zeros(0, dtype=np.int64)
    moved, target = repartitioned(bins, nobody, nobody, smoothing_of(problem), np.random.default_rng(0))
    assert len(moved) == len(target) == 0
