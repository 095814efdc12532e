"""Candidate moves of load balancing: what a rank over its aim may exchange with whichever other rank suits best.

All sets of few blocks are listed for every rank, in cells by what they ask of two columns, and sorted by a third column
in each cell. What a rank may take for a set that it gives away is then in a short range of few cells, so that all
other ranks are looked at for each rank at once.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product

Singles = NDArray[np.float32]

FILL = 0.95
"""Share of the ranks whose room is looked at: few have more, and to look for them costs more than it gains."""
SORTED = 3
"""Columns by which sets are found."""
MOST_STRIPS = 300
"""Strips into which the sets are sorted by a column, for each standard deviation of it."""
MOST_RANGES = 4_000_000
"""Ranges of sets up to which all cells between the limits are listed, empty ones too; where there are more, only cells
with sets, and no more than this."""
MOST_PRICED = 30_000
"""Exchanges that are priced at once, and for one rank at most."""
PRICED_TWICE = 8
"""The best of these that are offered: the first that is legal is taken."""


@dataclass(frozen=True)
class ItemSets:
    """Sets of few blocks that stand on one rank each; n sets of at most m blocks, D columns."""

    rank: Ints
    """[n]"""
    items: Ints
    """[n, m] -1 where there are fewer."""

    def load(self, item_load: Floats) -> Singles:
        """Return what the sets take [D, n], of what each item takes [I, D]."""
        padded = np.concatenate([item_load, np.zeros_like(item_load[:1])]).astype(np.float32)
        return np.ascontiguousarray(sum(padded[column].T for column in self.items.T))


@dataclass(frozen=True)
class OutgoingMoves:
    """What some ranks may give to others; n offers. For each they take a set of the other's, which may be empty."""

    rank: Ints
    """[n] whose offer it is."""
    gone: Singles
    """[D, n] seconds by which the rank's loads fall."""
    come: Singles
    """[D, n] by which the other's rise."""
    cost: Singles
    """[n] seconds of violation that the offer costs beside."""
    size: Singles
    """[M, n] bytes that the other gets."""


@dataclass(frozen=True)
class PricedMoves:
    """Exchanges of some ranks that gain; n of them, by rank."""

    rank: Ints
    """[n] ascending."""
    offer: Ints
    """[n]"""
    taken: Ints
    """[n] the set that is taken for the offer."""
    value: Singles
    """[n] seconds of violation that both ranks together have then, less what the other has now."""


def item_sets(rank_of_item: Ints, world: int, most: int, wide: int, random: np.random.Generator) -> ItemSets:
    """Return all sets of up to `most` items of one rank, of at most `wide` random items of each; the empty ones too."""
    lottery = np.lexsort((random.random(len(rank_of_item)), rank_of_item))
    start = np.searchsorted(rank_of_item[lottery], np.arange(world + 1))
    width = int(min(np.diff(start).max(initial=0), wide))
    position = np.arange(width)
    there = position < np.diff(start)[:, None]
    drawn = np.full((world, width + 1), -1)
    drawn[:, :width][there] = lottery[(start[:-1, None] + position)[there]]
    chosen = [
        (*members, *[width] * (most - size))
        for size in range(most + 1)
        for members in itertools.combinations(range(width), size)
    ]
    columns = np.array(chosen, dtype=np.int64).reshape(-1, most)
    drawn_sets = drawn[:, columns]
    full = (drawn_sets >= 0).sum(axis=2) == (columns < width).sum(axis=1)
    return ItemSets(np.repeat(np.arange(world), full.sum(axis=1)), drawn_sets[full])


