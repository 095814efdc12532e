"""Coarser cuts on sites: tables over groups of ranks in fewer and larger blocks, which cost less.

Starts cut tables so that all blocks are small, as small ones pack well; the coarser cut costs less in total. Once the
sites are level, a table gives up some of its sites and has more on the others. Blocks of the others go where there is
room now, one swap after the other, until no site is above the stages' longest and the memory that there is. A cut
with which that is not reached stays as it was.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.sites import Sites
from planner.solvers.improve.site_balancing import Bins, may_swap, swap
from planner.solvers.improve.state import SearchState

SLACK = 1e-3
"""Share of a stage's time by which sites may be above it in the end: swaps of all with all bring that down."""
PAIR_SWAPS = 100
"""Swaps of a site that a table gives up with one that has more of it, at most."""
PARTNERS = 24
"""Other sites that swap with one that is still above its aim."""
MORE_BYTES = 0.01
"""Share by which another cut may take more bytes of a memory: there is seldom room for another memory."""
WORTHWHILE = 1e-3
"""Share of what a table costs that another cut must save."""


@dataclass(frozen=True)
class _Cut:
    """A cut that costs less than the one that a table has."""

    table: int
    blocks: Ints
    """Those of the option, as often as they occur."""
    value_s: float
    saved_s: float


def merge_cuts(state: SearchState, value: Floats) -> bool:
    """Hold tables in options of fewer blocks on sites, those that save most by the `value` [B] of the option that each
    block names before the others; return whether any are. All blocks on groups of ranks have sites of one extent."""
    problem = state.problem
    sites = problem.sites[int(problem.block_extent[state.group_block[0]])]
    cuts = _cuts(state, value)
    if not cuts:
        return False
    merging = _Merging(state, sites, cuts)
    merged = [merging.apply(number) for number in range(len(cuts))]
    if not any(merged):
        return False
    state.group_block, state.group_site = merging.held()
    state.loads = load_state(problem, state.placement())
    state.note()
    return True


def _cuts(state: SearchState, value: Floats) -> list[_Cut]:
    """Return the cuts that cost less than the present ones and have no more blocks, the most saving first."""
    problem, block = state.problem, state.group_block
    own = np.unique(problem.block_option[block[may_swap(problem, block)]])
    extent = int(problem.block_extent[block[0]])
    cuts = []
    for option in own.tolist():
        table, first = int(problem.option_table[option]), int(problem.block_start[option])
        own_types = np.arange(first, problem.block_start[option + 1])
        most = int(problem.block_count[own_types].sum())
        for other in range(problem.option_start[table], problem.option_start[table + 1]):
            types = np.arange(problem.block_start[other], problem.block_start[other + 1])
            saved_s = float(value[first] - value[types[0]])
            if saved_s <= WORTHWHILE * value[first] or not problem.is_on_group[types[0]]:
                continue
            blocks = np.repeat(types, problem.block_count[types])
            is_alike = (problem.block_extent[types] == extent).all() and may_swap(problem, types).all()
            is_alike &= bool((_stored(problem, types) <= _stored(problem, own_types) * (1 + MORE_BYTES)).all())
            if is_alike and len(blocks) <= most and problem.allowed[0, types].all():
                cuts.append(_Cut(table, blocks, float(value[types[0]]), saved_s))
    return sorted(cuts, key=lambda cut: (-cut.saved_s, cut.table))


def _stored(problem: Problem, types: Ints) -> Floats:
    """Return the bytes [M] that all blocks of a fixed option take on groups of ranks together."""
    ranks = problem.row_shares.holders[0, types][:, None]
    each = ranks * problem.bytes_fixed[0, types] + problem.bytes_by_rows[0, types]
    return np.asarray((problem.block_count[types][:, None] * each).sum(axis=0))


