"""The best way to put one table into a state: all its options and all places, weighed against a target.

Every tiling of a splittable option's columns over ranks is weighed by dynamic programming (`tiling`), every group of
ranks for a group-wide one, every node with its cheapest ranks for a node-colocated one; a world-wide one has one place.

It is the recreate step of ruin and recreate: best insertion, exact for one table at a time.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.problem.rounding import ROUNDING
from planner.problem.sites import NOWHERE
from planner.solvers.construct.tiling import cheapest_tiling
from planner.solvers.improve.target import Target
from planner.solvers.improve.wide import WideBlocks

RANKS = 16
"""Ranks that parts of a table may go to: the least loaded ones. Of one resource per rank, no others are any better."""

SORTED_RANKS = 256
"""Ranks up to which the least loaded ones are found by sorting all: beyond, by a partition, which takes 20 us."""

PlacedBlocks = list[tuple[int, int]]
"""(block, place) of one table."""


@dataclass(frozen=True)
class Offer:
    """A way to put in a table, and how much the state's cost grows by it."""

    growth: float
    blocks: PlacedBlocks


@dataclass(frozen=True)
class _Candidate:
    """One option of a table; n block types that are worth weighing, K kinds."""

    option: int
    blocks: Ints
    least: float
    """Growth that no place can undercut."""
    everywhere: Floats
    """[n] growth by what every rank pays for a block."""
    load: Floats
    """[K, n, C]"""
    size: Floats
    """[K, n, M]"""
    tiers: list[int]
    """Those of which the blocks take bytes."""
    units: Ints
    """[n] of a splittable option, else 0."""
    counts: list[int]
    """[n] how often the option has each block."""
    fits_anywhere: bool
    """Whether every rank may hold each block."""


@dataclass(frozen=True)
class _OnGroups:
    """The blocks of one table and extent, on groups of ranks, that are worth weighing; n that differ."""

    which: dict[int, int]
    """Which of the n each block is like."""
    columns: Ints
    """[c] that any of them loads."""
    load: Floats
    """[n, c, W] of the instance that each rank uses, were the block on every site."""
    size: Floats
    """[n, M, W]"""
    allowed: Bools
    """[n, W]"""


@dataclass(frozen=True)
class _Growth:
    """What blocks of one table on groups of ranks cost; n that differ, N sites."""

    on_sites: Floats
    """[n, N] growth, infinite where a block may not be."""
    at_least: list[float]
    """[n] of them."""
    which: dict[int, int]
    """Which of the n each block is like."""

    def least(self, candidate: _Candidate) -> float:
        """Return what no sites of an option's blocks undercut, rounded down."""
        blocks = zip(candidate.blocks.tolist(), candidate.counts, candidate.everywhere.tolist(), strict=True)
        total = sum(count * (self.at_least[self.which[block]] + more) for block, count, more in blocks)
        return float(total - ROUNDING * abs(total))


