"""Sets of blocks of each rank, and the best exchange among all of them."""

import itertools
import tracemalloc

import numpy as np
import pytest

from planner.solvers.improve.candidate_moves import (
    CandidateMoves,
    ItemSets,
    OutgoingMoves,
    PricedMoves,
    _Cells,
    item_sets,
)


def test_all_sets_of_each_rank_are_listed_once() -> None:
    """The empty one of every rank too, and of a rank with more blocks than are looked at, those of some of them."""
    rank = np.array([2, 0, 0, 2, 0, 2, 2])
    sets = item_sets(rank, 4, 2, 3, np.random.default_rng(0))
    listed = [
        (int(r), tuple(sorted(i for i in items.tolist() if i >= 0)))
        for r, items in zip(sets.rank, sets.items, strict=True)
    ]
    assert len(set(listed)) == len(listed)
    assert sorted(s for r, s in listed if r == 0) == sorted(
        s for size in range(3) for s in itertools.combinations((1, 2, 4), size)
    )
    assert [s for r, s in listed if r in (1, 3)] == [(), ()]
    few = {i for r, s in listed if r == 2 for i in s}
    assert len(few) == 3
    assert few < {0, 3, 5, 6}
    assert len([s for r, s in listed if r == 2]) == 7


def _whole_sets(sets: ItemSets, of: np.ndarray, taken: np.ndarray, stored: np.ndarray) -> OutgoingMoves:
    """Return offers of some sets, which cost nothing beside."""
    free = np.zeros(len(of), dtype=np.float32)
    return OutgoingMoves(sets.rank[of], taken[:, of], taken[:, of], free, stored[:, of])


def _priced(candidates: CandidateMoves, offers: OutgoingMoves) -> PricedMoves:
    """Return the exchanges of ranks that are not too many."""
    moves = candidates.priced(offers, np.random.default_rng(0))
    assert moves is not None
    return moves


def _idle_rank() -> tuple[CandidateMoves, OutgoingMoves]:
    """Many ranks over the aim in all columns, and one far below it in three: it has room for whatever others give."""
    random = np.random.default_rng(0)
    rank = np.sort(random.integers(0, 64, 384))
    item_load = random.random((384, 4)) * 1e-3
    load = np.stack([np.bincount(rank, weights=column, minlength=64) for column in item_load.T]) + 0.01
    load[:3, 0] = 0.0
    load[3, 0] += 0.01
    aim = np.append(load[:3, 1:].min(axis=1) * 0.99, load[3].mean())
    sets = item_sets(rank, 64, 3, 20, random)
    taken, nothing = sets.load(item_load), sets.load(np.zeros((384, 1)))
    candidates = CandidateMoves(
        sets, taken, taken, load, aim, np.ones(4), load.max(axis=1) - aim, nothing, np.ones((1, 64))
    )
    mine = np.flatnonzero(sets.rank == 0)
    offers = OutgoingMoves(
        sets.rank[mine], taken[:, mine], taken[:, mine], np.zeros(len(mine), dtype=np.float32), nothing[:, mine]
    )
    return candidates, offers


def test_wide_limits_list_no_empty_cells() -> None:
    """A rank that has room for everything is offered sets in memory of about their number, not that of all cells."""
    candidates, offers = _idle_rank()
    tracemalloc.start()
    offer, other, gain = candidates.best(0, _priced(candidates, offers), np.ones(64, dtype=bool))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1e8
    assert len(offer) == len(other) == len(gain) > 0
    assert (gain > 0).all()
    assert (candidates.rank[other] != 0).all()


