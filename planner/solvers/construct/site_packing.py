"""Few blocks on many sites: each site is one bin, packed longest first, then levelled by the best of all swaps.

Where a site holds four blocks, swaps with a few sites drawn at random find nothing: whether three others of just the
right loads exist shows only when all are looked at. So the fullest site in a K-norm of all stages (Awerbuch et al.,
FOCS 1995) makes the best of all swaps of one or two of its blocks with any other block, or of all moves elsewhere; a
worse one, too, where there is none that gains, and blocks that have moved stay for a while (tabu search: Glover,
Comput. Oper. Res. 13, 1986).
"""

import itertools
from collections.abc import Callable

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product

CONSTRUCTION_SQUARINGS = 4
"""The norm that blocks are first placed by is 2 to this power."""
SQUARINGS = ((5, 0.3), (6, 0.3), (7, 0.4))
"""The norms of the swaps are 2 to these powers, one after the other, each for a share of the moves."""
REWEIGHED = 50
"""Moves after which the norm is linearised anew."""
SETTLED = 12
"""Moves for which a block that has moved stays where it is, at most."""
LEFT_ALONE = 20, 60
"""Moves for which a site that no move helps is left alone, at least and at most."""
WORTH, WORST = 1e-4, 0.1
"""Share of what a site contributes to the norm that a move gains at least, or else the site is left alone; and that a
move may lose where there is no better one."""
WITHOUT_GAIN = 1500
"""Moves without a shorter step after which a norm is given up."""


