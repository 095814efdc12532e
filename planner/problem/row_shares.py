"""Rows of blocks that are cut by rows: over how many ranks, and which share of what all its ranks hold each of them
holds. Where several ranks hold copies of the same rows, shares add up to 1 all the same."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Floats, Ints

if TYPE_CHECKING:
    from planner.problem.arrays import Problem


@dataclass(frozen=True)
class RowShares:
    """The shares of all blocks of one problem; `planner.problem.arrays` explains the letters."""

    problem: "Problem"
    """By a weak reference, as the problem holds these."""
    _known: dict[tuple[int, int, int], Floats] = field(default_factory=dict)
    """Shares that were asked for before: a local search asks for the same ones all the time."""

    @cached_property
    def holders(self) -> Ints:
        """[K, B] ranks of the kind that hold a part of the block, if it is on a site of the kind."""
        problem = self.problem
        ranks = np.empty((problem.kinds, len(problem.sites)), dtype=np.int64)
        for extent, sites in enumerate(problem.sites):
            if sites.reach == "world":
                ranks[:, extent] = problem.ranks_of_kind
            else:
                ranks[problem.kind_of_rank, extent] = sites.sizes[sites.of_rank]
        return ranks[:, problem.block_extent]

    @cached_property
    def cuts(self) -> Ints:
        """[K, B] ranks over which the block's rows are cut, if it is on a site of the kind."""
        cuts = np.where(self.problem.is_world_wide, self.problem.world, self.holders) // self.problem.block_copies
        return np.where(self.problem.block_replicated, 1, cuts)

    @cached_property
    def largest(self) -> Floats:
        """[K, B] the share that the rank with the most rows holds, likewise; of replicated blocks, 1."""
        rows = self.problem.block_rows
        return np.asarray(-(-rows // self.cuts) / rows / self.problem.block_copies)

    @cached_property
    def least(self) -> Floats:
        """[B] the share that the rank with the fewest rows holds of a block, were that on all ranks; of replicated
        blocks, 1."""
        problem = self.problem
        rows, cuts = problem.block_rows, problem.world // problem.block_copies
        size = -(-rows // cuts)
        share = np.clip(rows - (cuts - 1) * size, 0, size) / rows / problem.block_copies
        return np.where(problem.block_replicated, 1.0, share)

    def on_site(self, block: int, ranks: int) -> Floats:
        """[ranks] share of the block's rows that each rank of a site of `ranks` ranks holds."""
        problem = self.problem
        if problem.block_replicated[block]:
            return np.ones(ranks)
        key = int(problem.block_rows[block]), ranks, int(problem.block_copies[block])
        if key not in self._known:
            self._known[key] = row_shares(*key, apart=problem.copies_apart)
        return self._known[key]

    def on_every_site(self, block: int) -> Floats:
        """[W] share of the block's rows that each rank holds, were it on every site."""
        problem, sites = self.problem, self.problem.sites_of(block)
        if problem.block_replicated[block]:
            return np.ones(problem.world)
        size, place = sites.sizes[sites.of_rank], sites.position_of_rank
        rows, copies = np.asarray(problem.block_rows[block]), problem.block_copies[block]
        return shares_at(rows, size, place, copies, apart=problem.copies_apart)


def row_shares(rows: int, ranks: int, copies: int = 1, *, apart: bool = False) -> Floats:
    """Shares of `rows` cut into ceil-blocks over `ranks`, in order; the last ones may be smaller or empty. So many
    ranks hold `copies` of one block, each a part of its share: neighbours, or one of each run of all blocks."""
    return shares_at(np.array(rows), np.array(ranks), np.arange(ranks), np.array(copies), apart=apart)


def shares_at(rows: Ints, ranks: Ints, place: Ints, copies: Ints, *, apart: bool = False) -> Floats:
    """[n] the share of `rows` that the rank at a `place` of so many holds, where they are cut into ceil-blocks of which
    so many ranks hold `copies`."""
    size = -(-rows // (ranks // copies))
    return np.asarray(np.clip(rows - part_at(place, ranks, copies, apart=apart) * size, 0, size) / rows / copies)


def part_at(place: Ints, ranks: Ints, copies: Ints, *, apart: bool) -> Ints:
    """[n] which of the ceil-blocks the rank at a `place` of so many holds: so many neighbours hold the same, or all
    blocks come in turn, so many times."""
    return np.asarray(place % (ranks // copies) if apart else place // copies)
