"""Rows of blocks that are cut by rows: over how many ranks, and which share of the block's each rank holds."""

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
    _known: dict[tuple[int, int], Floats] = field(default_factory=dict)
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
        cuts = np.where(self.problem.is_world_wide, self.problem.world, self.holders)
        return np.where(self.problem.block_replicated, 1, cuts)

    def on_site(self, block: int, ranks: int) -> Floats:
        """[ranks] share of the block's rows that each rank of a site of `ranks` ranks holds."""
        problem = self.problem
        if problem.block_replicated[block]:
            return np.ones(ranks)
        rows = int(problem.block_rows[block])
        if (rows, ranks) not in self._known:
            self._known[rows, ranks] = row_shares(rows, ranks)
        return self._known[rows, ranks]

    def on_every_site(self, block: int) -> Floats:
        """[W] share of the block's rows that each rank holds, were it on every site."""
        problem, sites = self.problem, self.problem.sites_of(block)
        if problem.block_replicated[block]:
            return np.ones(problem.world)
        size = np.repeat(sites.sizes, sites.sizes)
        place = np.arange(problem.world) - np.repeat(sites.first, sites.sizes)
        return shares_at(np.asarray(problem.block_rows[block]), size, place)


def row_shares(rows: int, ranks: int) -> Floats:
    """Shares of `rows` cut into ceil-blocks over `ranks`, in order; the last ones may be smaller or empty."""
    return shares_at(np.array(rows), np.array(ranks), np.arange(ranks))


def shares_at(rows: Ints, ranks: Ints, place: Ints) -> Floats:
    """[n] the share of `rows` that the rank at a `place` of so many holds, where they are cut into ceil-blocks."""
    size = -(-rows // ranks)
    return np.asarray(np.clip(rows - place * size, 0, size) / rows)