def test_cells_with_sets_hold_what_all_cells_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both lists are short enough, the same sets are found for every offer."""
    random = np.random.default_rng(1)
    for _ in range(20):
        come = random.random((4, 300)).astype(np.float32)
        cells = _Cells(come, np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32))
        low = random.random((4, 15)).astype(np.float32)
        limits = low, low + np.float32(0.5)
        found = []
        for listed in (cells._all_cells, cells._cells_with_sets):
            monkeypatch.setattr(cells, "_all_cells", listed)
            first, count, which = cells.between(*limits)
            found.append(sorted((w, f, c) for w, f, c in zip(which, first, count, strict=True) if c))
        assert found[0] == found[1]
        assert found[0]


def test_the_best_exchange_is_found() -> None:
    """Mostly the best of all pairs of sets for which both ranks have memory left, tried one by one; it gains what is
    said."""
    exact = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        rank = np.sort(random.integers(0, 6, 20))
        item_load = random.random((20, 2))
        load = np.stack([np.bincount(rank, weights=column, minlength=6) for column in item_load.T])
        aim, weight = load.mean(axis=1) * 1.1, np.array([1.0, 2.0])
        reach = load.max(axis=1) - aim
        sets = item_sets(rank, 6, 2, 20, random)
        taken = sets.load(item_load)
        stored, left = sets.load(random.random((20, 1))), random.random((1, 6))
        candidates = CandidateMoves(sets, taken, taken, load, aim, weight, reach, stored, left)
        over = candidates.over
        fullest = int(over.argmax())
        mine = np.flatnonzero(sets.rank == fullest)
        offers = OutgoingMoves(
            sets.rank[mine], taken[:, mine], taken[:, mine], np.zeros(len(mine), dtype=np.float32), stored[:, mine]
        )
        free = np.ones(6, dtype=bool)
        offer, other, gain = candidates.best(fullest, _priced(candidates, offers), free)

        def fine(
            at: np.ndarray, weight: np.ndarray = weight, aim: np.ndarray = aim, reach: np.ndarray = reach
        ) -> float:
            above = np.maximum(at - aim, 0.0)
            return float(weight @ (above * (1 + above / reach)))

        gains = {
            (a, b): over[fullest]
            + over[sets.rank[b]]
            - fine(load[:, fullest] - taken[:, mine[a]] + taken[:, b])
            - fine(load[:, sets.rank[b]] + taken[:, mine[a]] - taken[:, b])
            for a in range(len(mine))
            for b in np.flatnonzero(sets.rank != fullest)
            if -left[0, fullest] <= stored[0, mine[a]] - stored[0, b] <= left[0, sets.rank[b]]
        }
        assert len(gain)
        assert (np.diff(gain) <= 1e-6).all()
        for first, second, claimed in zip(offer, other, gain, strict=True):
            same = (sets.rank == candidates.rank[second]) & (sets.items == candidates.items[second]).all(axis=1)
            assert abs(claimed - gains[first, int(np.flatnonzero(same)[0])]) < 1e-4
        best = max(gains.values())
        exact += gain[0] >= best - 1e-4
    assert exact >= 15


def test_ranks_priced_together_find_what_each_finds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit; where there are too many exchanges, they are priced rank by rank."""
    random = np.random.default_rng(3)
    rank = np.sort(random.integers(0, 12, 40))
    item_load = random.random((40, 3))
    load = np.stack([np.bincount(rank, weights=column, minlength=12) for column in item_load.T])
    sets = item_sets(rank, 12, 2, 20, random)
    taken, stored = sets.load(item_load), sets.load(random.random((40, 1)))
    aim = load.mean(axis=1) * 1.05
    candidates = CandidateMoves(
        sets, taken, taken, load, aim, np.ones(3), load.max(axis=1) - aim, stored, 3 * np.ones((1, 12))
    )
    of = np.concatenate([np.flatnonzero(sets.rank == each) for each in (7, 2, 10)])
    together, found = _priced(candidates, _whole_sets(sets, of, taken, stored)), 0
    free = random.random(12) < 0.8
    for each in (7, 2, 10):
        own = np.flatnonzero(sets.rank[of] == each)
        offer, other, gain = candidates.best(each, together, free)
        alone = candidates.best(each, _priced(candidates, _whole_sets(sets, of[own], taken, stored)), free)
        assert own.tolist()[0] <= offer.min(initial=own[0])
        np.testing.assert_array_equal(offer, own[alone[0]])
        np.testing.assert_array_equal(other, alone[1])
        np.testing.assert_array_equal(gain, alone[2])
        found += len(gain)
    assert found >= 3
    monkeypatch.setattr("planner.solvers.improve.candidate_moves.MOST_PRICED", 10)
    assert candidates.priced(_whole_sets(sets, of, taken, stored), random) is None
    assert candidates.priced(_whole_sets(sets, of[own], taken, stored), random) is not None
