"""Blocks put one after the other, or several at once, where the potential grows least among the places with room."""

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.site_bins import site_bins
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential
from planner.solvers.construct.site_placer import SitePlacer

_ONE_OF, _WORTHWHILE = 32, 8
"""Blocks are placed together, each on another rank, at most one for so many ranks; one by one where these would be
fewer than the second number."""


class BlockPlacer:
    """Puts blocks into a partial placement; every method tells whether there was room for all of them."""

    def __init__(self, partial: PartialPlacement, potential: Potential, *, one_by_one: bool) -> None:
        """With `one_by_one`, no blocks are placed at once, however many ranks there are."""
        self._partial, self._potential, self._problem = partial, potential, partial.problem
        self._at_once = 1 if one_by_one else partial.problem.world // _ONE_OF

    def put_on_rank(self, block: int) -> bool:
        """Put a block on the single rank where the potential grows least."""
        growth = self._potential.by_block_on_rank(block)
        rank = int(growth.argmin())
        if growth[rank] == np.inf:
            return False
        self._partial.put(block, rank, np.array([rank]))
        return True

    def put_on_ranks(self, blocks: list[int]) -> bool:
        """Put blocks that may be anywhere on single ranks, in this order; some at once where they share nothing."""
        at_once = self._at_once
        if at_once < _WORTHWHILE or not blocks:
            return all(self.put_on_rank(block) for block in blocks)
        alone = self._load_no_others(np.array(blocks))
        at = 0
        while at < len(blocks):
            some = int(np.argmin(np.append(alone[at : at + at_once], False)))
            if some < 2:
                if not self.put_on_rank(blocks[at]):
                    return False
                at += 1
                continue
            placed = self._put_on_different_ranks(np.array(blocks[at : at + some]))
            if not placed:
                return False
            at += placed
        return True

    def put_on_groups(self, blocks: list[int]) -> bool:
        """Put group-wide blocks that may be anywhere on sites, in this order; where sites are many, these are bins."""
        all_blocks = np.array(blocks, dtype=np.int64)
        sites = site_bins(self._problem, all_blocks) if self._at_once >= _WORTHWHILE else None
        if sites is None:
            return all(self.put_on_group(block) for block in blocks)
        aim, tiers = self._potential.aim[:, 0], self._potential.tiers
        places = SitePlacer(self._problem, sites, self._partial.state, aim, tiers).places(all_blocks)
        if places is None:
            return False
        self._partial.put_on_sites(all_blocks, places)
        return True

    def put_on_group(self, block: int) -> bool:
        """Put a group-wide block on the site where the potential grows least; a part of rows apart from the others."""
        sites, option = self._problem.sites_of(block), int(self._problem.block_option[block])
        growth, size = self._potential.by_block_on_group(block)
        of_site = sites.sum(growth)
        if self._problem.option_apart[option]:
            of_site[self._partial.taken_by(option)] = np.inf
        for site in np.argsort(of_site, kind="stable").tolist():
            if of_site[site] == np.inf:
                return False
            ranks = sites.members(site)
            if self._have_room(size[:, ranks], ranks):
                self._partial.put(block, site, ranks)
                return True
        return False

    def put_within_one_node(self, blocks: list[int]) -> bool:
        """Put the blocks of one node-colocated option on different ranks of the node where their growth sums to least;
        also False where a memory is too full after that."""
        problem = self._problem
        growth = np.stack([self._potential.by_block_on_rank(block) for block in blocks])
        least, chosen_ranks = np.inf, None
        for first, stop in zip(problem.node_start[:-1], problem.node_start[1:], strict=True):
            ranks = np.arange(first, stop)
            if len(ranks) < len(blocks):
                continue
            order = ranks[np.argsort(growth[0, ranks], kind="stable")][: len(blocks)]
            total = growth[np.arange(len(blocks)), order].sum()
            if total < least:
                least, chosen_ranks = total, order
        if chosen_ranks is None:
            return False
        for block, rank in zip(blocks, chosen_ranks.tolist(), strict=True):
            self._partial.put(block, rank, np.array([rank]))
        return self._partial.state.overflow_bytes() == 0

    def _load_no_others(self, blocks: Ints) -> Bools:
        """Return which [n] blocks of single ranks share no memory with other ranks, and resources only where these are
        never longer loaded than a rank's own by blocks like it."""
        problem = self._problem
        load, size = self._asked(blocks)
        sharing = np.array([np.bincount(of).max() for of in problem.resource_of_rank])
        own: Floats = np.zeros((*load.shape[:2], len(problem.stage_constants)))
        for column in np.flatnonzero(sharing == 1).tolist():
            stage = problem.stage_of_column[column]
            own[:, :, stage] = np.maximum(own[:, :, stage], load[:, :, column])
        is_least = load * sharing <= own[:, :, problem.stage_of_column] * (1 + 1e-9)
        shared = [tier for tier, pool in enumerate(problem.pool_of_rank) if (pool[1:] == pool[:-1]).any()]
        return np.asarray((is_least | (sharing == 1)).all(axis=(0, 2)) & (size[:, :, shared] == 0).all(axis=(0, 2)))

    def _asked(self, blocks: Ints) -> tuple[Floats, Floats]:
        """Return the seconds [K, n, C] and bytes [K, n, M] of the ranks that hold blocks of single ranks."""
        problem = self._problem
        load = problem.fixed[:, blocks] + problem.by_rows[:, blocks]
        return load, problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]

    def _put_on_different_ranks(self, blocks: Ints) -> int:
        """Put blocks of single ranks on different ones, in this order; return how many there was room for."""
        problem = self._problem
        load, size = self._asked(blocks)
        growth = self._potential.by_each(load, size)
        growth[~(problem.allowed[:, blocks][problem.kind_of_rank] & problem.reach[:, None]).T] = np.inf
        ranks: list[int] = []
        for row in growth:
            row[ranks] = np.inf
            rank = int(row.argmin())
            if row[rank] == np.inf:
                break
            ranks.append(rank)
        if ranks:
            placed, kind = np.arange(len(ranks)), problem.kind_of_rank[ranks]
            self._partial.put_on_different_ranks(
                blocks[placed].tolist(), ranks, load[kind, placed].T, size[kind, placed].T
            )
        return len(ranks)

    def _have_room(self, size: Floats, ranks: Ints) -> bool:
        """Return whether the shared pools, too, hold what all these ranks bring together."""
        for m, pool in enumerate(self._problem.pool_of_rank):
            members = pool[ranks]
            total = np.bincount(members - members[0], weights=size[m])
            if (total[members - members[0]] > self._partial.state.free[m, ranks]).any():
                return False
        return True
