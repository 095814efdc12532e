"""Which ranks tables may be on, together or apart, and the ranks that a relaxation counts together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints

if TYPE_CHECKING:
    from planner.problem.arrays import Problem

MOST_PARTS = 64
"""Rank sets that are capacity regions of their own at most, those of the most tables: each costs a solver variables."""


@dataclass(frozen=True)
class TableGroup:
    """Tables whose blocks must all be in one zone, or of which no two may have blocks in the same zone."""

    tables: Ints
    """Ascending."""
    zone_of_rank: Ints
    """[W] a rank, or ranks that count as one place."""


@dataclass(frozen=True)
class CapacityRegions:
    """Ranks whose resources and memory are counted together in a relaxation. D capacity regions, each of one kind of
    rank."""

    ranks: Bools
    """[D, W]"""
    kind: Ints
    """[D] the first K are the kinds themselves, in order."""
    binds: Bools
    """[R, D] whether what tables of the rank set place on the capacity region's kind is in the capacity region for
    sure."""

    def of_set(self, values: Floats, number: int, kinds: int) -> Floats:
        """[K, n] sums, by kind, of the `values` [D, n] of the capacity regions that bind a rank set."""
        sums = values[:kinds].copy()
        for d in range(kinds, len(values)):
            if self.binds[number, d]:
                sums[self.kind[d]] += values[d]
        return sums


def capacity_regions_of(problem: "Problem") -> CapacityRegions:
    """Return the ranks in reach of each kind; then, for each set that is a part of these, its ranks of each kind."""
    parts = np.unique(problem.table_rank_set)
    parts = parts[(problem.rank_sets[parts] != problem.reach).any(axis=1)]
    tables = np.bincount(problem.table_rank_set, minlength=len(problem.rank_sets))[parts]
    parts = np.sort(parts[np.argsort(-tables, kind="stable")][:MOST_PARTS])
    ranks = [problem.reach & (problem.kind_of_rank == k) for k in range(problem.kinds)]
    kinds, binds = list(range(problem.kinds)), [np.ones(len(problem.rank_sets), dtype=bool)] * problem.kinds
    for part in parts.tolist():
        within = ~(problem.rank_sets & ~problem.rank_sets[part]).any(axis=1)
        for k in np.unique(problem.kind_of_rank[problem.rank_sets[part]]).tolist():
            ranks.append(problem.rank_sets[part] & (problem.kind_of_rank == k))
            kinds.append(k)
            binds.append(within)
    return CapacityRegions(np.stack(ranks), np.array(kinds), np.stack(binds, axis=1))


def ranks_beside(problem: "Problem") -> Floats:
    """[D, C, K] ranks of each kind, outside of a capacity region, that use an instance of a column's resource which its
    ranks use: what they bring before any table is on that instance, too. Where several kinds share instances, the
    ranks out of reach of each kind that use one which any rank in reach does, and none beside parts of kinds."""
    regions, kinds = problem.capacity_regions, problem.kinds
    beside = np.zeros((len(regions.kind), len(problem.stage_of_column), kinds))
    if (regions.ranks[:kinds].any(axis=0)).all() and len(regions.kind) == kinds:
        return beside
    of_kind = problem.kind_of_rank == np.arange(kinds)[:, None]
    for c, instance in enumerate(problem.resource_of_rank):
        used = np.stack([np.isin(instance, instance[ranks]) for ranks in regions.ranks])
        is_shared = bool((used[:kinds] & regions.ranks[:kinds].any(axis=0)).sum(axis=0).max(initial=0) > 1)
        for d, ranks in enumerate(regions.ranks):
            if not is_shared:
                beside[d, c] = (of_kind & used[d] & ~ranks).sum(axis=1)
            elif d < kinds:
                beside[d, c, d] = (of_kind[d] & used[:kinds].any(axis=0) & ~problem.reach).sum()
    return beside