class Insertion:
    """Puts tables into a state and takes them out."""

    def __init__(self, problem: Problem, target: Target, usable: Bools, wide: WideBlocks | None = None) -> None:
        """`usable` [B] says which choices (see `Problem.blocks_of_choice`) are worth weighing; `wide` are the problem's
        wide blocks, where somebody knows them already."""
        self._problem, self._target, self._usable = problem, target, usable
        self._kind = problem.kind_of_rank
        self._wide = WideBlocks(problem) if wide is None else wide
        first = np.searchsorted(self._kind, np.arange(problem.kinds))
        weight, byte = target.weight[:, first].T, target.byte[:, first].T
        self._price: Floats = np.concatenate([weight * (1 - 2 * target.fullness), byte], axis=1)
        """[K, C + M] the least that a second or a byte adds to the cost."""
        counts = problem.ranks_of_kind[:, None]
        self._everywhere: Floats = np.einsum("kbc,kc->b", problem.everywhere, weight * counts)
        self._least_wide: dict[int, float] = {}
        self._candidates: dict[int, list[_Candidate]] = {}
        self._on_groups: dict[tuple[int, int], _OnGroups] = {}
        self._everyone = np.arange(problem.world)
        self._unit: Floats = np.eye(problem.world)
        self._is_everywhere: Bools = np.asarray(problem.everywhere.any(axis=(0, 2)))
        self._has_everywhere = bool(self._is_everywhere.any())

    def least(self, table: int) -> float:
        """Return what the table adds at least."""
        return self._candidates_of_table(table)[0].least

    def excess(self, table: int, blocks: PlacedBlocks) -> float:
        """Return how much more a table's blocks add at least than its cheapest ones; 0 of no blocks."""
        return max(sum(self._least_at(*placed) for placed in blocks) - self.least(table), 0.0) if blocks else 0.0

    def _least_at(self, block: int, place: int) -> float:
        """Return the least that a block adds at its place."""
        problem, everywhere = self._problem, float(self._everywhere[block])
        if not problem.is_on_rank[block]:
            return self._least_when_wide(block) + everywhere
        kind = self._kind[place]
        asked = np.concatenate([problem.whole_load[kind, block], problem.whole_bytes[kind, block]])
        return float(product(asked, self._price[kind])) + everywhere

    def charge(self, state: LoadState, blocks: PlacedBlocks, sign: float) -> None:
        """Put in (1) or take out (-1) a table."""
        problem, is_shared = self._problem, self._wide.any_shared
        block, place = np.array(blocks).T
        on_rank = problem.is_on_rank[block]
        if on_rank.any():
            of, rank = (block, place) if on_rank.all() else (block[on_rank], place[on_rank])
            kind = self._kind[rank]
            load, size = problem.whole_load[kind, of].T * sign, problem.whole_bytes[kind, of].T * sign
            if len(rank) == 1 and is_shared:
                state.add_on_rank(load[:, 0], size[:, 0], int(rank[0]))
            elif is_shared or len(set(rank.tolist())) < len(rank):
                on = self._unit[rank]
                state.add(product(load, on), product(size, on), slice(0, problem.world))
            else:
                state.load[:, rank] += load
                state.free[:, rank] -= size
        for b, site in zip(block[~on_rank].tolist(), place[~on_rank].tolist(), strict=True):
            ranks = problem.sites_of(b).ranks(site)
            load, size = self._wide.spread(b)
            if is_shared or not isinstance(ranks, slice):
                state.add(sign * load[:, ranks], sign * size[:, ranks], ranks)
            else:
                state.load[:, ranks] += sign * load[:, ranks]
                state.free[:, ranks] -= sign * size[:, ranks]
        if self._has_everywhere and self._is_everywhere[block].any():
            state.add_everywhere(sign * problem.everywhere[:, block].sum(axis=1))

    # -- what there is to weigh --------------------------------------------------------------------------------

    def _candidates_of_table(self, table: int) -> list[_Candidate]:
        """Return the options of a table that are worth weighing, the cheapest first; all of them where none is."""
        if table not in self._candidates:
            problem = self._problem
            options = range(int(problem.option_start[table]), int(problem.option_start[table + 1]))
            every = [np.arange(*problem.block_start[option : option + 2]) for option in options]
            some = [self._worthy(blocks) for blocks in every]
            chosen = some if any(len(blocks) for blocks in some) else every
            candidates = [self._candidate(blocks) for blocks in chosen if len(blocks)]
            self._candidates[table] = sorted(candidates, key=lambda candidate: (candidate.least, candidate.option))
        return self._candidates[table]

    def _worthy(self, blocks: Ints) -> Ints:
        """Return the usable blocks of a splittable option; of a fixed one, which is named by its first block, all or
        none."""
        usable = self._usable[blocks]
        if self._problem.block_units[blocks[0]]:
            return blocks[usable]
        return blocks if usable[0] else blocks[:0]

    def _candidate(self, blocks: Ints) -> _Candidate:
        """Return an option of these blocks, with what it costs at least."""
        problem = self._problem
        load = problem.fixed[:, blocks] + problem.by_rows[:, blocks]
        size = problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]
        option = int(problem.block_option[blocks[0]])
        if problem.is_on_rank[blocks[0]]:
            least = np.einsum("knx,kx->kn", np.concatenate([load, size], axis=2), self._price).min(axis=0)
        else:
            least = np.array([self._least_when_wide(block) for block in blocks.tolist()])
        least = least + self._everywhere[blocks]
        units = problem.block_units[blocks]
        whole = problem.option_units[option]
        total = (least / units).min() * whole if whole else product(least, problem.block_count[blocks])
        tiers = np.flatnonzero(size.any(axis=(0, 1))).tolist()
        counts = problem.block_count[blocks].tolist()
        fits_anywhere = bool(problem.allowed[:, blocks].all())
        everywhere = self._everywhere[blocks]
        return _Candidate(option, blocks, float(total), everywhere, load, size, tiers, units, counts, fits_anywhere)

    def _least_when_wide(self, block: int) -> float:
        """Return the least that a group-wide or world-wide block adds."""
        problem, block = self._problem, self._wide.alike(block)
        if block in self._least_wide:
            return self._least_wide[block]
        load, size = self._wide.spread(block)
        cost = (np.concatenate([load, size]) * self._price[self._kind].T).sum(axis=0)
        is_world_wide = problem.is_world_wide[block]
        least = float(cost.sum() if is_world_wide else problem.sites_of(block).sum(cost).min())
        return self._least_wide.setdefault(block, least)

    # -- offers ------------------------------------------------------------------------------------------------

    def best(self, state: LoadState, table: int) -> Offer | None:
        """Return the way that costs least; None where the table has no place."""
        problem = self._problem
        best: Offer | None = None
        on_groups: dict[int, _Growth] = {}
        for candidate in self._candidates_of_table(table):
            if best is not None and candidate.least >= best.growth:
                break
            if problem.option_colocated[candidate.option]:
                offer = self._node_colocated(state, candidate)
            elif problem.option_units[candidate.option]:
                offer = self._tiled(state, candidate)
            elif problem.is_on_rank[candidate.blocks[0]]:
                offer = self._single(state, candidate)
            elif problem.is_world_wide[candidate.blocks[0]]:
                offer = self._world_wide(state, candidate)
            else:
                extent = int(problem.block_extent[candidate.blocks[0]])
                if extent not in on_groups:
                    on_groups[extent] = self._group_growth(state, table, extent)
                if best is not None and on_groups[extent].least(candidate) > best.growth:
                    continue
                offer = self._group_wide(candidate, on_groups[extent])
            if offer is not None and np.isfinite(offer.growth) and (best is None or offer.growth < best.growth):
                best = offer
        return best

    def _growth(self, state: LoadState, candidate: _Candidate, ranks: Ints) -> Floats:
        """Return the growth [R, n] by each block on each of the ranks; infinite where it may not be."""
        kind = self._kind[ranks] if self._problem.kinds > 1 else np.zeros(1, dtype=np.int64)
        growth = self._target.growth(state, candidate.load[kind], ranks) + candidate.everywhere
        for m in candidate.tiers:
            growth += self._target.byte_growth(state, candidate.size[kind, :, m], m, ranks)
        if candidate.fits_anywhere:
            return growth
        return np.where(self._problem.allowed[kind[:, None], candidate.blocks], growth, np.inf)

    def _promising(self, state: LoadState, candidate: _Candidate) -> Ints:
        """Return the least loaded ranks, those first that have memory for the narrowest block."""
        if self._problem.world <= RANKS:
            return self._everyone
        fullness = self._target.fullness_of_ranks(state)
        for m in candidate.tiers:
            narrowest = candidate.size[self._kind, 0, m] if self._problem.kinds > 1 else candidate.size[0, 0, m]
            fullness = fullness + (narrowest > state.free[m])
        if self._problem.world <= SORTED_RANKS:
            return np.sort(np.argsort(fullness, kind="stable")[:RANKS])
        limit = np.partition(fullness, RANKS - 1)[RANKS - 1]
        emptier, equal = np.flatnonzero(fullness < limit), np.flatnonzero(fullness == limit)
        return np.sort(np.concatenate([emptier, equal[: RANKS - len(emptier)]]))

    def _tiled(self, state: LoadState, candidate: _Candidate) -> Offer | None:
        """Return the best tiling of a splittable option."""
        problem = self._problem
        ranks = self._promising(state, candidate)
        growth = self._growth(state, candidate, ranks)
        units, whole = candidate.units, int(problem.option_units[candidate.option])
        if units[0] == whole:
            rank = int(growth[:, 0].argmin())
            return Offer(float(growth[rank, 0]), [(int(candidate.blocks[0]), int(ranks[rank]))])
        cost: Floats = np.full((len(ranks), whole + 1), np.inf)
        cost[:, 0] = 0.0
        cost[:, units] = growth
        tiling = cheapest_tiling(cost)
        if tiling is None:
            return None
        taken = np.flatnonzero(tiling.widths)
        blocks = candidate.blocks[np.searchsorted(units, tiling.widths[taken])]
        return Offer(tiling.cost, list(zip(blocks.tolist(), ranks[taken].tolist(), strict=True)))

    def _single(self, state: LoadState, candidate: _Candidate) -> Offer:
        """Return fixed blocks on single ranks, each where it costs least."""
        rows = np.repeat(np.arange(len(candidate.blocks)), self._problem.block_count[candidate.blocks])
        growth = self._growth(state, candidate, self._everyone)
        ranks = growth.argmin(axis=0)[rows]
        return Offer(
            float(growth[ranks, rows].sum()), list(zip(candidate.blocks[rows].tolist(), ranks.tolist(), strict=True))
        )

    def _node_colocated(self, state: LoadState, candidate: _Candidate) -> Offer | None:
        """Return the blocks of a node-colocated option on those ranks of one node where the first of them costs
        least."""
        problem = self._problem
        growth = self._growth(state, candidate, self._everyone)
        rows = np.repeat(np.arange(len(candidate.blocks)), problem.block_count[candidate.blocks])
        best: Offer | None = None
        for first, stop in itertools.pairwise(problem.node_start.tolist()):
            if stop - first < len(rows):
                continue
            ranks = first + np.argsort(growth[first:stop, 0], kind="stable")[: len(rows)]
            total = float(growth[ranks, rows].sum())
            if best is None or total < best.growth:
                best = Offer(total, list(zip(candidate.blocks[rows].tolist(), ranks.tolist(), strict=True)))
        return best

    def _group_growth(self, state: LoadState, table: int, extent: int) -> "_Growth":
        """Return the growth by each of the table's different blocks of an extent on each of its sites."""
        if (table, extent) not in self._on_groups:
            self._on_groups[table, extent] = self._gathered(table, extent)
        blocks = self._on_groups[table, extent]
        wide = self._target.wide_growth(state, blocks.load, blocks.size, blocks.columns)
        growth = np.where(blocks.allowed, wide, np.inf)
        on_sites = self._problem.sites[extent].sum(growth)
        return _Growth(on_sites, on_sites.min(axis=1).tolist(), blocks.which)

    def _gathered(self, table: int, extent: int) -> _OnGroups:
        """Return the blocks of a table and an extent that differ, with what they bring to every site."""
        candidates = [
            candidate
            for candidate in self._candidates_of_table(table)
            if self._problem.block_extent[candidate.blocks[0]] == extent
        ]
        like = {block: self._wide.alike(block) for candidate in candidates for block in candidate.blocks.tolist()}
        different = sorted({*like.values()})
        load, size = (np.stack(of) for of in zip(*(self._wide.total(block) for block in different), strict=True))
        allowed = self._problem.allowed[self._kind[None], np.array(different)[:, None]]
        columns = np.flatnonzero(load.any(axis=(0, 2)))
        which = {block: different.index(other) for block, other in like.items()}
        return _OnGroups(which, columns, np.ascontiguousarray(load[:, columns]), size, allowed)

    def _group_wide(self, candidate: _Candidate, of_groups: "_Growth") -> Offer | None:
        """Return the blocks of a group-wide option on the sites where they cost least, each on another one."""
        on_sites = of_groups.on_sites
        taken = np.zeros(on_sites.shape[1], dtype=bool)
        blocks: PlacedBlocks = []
        total = 0.0
        for i, block in enumerate(candidate.blocks.tolist()):
            growth, count = on_sites[of_groups.which[block]] + candidate.everywhere[i], candidate.counts[i]
            order = np.argsort(np.where(taken, np.inf, growth), kind="stable")[:count]
            if len(order) < count or taken[order].any():
                return None
            taken[order] = True
            total += float(growth[order].sum())
            blocks += [(block, site) for site in order.tolist()]
        return Offer(total, blocks)

    def _world_wide(self, state: LoadState, candidate: _Candidate) -> Offer:
        """Return the blocks of a world-wide option, which have one place."""
        blocks = np.repeat(candidate.blocks, self._problem.block_count[candidate.blocks]).tolist()
        total = sum(float(self._wide_growth(state, block).sum()) for block in blocks)
        everywhere = float(product(candidate.everywhere, self._problem.block_count[candidate.blocks]))
        return Offer(total + everywhere, [(block, NOWHERE) for block in blocks])

    def _wide_growth(self, state: LoadState, block: int) -> Floats:
        """Return each rank's part of the growth [W] by a wide block; infinite where it may not be."""
        growth = self._target.wide_growth(state, *self._wide.total(block))
        return np.where(self._problem.allowed[self._kind, block], growth, np.inf)
