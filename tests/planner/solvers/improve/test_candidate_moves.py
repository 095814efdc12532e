"""Sets of blocks of each rank, and the best exchange among all of them."""

import itertools

import numpy as np

from planner.solvers.improve.candidate_moves import CandidateMoves, OutgoingMoves, item_sets


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
        offers = OutgoingMoves(taken[:, mine], taken[:, mine], np.zeros(len(mine), dtype=np.float32), stored[:, mine])
        free = np.ones(6, dtype=bool)
        offer, other, gain = candidates.best(fullest, offers, free, random)

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