class _Cells:
    """Sets in cells by some columns, sorted by one more in each: those between limits on all are few ranges."""

    def __init__(self, come: Singles, room: Singles) -> None:
        """`come` [D, n] seconds of the sets, of which a rank has `room` [D] at most."""
        columns, spread = _most_telling(come, room)
        *self._columns, self._sorted = columns
        self.filters = [d for d in range(len(come)) if d not in columns] + columns[:-1]
        """Columns in which not all sets of a range are between the limits."""
        self._width = np.maximum(room[self._columns], spread[:-1] / MOST_STRIPS).astype(float)[:, None]
        self._low = come[self._columns].min(axis=1, initial=0.0).astype(float)[:, None]
        high = come[self._columns].max(axis=1, initial=0.0).astype(float)[:, None]
        self._count: Ints = (np.floor((high - self._low) / self._width) + 1).astype(np.int64)[:, 0]
        low, high = float(come[self._sorted].min(initial=0.0)), float(come[self._sorted].max(initial=0.0))
        self._least, self._scale = low, 0.5 / max(high - low, 1e-30)
        cell = self._cell_of(self._numbers(come))
        key = cell + self._within(come[self._sorted])
        self.order: Ints = np.argsort(key, kind="stable")
        self._key: Floats = key[self.order]
        self._occupied: Floats = np.unique(cell)
        """[C] cells that hold sets."""

    def _numbers(self, seconds: Singles) -> Floats:
        """Return the number of the strip of each column [D - 1, n]."""
        return np.asarray(np.floor((seconds[self._columns] - self._low) / self._width))

    def _cell_of(self, strips: Floats) -> Floats:
        """Return the cells [n] of strips [D - 1, n]."""
        cell = np.zeros(strips.shape[1])
        for strip, count in zip(strips, self._count.tolist(), strict=True):
            cell = cell * count + strip
        return cell

    def _within(self, seconds: Singles) -> Floats:
        return np.asarray(np.clip((seconds.astype(float) - self._least) * self._scale, 0.0, 0.5))

    def between(self, least: Singles, most: Singles) -> tuple[Ints, Ints, Ints]:
        """Return ranges of the sets that take from `least` to `most` [D, n]: first and count of each, and which of the
        n."""
        listed = self._all_cells if self.are_few(least, most) else self._cells_with_sets
        cell, which = listed(*self._strips(least, most))
        first = np.searchsorted(self._key, cell + self._within(least[self._sorted])[which])
        last = np.searchsorted(self._key, cell + self._within(most[self._sorted])[which], side="right")
        return first, np.maximum(last - first, 0), which

    def are_few(self, least: Singles, most: Singles) -> bool:
        """Return whether there are few cells between such limits, empty ones too."""
        begin, end = self._strips(least, most)
        return bool(np.maximum(end - begin + 1, 0).astype(float).prod(axis=0).sum() <= MOST_RANGES)

    def _strips(self, least: Singles, most: Singles) -> tuple[Ints, Ints]:
        """Return the first and the last strip [D - 1, n] between limits [D, n]."""
        begin = np.clip(self._numbers(least), 0.0, self._count[:, None]).astype(np.int64)
        end = np.clip(self._numbers(most), -1.0, self._count[:, None] - 1).astype(np.int64)
        return begin, end

    def _all_cells(self, begin: Ints, end: Ints) -> tuple[Floats, Ints]:
        """Return every cell from strip `begin` to strip `end` [D - 1, n], and which of the n it is for."""
        which = np.arange(begin.shape[1])
        cell = np.zeros(len(which), dtype=np.int64)
        for d, count in enumerate(self._count.tolist()):
            strips = np.maximum(end[d] - begin[d] + 1, 0)[which]
            before = np.repeat(cell, strips)
            which = np.repeat(which, strips)
            strip = begin[d][which] + np.arange(len(which)) - np.repeat(strips.cumsum() - strips, strips)
            cell = before * count + strip
        return cell.astype(float), which

    def _cells_with_sets(self, begin: Ints, end: Ints) -> tuple[Floats, Ints]:
        """Return the same without empty cells, of which there may be many times as many as sets; for one of the n at
        most its part of MOST_RANGES, evenly spaced."""
        strips = np.stack(np.unravel_index(self._occupied.astype(np.int64), self._count))
        part = max(MOST_RANGES // begin.shape[1], 1)
        chosen = []
        for low, high in zip(begin.T, end.T, strict=True):
            cells = self._occupied[((strips >= low[:, None]) & (strips <= high[:, None])).all(axis=0)]
            chosen.append(cells[:: -(-len(cells) // part) or 1])
        return np.concatenate(chosen), np.repeat(np.arange(len(chosen)), [len(cells) for cells in chosen])


def _most_telling(come: Singles, room: Singles) -> tuple[list[int], Floats]:
    """Return the columns in which what fits a rank's `room` [D] is rarest among the sets, each given those before, and
    how far the sets spread there."""
    own = come - come.mean(axis=1, keepdims=True, dtype=np.float64)
    total = np.maximum(np.sqrt((own * own).mean(axis=1)), 1e-30)
    telling: list[int] = []
    spread: list[float] = []
    for _ in range(min(SORTED, len(come))):
        left = np.maximum(np.sqrt((own * own).mean(axis=1)), 1e-3 * total)
        share = room / left
        share[telling] = np.inf
        column = int(share.argmin())
        telling.append(column)
        spread.append(float(left[column]))
        along = product(own, own[column])
        own -= np.outer(along / max(float(along[column]), 1e-30), own[column])
    return telling, np.array(spread)


class CandidateMoves:
    """The sets that ranks may give, and what they have room for; for ranks of one kind that look for an exchange."""

    def __init__(
        self,
        sets: ItemSets,
        gone: Singles,
        come: Singles,
        load: Floats,
        aim: Floats,
        weight: Floats,
        reach: Floats,
        size: Singles,
        free: Floats,
        roomy: Ints | None = None,
    ) -> None:
        """`gone` [D, n] where the sets stand, `come` [D, n] on the kind that looks; `load` [D, W] and `aim` [D] in
        seconds; `weight` [D] of a second above the aim; `size` [M, n] of the sets and `free` [M, W] in bytes. The sets
        may stand on few `roomy` ranks alone."""
        self._load, self._aim, self._weight = (array.astype(np.float32) for array in (load, aim, weight))
        looked_at = self._aim[:, None] - (self._load if roomy is None else self._load[:, roomy])
        self._room = np.maximum(np.quantile(looked_at, FILL if roomy is None else 1.0, axis=1), 0.0).astype(np.float32)
        self._cells = _Cells(come, self._room)
        order = self._cells.order
        self.rank, self.items = sets.rank[order], sets.items[order]
        self._come = np.ascontiguousarray(come[:, order])
        self._size, self._free = np.ascontiguousarray(size[:, order]), free.astype(np.float32)
        self._rest = self._load[:, self.rank] - gone[:, order]
        self._steep = (1.0 / np.maximum(reach, 1e-30)).astype(np.float32)
        excess = self._load - self._aim[:, None]
        self.over = product(self._weight, np.stack([self._violation(excess[d].copy(), d) for d in range(len(excess))]))
        """[W] weighted seconds by which each rank is over the aim."""
        self._was_over = self.over[self.rank]

    def _violation(self, excess: Singles, column: int) -> Singles:
        """Return what seconds above the aim count [n]; those at the stage's longest count twice."""
        np.maximum(excess, 0.0, out=excess)
        return np.asarray(excess * (1.0 + excess * self._steep[column]))

    def priced(self, offers: OutgoingMoves, random: np.random.Generator) -> PricedMoves | None:
        """Return the exchanges that gain; None where there are too many to look at for several ranks together. Of
        those of a single one, random ones are looked at then."""
        excess = self._load[:, offers.rank] - self._aim[:, None]
        least, most = offers.come - self._room[:, None], offers.gone - np.minimum(excess, 0.0)
        several = bool((offers.rank != offers.rank[0]).any())
        if several and not self._cells.are_few(least, most):
            return None
        first, count, which = self._cells.between(least, most)
        if count.sum() > MOST_PRICED:
            if several:
                return None
            lottery = random.permutation(len(count))
            count[lottery[count[lottery].cumsum() > MOST_PRICED]] = 0
        offer = np.repeat(which, count)
        taken = np.arange(len(offer)) + np.repeat(first - (count.cumsum() - count), count)
        for d in self._cells.filters:
            come = self._come[d][taken]
            fits = np.flatnonzero((come >= least[d][offer]) & (come <= most[d][offer]))
            offer, taken = offer[fits], taken[fits]
        rank = offers.rank[offer]
        for size, given, left in zip(self._size, offers.size, self._free, strict=True):
            more = size[taken] - given[offer]
            fits = np.flatnonzero((more <= left[rank]) & (-more <= left[self.rank[taken]]))
            offer, taken, rank = offer[fits], taken[fits], rank[fits]
        value = offers.cost[offer] - self._was_over[taken]
        for d, weight in enumerate(self._weight):
            here = (excess[d] - offers.gone[d])[offer] + self._come[d][taken]
            there = self._rest[d][taken] + (offers.come[d] - self._aim[d])[offer]
            value += weight * (self._violation(here, d) + self._violation(there, d))
        better = np.flatnonzero((value < self.over[rank]) & (self.rank[taken] != rank))
        better = better[np.argsort(rank[better], kind="stable")]
        return PricedMoves(rank[better], offer[better], taken[better], value[better])

    def best(self, rank: int, moves: PricedMoves, free: Bools) -> tuple[Ints, Ints, Singles]:
        """Return the best exchanges of a rank with one of those that are `free` [W]: offer, set, and what it gains."""
        own = np.arange(*np.searchsorted(moves.rank, (rank, rank + 1)))
        own = own[free[self.rank[moves.taken[own]]]]
        value = moves.value[own]
        if len(own) > PRICED_TWICE:
            best = np.flatnonzero(value <= np.partition(value, PRICED_TWICE)[PRICED_TWICE])
            own, value = own[best], value[best]
        order = np.argsort(value, kind="stable")[:PRICED_TWICE]
        own = own[order]
        return moves.offer[own], moves.taken[own], np.asarray(self.over[rank] - value[order])
