"""Which ranks tables may be on, together or apart, and the ranks that a relaxation counts together."""

from dataclasses import dataclass

from planner.problem.numbers import Bools, Floats, Ints

MOST_PARTS = 64
"""Rank sets that are districts of their own at most, those of the most tables: each costs a solver variables."""


@dataclass(frozen=True)
class TableGroup:
    """Tables whose blocks must all be in one zone, or of which no two may have blocks in the same zone."""

    tables: Ints
    """Ascending."""
    zone_of_rank: Ints
    """[W] a rank, or ranks that count as one place."""


@dataclass(frozen=True)
class Districts:
    """Ranks whose resources and memory are counted together in a relaxation. D districts, each of one kind of rank."""

    ranks: Bools
    """[D, W]"""
    kind: Ints
    """[D] the first K are the kinds themselves, in order."""
    binds: Bools
    """[R, D] whether what tables of the rank set place on the district's kind is in the district for sure."""

    def of_set(self, values: Floats, number: int, kinds: int) -> Floats:
        """[K, n] sums, by kind, of the `values` [D, n] of the districts that bind a rank set."""
        found = values[:kinds].copy()
        for d in range(kinds, len(values)):
            if self.binds[number, d]:
                found[self.kind[d]] += values[d]
        return found