class _Merging:
    """What is on the sites, and what may come there. Loads and bytes are shares of their aims."""

    def __init__(self, state: SearchState, sites: Sites, cuts: list[_Cut]) -> None:
        problem, self._state, self._cuts = state.problem, state, cuts
        movable = may_swap(problem, state.group_block)
        self._settled = state.group_block[~movable], state.group_site[~movable]
        block = np.concatenate([state.group_block[movable], *(cut.blocks for cut in cuts)])
        self._block, self._table = block, problem.table_of_block[block]
        self._first = int(movable.sum()) + np.cumsum([0, *(len(cut.blocks) for cut in cuts)])
        """Where the blocks of each cut are."""
        first, loads = sites.first, state.loads
        full = np.maximum.reduceat(loads.load, first, axis=1)
        free = np.minimum.reduceat(loads.free, first, axis=1)
        longest = np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, problem.stage_of_column, full.max(axis=1))
        load = problem.extremes.peak_load(0, block)
        columns = np.flatnonzero(load.any(axis=0))
        aim = (1 + SLACK) * longest[problem.stage_of_column[columns]]
        largest = problem.row_shares.largest[0, block][:, None]
        stored = problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block] * largest
        capacity = np.array([max(float(of_tier.min()), 1.0) for of_tier in problem.pool_capacity])
        self._everywhere: Floats = problem.everywhere[0, block][:, columns] / aim
        place = np.full(len(block), -1)
        place[: self._first[0]] = state.group_site[movable]
        self._bins = Bins(
            np.concatenate([full[columns].T / aim - 1.0, -free.T / capacity], axis=1),
            np.zeros((sites.count, 0)),
            np.concatenate([load[:, columns] / aim, stored / capacity], axis=1),
            np.zeros((len(block), 0)),
            place,
        )
        least = problem.extremes.base_of_instance[0, columns] / aim
        self._room: Floats = np.concatenate([1.0 - least, np.ones(stored.shape[1])])
        """[D + M] what the largest block may take of a site."""
        self._value_s: dict[int, float] = {}

    def held(self) -> tuple[Ints, Ints]:
        """Return the blocks that are there now, and their sites."""
        there = np.flatnonzero(self._bins.place >= 0)
        blocks, places = self._settled
        return np.append(blocks, self._block[there]), np.append(places, self._bins.place[there])

    def apply(self, number: int) -> bool:
        """Hold a table in another cut, if the sites come to be level again; return whether it is."""
        cut, bins = self._cuts[number], self._bins
        if self._value_s.get(cut.table, np.inf) <= cut.value_s:
            return False
        old = np.flatnonzero((self._table == cut.table) & (bins.place >= 0))
        new = np.arange(self._first[number], self._first[number + 1])
        if len(new) > len(old) or (bins.item_load[new] > self._room).any():
            return False
        before = bins.load.copy(), bins.place.copy()
        sites = bins.place[old]
        kept = sites[np.argsort(bins.load[sites].max(axis=1), kind="stable")[: len(new)]]
        self._exchange(old, new, kept)
        if self._level(np.unique(sites)):
            self._value_s[cut.table] = cut.value_s
            return True
        bins.load, bins.place = before
        return False

    def _exchange(self, old: Ints, new: Ints, kept: Ints) -> None:
        """Take the blocks of a table away, and put others on the sites `kept`."""
        bins = self._bins
        np.subtract.at(bins.load, bins.place[old], bins.item_load[old])
        np.add.at(bins.load, kept, bins.item_load[new])
        bins.place[old], bins.place[new] = -1, kept
        more = self._everywhere[new].sum(axis=0) - self._everywhere[old].sum(axis=0)
        bins.load[:, : len(more)] += more

    def _level(self, sites: Ints) -> bool:
        """Let these sites swap with each other, then those above the aim with some others; return whether none is
        above it in the end."""
        bins = self._bins
        for site in sites.tolist():
            for other in sites.tolist():
                swaps = 0
                while other != site and swaps < PAIR_SWAPS and swap(bins, site, other):
                    swaps += 1
        drawn = self._state.random.permutation(len(bins.load))[:PARTNERS]
        for other in drawn.tolist():
            above = np.flatnonzero(bins.penalty(bins.load) > 0)
            if not len(above):
                return True
            for site in above[above != other].tolist():
                swap(bins, site, other)
        return not bool((bins.penalty(bins.load) > 0).any())
