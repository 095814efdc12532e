"""Where blocks may be placed: an extent has sites, and each of these is a run of consecutive ranks.

A block of one rank has every rank as a site; one that is cut by rows over a node has the nodes; a world-wide one has no
choice. Solvers ask the sites for ranks and sums and need not know which extents there are.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints

NOWHERE = -1
"""The place of a block that has no choice: it is on all ranks."""
Reach = Literal["rank", "group", "world"]
"""One rank at a choice of all; a group of ranks at a choice of several groups; all ranks."""


@dataclass(frozen=True)
class Sites:
    """The sites of one extent, in the order of their ranks. N sites, W ranks."""

    reach: Reach
    of_rank: Ints
    """[W] the site of each rank, ascending from 0. The ranks of a group are of one kind, and all groups of ranks of one
    kind are equally large."""

    @cached_property
    def first(self) -> Ints:
        """[N] first rank of each site."""
        return np.flatnonzero(np.diff(self.of_rank, prepend=-1))

    @property
    def count(self) -> int:
        """N"""
        return len(self.first)

    @cached_property
    def sizes(self) -> Ints:
        """[N] ranks of each site."""
        return np.diff(self.first, append=len(self.of_rank))

    @cached_property
    def _slices(self) -> list[slice]:
        ends = [*self.first.tolist(), len(self.of_rank)]
        return [slice(start, stop) for start, stop in itertools.pairwise(ends)]

    def ranks(self, place: int) -> slice:
        """The ranks of the site at a place."""
        return self._slices[place]

    def sum(self, values: Floats) -> Floats:
        """[..., N] the sums of values [..., W] over the ranks of each site."""
        return np.asarray(np.add.reduceat(values, self.first, axis=-1))

    def all(self, flags: Bools) -> Bools:
        """[..., N] whether flags [..., W] hold for all ranks of each site."""
        return np.asarray(np.logical_and.reduceat(flags, self.first, axis=-1))

    def any(self, flags: Bools) -> Bools:
        """[..., N] whether flags [..., W] hold for some rank of each site."""
        return np.asarray(np.logical_or.reduceat(flags, self.first, axis=-1))