class SitePacking:
    """Blocks on sites, which move. D columns, I blocks, N sites, S stages, M memories."""

    def __init__(self, stage: Ints, load: Floats, base: Floats, size: Floats, room: Floats) -> None:
        """`stage` [D] of each column, 0 to S - 1, that blocks load by `load` [D, I], and sites by `base` [D, N] before
        any; bytes `size` [M, I] fit into `room` [M, N]."""
        self._stage, self._load, self._base = stage, load, base
        self._size, self._room = size, room
        self.place: Ints = np.zeros(load.shape[1], dtype=np.int64)
        """[I] the site of each block."""

    def loads(self, place: Ints) -> tuple[Floats, Floats]:
        """Return the loads [D, N] of the sites with blocks at these places [I], and the bytes [M, N] that are left."""
        return self._full(self._load, self._base, place), self._full(-self._size, self._room, place)

    def _of_stages(self, full: Floats) -> Floats:
        longest = np.zeros(int(self._stage.max()) + 1)
        np.maximum.at(longest, self._stage, full.max(axis=1))
        return longest

    @staticmethod
    def _full(load: Floats, base: Floats, place: Ints) -> Floats:
        """Return loads [D, N] of the sites."""
        full = base.copy()
        for of_sites, of_blocks in zip(full, load, strict=True):
            np.add.at(of_sites, place, of_blocks)
        return full

    def place_longest_first(self, aim: Floats) -> bool:
        """Put each block, the longest first, on the site with room where the norm grows least, loads being shares of
        the seconds `aim` [S] of their stages; return whether all have found room."""
        aim = aim[self._stage, None]
        load, full, room = self._load / aim, self._base / aim, self._room.copy()
        power = _power(full, CONSTRUCTION_SQUARINGS)
        for block in np.argsort(-(load.max(axis=0) + 0.01 * load.sum(axis=0)), kind="stable").tolist():
            after = _power(full + load[:, block, None], CONSTRUCTION_SQUARINGS)
            grown = (after - power).sum(axis=0)
            grown[(room < self._size[:, block, None]).any(axis=0)] = np.inf
            site = int(grown.argmin())
            if np.isinf(grown[site]):
                return False
            self.place[block] = site
            full[:, site] += load[:, block]
            power[:, site] = after[:, site]
            room[:, site] -= self._size[:, block]
        return True

    def level(self, moves: int, seed: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Make so many moves in all, at one norm after the other, and keep the shortest step that was met; or end where
        it is over."""
        for squarings, share in SQUARINGS:
            swaps = _Swaps(self, squarings, np.random.default_rng(seed))
            swaps.run(int(moves * share), is_over)
            self.place = swaps.best


class _Swaps:
    """Moves at one norm. Loads `x` are shares of the stages' times, as of the last linearisation."""

    def __init__(self, packing: SitePacking, squarings: int, random: np.random.Generator) -> None:
        self._packing, self._squarings, self._random = packing, squarings, random
        self._seconds = packing._full(packing._load, packing._base, packing.place)
        self._room: Floats = packing._full(-packing._size, packing._room, packing.place)
        self._checks_room = bool((self._room.min(axis=1) < 2 * packing._size.max(axis=1, initial=0.0)).any())
        self._place = packing.place.copy()
        self.best: Ints = packing.place.copy()
        self._best_s = self._step_s()
        blocks, sites = len(self._place), packing._base.shape[1]
        self._settled_until, self._alone_until = np.zeros(blocks, dtype=np.int64), np.zeros(sites, dtype=np.int64)
        self._reweigh()

    def _step_s(self) -> float:
        return float(self._packing._of_stages(self._seconds).sum())

    def _reweigh(self) -> None:
        """Linearise the norm around the loads that there are now."""
        stage = self._packing._stage
        longest = self._packing._of_stages(self._seconds)
        longest = np.maximum(longest, 1e-3 * longest.sum())
        self._aim: Floats = longest[stage, None]
        self._x: Floats = self._seconds / self._aim
        self._own: Floats = self._packing._load / self._aim
        self._powers: Floats = _power(self._x, self._squarings)
        total = np.zeros(len(longest))
        np.add.at(total, stage, self._powers.sum(axis=1))
        self._weight: Floats = longest[stage] / np.maximum(total[stage], 1.0)

    def run(self, moves: int, is_over: Callable[[], bool]) -> None:
        """Make so many moves, or fewer where these gain nothing any more."""
        idle = 0
        for now in range(moves):
            if now and now % REWEIGHED == 0:
                if is_over():
                    break
                self._reweigh()
            self._move(now)
            step_s = self._step_s()
            idle = 0 if step_s < self._best_s * (1 - 1e-6) else idle + 1
            if step_s < self._best_s:
                self._best_s, self.best = step_s, self._place.copy()
            if idle >= WITHOUT_GAIN:
                break

    def _move(self, now: int) -> None:
        """Let the site that contributes most make its best move."""
        value = product(self._weight, self._powers)
        site = int(np.where(self._alone_until > now, -1.0, value).argmax())
        own = np.flatnonzero((self._place == site) & (self._settled_until <= now))
        others = np.flatnonzero((self._place != site) & (self._settled_until <= now))
        out: tuple[int, ...] = ()
        change, into, to = np.inf, -1, -1
        for size in (1, 2):
            for some in itertools.combinations(own.tolist(), size):
                found = self._best_of(site, some, others, value)
                if found[0] < change:
                    change, out, into, to = found[0], some, found[1], found[2]
            if change < -WORTH * value[site]:
                break
        if change > -WORTH * value[site]:
            self._alone_until[site] = now + int(self._random.integers(*LEFT_ALONE))
        if change <= WORST * value[site]:
            self._apply(site, list(out), into, to, now)

    def _best_of(self, site: int, out: tuple[int, ...], others: Ints, value: Floats) -> tuple[float, int, int]:
        """Return what the norm changes by if blocks leave a site for the best of all places: that of one of the
        `others` [n], which comes in return, or any; with that block, or -1, and the place."""
        gone = self._own[:, list(out)].sum(axis=1)[:, None]
        at = self._place[others]
        less = gone - self._own[:, others]
        swapped = self._norm(self._x[:, site, None] - less) + self._norm(self._x[:, at] + less) - value[at]
        moved = self._norm(self._x + gone) - value + self._norm(self._x[:, site, None] - gone)
        moved[site] = np.inf
        if self._checks_room:
            size = self._packing._size
            bytes_gone = size[:, list(out)].sum(axis=1)[:, None]
            bytes_less = bytes_gone - size[:, others]
            swapped[_overfills(bytes_less, self._room[:, at]) | _overfills(-bytes_less, self._room[:, [site]])] = np.inf
            moved[_overfills(bytes_gone, self._room)] = np.inf
        to = int(moved.argmin())
        best = float(moved[to]), -1, to
        if len(others):
            which = int(swapped.argmin())
            best = min(best, (float(swapped[which]), int(others[which]), int(at[which])), key=lambda each: each[0])
        return best[0] - float(value[site]), best[1], best[2]

    def _norm(self, x: Floats) -> Floats:
        """Return what sites of loads [D, n] contribute [n]."""
        return np.asarray(product(self._weight, _power(x, self._squarings)))

    def _apply(self, site: int, out: list[int], into: int, to: int, now: int) -> None:
        for blocks, source, target in ((out, site, to), ([into] if into >= 0 else [], to, site)):
            for amounts, of_blocks, sign in (
                (self._seconds, self._packing._load, 1.0),
                (self._x, self._own, 1.0),
                (self._room, self._packing._size, -1.0),
            ):
                total = sign * of_blocks[:, blocks].sum(axis=1)
                amounts[:, source] -= total
                amounts[:, target] += total
            self._place[blocks] = target
            self._settled_until[blocks] = now + 1 + int(self._random.integers(3, SETTLED))
        self._powers[:, [site, to]] = _power(self._x[:, [site, to]], self._squarings)


def _overfills(size: Floats, room: Floats) -> Bools:
    """Return whether bytes [M, n] are more than there is room for in any memory."""
    return np.asarray((size > room).any(axis=0))


def _power(x: Floats, squarings: int) -> Floats:
    x = np.square(np.maximum(x, 0.0))  # below it something hides the load
    for _ in range(squarings - 1):
        np.square(x, out=x)
    return np.asarray(x)


def distinct_columns(stage: Ints, load: Floats, base: Floats) -> Ints:
    """Return the columns [D] of `load` [C, I] and `base` [C, N] that may be the longest of their stage [C] at some
    site: those that blocks load, and no other column of the stage by more."""
    kept: list[int] = []
    columns = np.flatnonzero(load.any(axis=1))
    for column in columns[np.argsort(-load[columns].sum(axis=1), kind="stable")].tolist():
        rivals = [each for each in kept if stage[each] == stage[column]]
        if not any((load[each] >= load[column]).all() and (base[each] >= base[column]).all() for each in rivals):
            kept.append(column)
    return np.array(sorted(kept), dtype=np.int64)
