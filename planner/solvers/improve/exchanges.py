"""Exchanges of one round of load balancing: what ranks over an aim give and take, what is legal, and what it does.

A rank gives whole blocks or a part of one and takes whole blocks of another rank; or one of its tables is spread over
the world, in another option.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.solvers.improve.candidate_moves import (
    FILL,
    CandidateMoves,
    ItemSets,
    OutgoingMoves,
    PricedMoves,
    item_sets,
)
from planner.solvers.improve.exchange_index import ExchangeIndex
from planner.solvers.improve.items import Items

SETS = 150_000
"""Sets of blocks that are listed at most: of up to MOST_OF_SET blocks each, where that is not too many."""
MOST_OF_SET = 4
WIDE = 10
"""Blocks of a rank of which they are."""
GOOD = 0.5
"""Share of what a rank is above the aim by: no table is spread where an exchange gains as much."""
PRICED_TOGETHER = 128
"""Sets of about so many ranks' blocks are looked at together: where ranks hold few, calls cost more than numbers."""


@dataclass(frozen=True)
class Aim:
    """Loads that no rank is to be above after a round. D columns, of which each stands for those that are like it."""

    columns: Ints
    """[D]"""
    weight: Floats
    """[D] columns that are like it, and itself."""
    load: Floats
    """[D] seconds."""
    reach: Floats
    """[D] seconds from there to the stage's longest."""
    gain_s: float
    """Seconds by which the step is shorter once all ranks are below."""
    least: Floats
    """[S] seconds below which no stage is to come."""


@dataclass(frozen=True)
class _Offers:
    """What some ranks of one kind may give to ranks of another: whole blocks, then parts of blocks."""

    sets: Ints
    """[n] which set of blocks each of the first offers is."""
    item: Ints
    """[m] of which block each of the others is a part."""
    units: Ints
    """[m] how wide the part is."""
    moves: OutgoingMoves
    """[n + m]"""


@dataclass(frozen=True)
class _Priced:
    """The exchanges of some ranks."""

    ranks: frozenset[int]
    offers: _Offers
    moves: PricedMoves


