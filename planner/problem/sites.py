"""Where blocks may be placed: an extent has sites, and each of these is a set of ranks, mostly a run of them.

A block of one rank has every rank as a site; one that is cut by rows over a node has the nodes; a world-wide one has no
choice. Copies that are nodes apart have sites whose ranks are. Solvers ask the sites for ranks and sums and need not
know which extents there are.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planner.problem.numbers import Bools, Floats, Ints

NOWHERE = -1
"""The place of a block that has no choice: it is on all ranks."""
Reach = Literal["rank", "group", "world"]
"""One rank at a choice of all; a group of ranks at a choice of several groups; all ranks."""
Ranks = slice | Ints
"""An index into arrays of ranks: a slice where they are consecutive, else all of them, ascending."""


@dataclass(frozen=True)
class Sites:
    """The sites of one extent, in the order of their first ranks. N sites, W ranks."""

    reach: Reach
    of_rank: Ints
    """[W] the site of each rank, numbered from 0. The ranks of a group are of one kind, and all groups of ranks of one
    kind are equally large."""

    @cached_property
    def are_runs(self) -> bool:
        """Whether the ranks of each site are consecutive."""
        return bool((np.diff(self.of_rank) >= 0).all())

    @cached_property
    def order(self) -> Ints:
        """[W] the ranks site by site, ascending within each."""
        return np.argsort(self.of_rank, kind="stable")

    @cached_property
    def start(self) -> Ints:
        """[N] where the ranks of each site begin in `order`."""
        return np.flatnonzero(np.diff(self.of_rank[self.order], prepend=-1))

    @cached_property
    def first(self) -> Ints:
        """[N] first rank of each site."""
        return self.order[self.start]

    @property
    def count(self) -> int:
        """N"""
        return len(self.start)

    @cached_property
    def sizes(self) -> Ints:
        """[N] ranks of each site."""
        return np.diff(self.start, append=len(self.of_rank))

    @cached_property
    def position_of_rank(self) -> Ints:
        """[W] how many ranks of its site come before each rank."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(self.order)) - np.repeat(self.start, self.sizes)
        return position

    @cached_property
    def _ranks(self) -> list[Ranks]:
        ends = itertools.pairwise([*self.start.tolist(), len(self.of_rank)])
        return [slice(start, stop) if self.are_runs else self.order[start:stop] for start, stop in ends]

    def ranks(self, place: int) -> Ranks:
        """The ranks of the site at a place."""
        return self._ranks[place]

    @cached_property
    def _every(self) -> Ints:
        """[W] all ranks, of which millions of shards share one array."""
        every = np.arange(len(self.of_rank))
        every.flags.writeable = False
        return every

    def members(self, place: int) -> Ints:
        """The same one by one."""
        return np.asarray(self._every[self._ranks[place]])

    def sum(self, values: Floats) -> Floats:
        """[..., N] the sums of values [..., W] over the ranks of each site."""
        return np.asarray(np.add.reduceat(self._by_site(values), self.start, axis=-1))

    def all(self, flags: Bools) -> Bools:
        """[..., N] whether flags [..., W] hold for all ranks of each site."""
        return np.asarray(np.logical_and.reduceat(self._by_site(flags), self.start, axis=-1))

    def any(self, flags: Bools) -> Bools:
        """[..., N] whether flags [..., W] hold for some rank of each site."""
        return np.asarray(np.logical_or.reduceat(self._by_site(flags), self.start, axis=-1))

    def _by_site(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values [..., W] of all ranks in the order of the sites."""
        return values if self.are_runs else values[..., self.order]