class ExchangeRound:
    """One round of load balancing: every rank takes part in one exchange at most."""

    def __init__(
        self,
        index: ExchangeIndex,
        items: Items,
        state: LoadState,
        spare: Floats,
        aim: Aim,
        worth: float,
        effort: float,
        random: np.random.Generator,
    ) -> None:
        """`spare` [M, 1] bytes of each pool are for tables that are spread over the world; `worth`: seconds above the
        aim that a second is worth by which all ranks grow; `effort`: so many times more sets than usual are listed."""
        self._spare = spare
        self._index, self._items, self._aim, self._worth, self._random = index, items, aim, worth, random
        problem = self._problem = index.problem
        self._load_now = state.load
        self.free: Bools = problem.reach.copy()
        self.rank, self.units = items.rank.copy(), items.units.copy()
        self.parts: list[tuple[int, int, int]] = []
        """Family, units and rank of blocks that were cut off."""
        self.converted: list[int] = []
        self.settled: list[int] = []
        self._room = state.free.copy()
        self._mean: Floats = state.load[:, problem.reach].mean(axis=1)
        self._peak: Floats = state.load.max(axis=1)
        self._slack = self._slack_of_columns()
        self._by_rank = np.argsort(items.rank, kind="stable")
        self._first = np.searchsorted(items.rank[self._by_rank], np.arange(problem.world + 1))
        families = items.family[self._by_rank].tolist()
        self._families = [set(families[a:b]) for a, b in itertools.pairwise(self._first.tolist())]
        count = np.diff(self._first)
        most = 1
        while most < MOST_OF_SET and _sets(np.minimum(count, WIDE), most + 1) <= SETS * effort:
            most += 1
        self._sets = item_sets(items.rank, problem.world, most, WIDE, random)
        block = index.block_of[items.family, items.units]
        self._size = index.size[:, block]
        self._load = [self._sets.load(amounts[block][:, aim.columns]) for amounts in index.load]
        self._stored = [self._sets.load(size) for size in self._size]
        self._start = np.searchsorted(self._sets.rank, np.arange(problem.world + 1))
        self._candidates_of: dict[tuple[int, int, bool], CandidateMoves] = {}
        self._priced: dict[tuple[int, int, bool], _Priced] = {}
        self._at_once = max(PRICED_TOGETHER * problem.world // len(self._sets.rank), 1)
        room = ((aim.load[:, None] - state.load[aim.columns]) / aim.load[:, None]).min(axis=0)
        self._roomy: Ints = np.argsort(-room, kind="stable")[: int((1 - FILL) * problem.world)]
        self._roomy = self._roomy[room[self._roomy] > 0]

    def _slack_of_columns(self) -> Floats:
        """Return the seconds [D] that each column's mean may rise by until its stage is longer, were all loads even."""
        stage, level = self._problem.stage_of_column, self._aim.least.copy()
        np.maximum.at(level, stage, self._mean)
        return np.asarray((level[stage] - self._mean)[self._aim.columns])

    def items(self) -> Items:
        """Return what the exchanges make of the items."""
        kept = np.ones(len(self.rank), dtype=bool)
        kept[self.converted] = False
        parts = np.array(self.parts, dtype=np.int64).reshape(-1, 3).T
        old = (self._items.family[kept], self.units[kept], self.rank[kept])
        return Items(*(np.concatenate(columns) for columns in zip(old, parts, strict=True)))

    @property
    def is_changed(self) -> bool:
        """Whether any exchange was made."""
        return bool(self.converted or self.parts or (self.rank != self._items.rank).any())

    def _candidates(self, kind: int, other_kind: int, *, roomy: bool = False) -> CandidateMoves:
        """Return the sets of ranks of another kind for those of one kind, of all or of the few that have most room."""
        if (kind, other_kind, roomy) not in self._candidates_of:
            of_kind = self._problem.kind_of_rank[self._sets.rank] == other_kind
            here = np.flatnonzero(of_kind & np.isin(self._sets.rank, self._roomy) if roomy else of_kind)
            sets = ItemSets(self._sets.rank[here], self._sets.items[here])
            gone, come = self._load[other_kind][:, here], self._load[kind][:, here]
            load = self._load_now[self._aim.columns]
            only = self._roomy if roomy else None
            aim, size, free = self._aim, self._stored[kind][:, here], within_spare(self._room, self._spare)
            self._candidates_of[kind, other_kind, roomy] = CandidateMoves(
                sets, gone, come, load, aim.load, aim.weight, aim.reach, size, free, only
            )
        return self._candidates_of[kind, other_kind, roomy]

    def improve(self, rank: int, worth_s: float, next_ranks: Sequence[int] = ()) -> float:
        """Make the best exchange of a rank, or spread a table of its over the world; return the seconds above the aim
        that it gains. Exchanges of the ranks that are looked at next may be priced at the same time."""
        kind = int(self._problem.kind_of_rank[rank])
        best: tuple[float, int, Ints, Ints, int, int] | None = None
        for roomy, other_kind in itertools.product((False, True), range(self._problem.kinds)):
            if roomy and best is not None and best[0] >= GOOD * self._candidates(kind, kind).over[rank]:
                break
            if roomy and not (self._problem.kind_of_rank[self._roomy] == other_kind).any():
                continue
            candidates = self._candidates(kind, other_kind, roomy=roomy)
            priced = self._priced_moves(rank, next_ranks, other_kind, roomy=roomy)
            offers = priced.offers
            for offer, taken, gain in zip(*candidates.best(rank, priced.moves, self.free), strict=True):
                if gain <= (worth_s if best is None else best[0]):
                    break
                part = offer - len(offers.sets)
                if part < 0:
                    given, item, units = self._sets.items[offers.sets[offer]], -1, 0
                else:
                    given, item, units = np.zeros(0, dtype=np.int64), int(offers.item[part]), int(offers.units[part])
                partner, asked = int(candidates.rank[taken]), candidates.items[taken]
                given, asked = given[given >= 0], asked[asked >= 0]
                if self._is_legal(rank, partner, given, asked, item, units):
                    best = (float(gain), partner, given, asked, item, units)
                    break
        if best is not None and best[0] >= GOOD * self._candidates(kind, kind).over[rank]:
            return self._make(rank, best)
        converted = self._conversion(rank, kind, worth_s if best is None else best[0])
        if converted is not None:
            gain_s, item, option, size, growth = converted
            self._mean += growth
            self.converted.append(item)
            blocks = np.flatnonzero(self._problem.block_option == option)
            self.settled += np.repeat(blocks, self._problem.block_count[blocks]).tolist()
            self._room -= size[:, None]
            self.free[rank] = False
            return gain_s
        return 0.0 if best is None else self._make(rank, best)

    def _priced_moves(self, rank: int, next_ranks: Sequence[int], other_kind: int, *, roomy: bool) -> _Priced:
        """Return the exchanges of a rank with ranks of another kind, priced along with those of ranks that come next
        unless they were priced before."""
        kind_of_rank = self._problem.kind_of_rank
        key = (int(kind_of_rank[rank]), other_kind, roomy)
        known = self._priced.get(key)
        if known is not None and rank in known.ranks:
            return known
        candidates = self._candidates(*key[:2], roomy=roomy)
        alike = (other for other in next_ranks if self.free[other] and kind_of_rank[other] == key[0])
        ranks = [rank, *itertools.islice(alike, self._at_once - 1)]
        while True:
            offers = self._offers(ranks, *key[:2])
            moves = candidates.priced(offers.moves, self._random)
            if moves is not None:
                self._priced[key] = _Priced(frozenset(ranks), offers, moves)
                return self._priced[key]
            ranks = ranks[: len(ranks) // 2]

    def _offers(self, ranks: Sequence[int], kind: int, other_kind: int) -> _Offers:
        """Return what ranks of a kind may give."""
        index, items, columns = self._index, self._items, self._aim.columns
        sets = np.concatenate([np.arange(self._start[rank], self._start[rank + 1]) for rank in ranks])
        gone, come = self._load[kind][:, sets], self._load[other_kind][:, sets]
        mine = np.concatenate([self._by_rank[self._first[rank] : self._first[rank + 1]] for rank in ranks])
        cuts = np.maximum(items.units[mine] - 1, 0)
        item = np.repeat(mine, cuts)
        units = np.arange(1, len(item) + 1) - np.repeat(cuts.cumsum() - cuts, cuts)
        family, rest = items.family[item], items.units[item] - units
        part, left = index.block_of[family, units], index.block_of[family, rest]
        ok = (part >= 0) & (left >= 0) & index.allowed[other_kind, part] & index.allowed[kind, left]
        item, units, part, left, family = item[ok], units[ok], part[ok], left[ok], family[ok]
        whole = index.block_of[family, items.units[item]]
        off = (index.load[kind, whole] - index.load[kind, left])[:, columns].T
        on = index.load[other_kind, part][:, columns].T
        extra = (index.load[kind, part] + index.load[kind, left] - index.load[kind, whole])[:, columns]
        more = np.maximum(extra / self._problem.world - self._slack, 0.0)
        cost = self._worth * product(more, self._aim.weight)
        stored = self._stored[other_kind][:, sets], index.size[other_kind, part].T.astype(np.float32)
        moves = OutgoingMoves(
            np.concatenate([self._sets.rank[sets], items.rank[item]]),
            np.concatenate([gone, off.astype(np.float32)], axis=1),
            np.concatenate([come, on.astype(np.float32)], axis=1),
            np.concatenate([np.zeros(len(sets)), cost]).astype(np.float32),
            np.concatenate(stored, axis=1),
        )
        return _Offers(sets, item, units, moves)

    def _is_legal(self, rank: int, partner: int, given: Ints, asked: Ints, item: int, units: int) -> bool:
        """Return whether both sides have room and may hold what they get, and no two parts of a table meet."""
        index, items, problem = self._index, self._items, self._problem
        handed = np.append(given, item) if item >= 0 else given
        for moved, place in ((asked, rank), (handed, partner)):
            if not self._families[place].isdisjoint(items.family[moved].tolist()):
                return False
            kind = problem.kind_of_rank[place]
            wide = np.where(moved == item, units, items.units[moved])
            if not index.allowed[kind, index.block_of[items.family[moved], wide]].all():
                return False
            of_table = index.table_of_family[items.family[moved]]
            if problem.is_confined and not problem.is_within(of_table, np.full(len(moved), place)).all():
                return False
        more, less = self._bytes(rank, partner, given, asked, item, units)
        if not (more.any() or less.any()):
            return True
        room = within_spare(self._room[:, [rank, partner]], self._spare)
        return bool((room >= np.stack([more, less], axis=1)).all())

    def _bytes(self, rank: int, partner: int, given: Ints, asked: Ints, item: int, units: int) -> tuple[Floats, Floats]:
        """Return the bytes [M] that the rank takes more, and those that its partner takes more."""
        own_kind, partner_kind = (int(self._problem.kind_of_rank[place]) for place in (rank, partner))
        more = self._size[own_kind][asked].sum(axis=0) - self._size[own_kind][given].sum(axis=0)
        less = self._size[partner_kind][given].sum(axis=0) - self._size[partner_kind][asked].sum(axis=0)
        if item >= 0:
            index, family, whole = self._index, self._items.family[item], self._items.units[item]
            left, part = index.block_of[family, whole - units], index.block_of[family, units]
            more = more + index.size[own_kind, left] - self._size[own_kind][item]
            less = less + index.size[partner_kind, part]
        return more, less

    def _make(self, rank: int, exchange: tuple[float, int, Ints, Ints, int, int]) -> float:
        gain_s, partner, given, asked, item, units = exchange
        more, less = self._bytes(rank, partner, given, asked, item, units)
        for place, size in ((rank, more), (partner, less)):
            for m, pool in enumerate(self._problem.pool_of_rank):
                if size[m]:
                    self._room[m, pool == pool[place]] -= size[m]
        self.rank[given], self.rank[asked] = partner, rank
        if item >= 0:
            self.units[item] -= units
            self.parts.append((int(self._items.family[item]), units, partner))
        self.free[[rank, partner]] = False
        return gain_s

    def _conversion(self, rank: int, kind: int, least_s: float) -> tuple[float, int, int, Floats, Floats] | None:
        """Return the best table of the rank to spread over the world, if it gains more than that: the gain, its item,
        the option, the bytes of every rank, and the seconds [C] of the mean rank."""
        index, items, problem, aim = self._index, self._items, self._problem, self._aim
        options, load, size = index.world_options
        mine = self._by_rank[self._first[rank] : self._first[rank + 1]]
        mine = mine[items.units[mine] == index.whole[items.family[mine]]]
        if not len(mine) or not len(options):
            return None
        table = problem.option_table[options]
        first = np.searchsorted(table, index.table_of_family[items.family[mine]])
        last = np.searchsorted(table, index.table_of_family[items.family[mine]], side="right")
        item = np.repeat(mine, last - first)
        if not len(item):
            return None
        option = np.concatenate([np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
        block = index.block_of[items.family[item], items.units[item]]
        off = index.load[kind, block]
        mean_growth = index.spread_growth(np.full(len(block), kind), block, option)
        level, growth = self._mean.copy(), mean_growth.copy()
        is_done = aim.least[problem.stage_of_column] > 0
        level[is_done], growth[:, is_done] = self._peak[is_done], load[option][:, is_done]
        cost = index.growth_of_step(growth, level, aim.least)
        excess = self._load_now[aim.columns, rank] - aim.load
        after = product(np.maximum(excess - off[:, aim.columns] + load[option][:, aim.columns], 0.0), aim.weight)
        gain = product(np.maximum(excess, 0.0), aim.weight) - after - self._worth * cost
        taken = size[option] * index.sharing
        gain[(taken > self._room.min(axis=1)).any(axis=1)] = -np.inf
        best = int(gain.argmax())
        if gain[best] <= least_s:
            return None
        return float(gain[best]), int(item[best]), int(options[option[best]]), taken[best], mean_growth[best]


def within_spare(free: Floats, spare: Floats) -> Floats:
    """Return the bytes [M, n] that blocks may still take of pools that keep `spare` [M, 1]; over-full ones stay so."""
    return np.asarray(np.maximum(free - spare, np.minimum(free, 0.0)))


def _sets(count: Ints, most: int) -> int:
    """Return how many sets of up to `most` blocks there are, of `count` blocks on each rank."""
    return int(sum(comb(n, size) * ranks for n, ranks in enumerate(np.bincount(count)) for size in range(most + 1)))
