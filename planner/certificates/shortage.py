"""Why no placement exists: the proof by multipliers of bytes (a Farkas certificate), and its arithmetic."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints


@dataclass(frozen=True)
class Shortage:
    """Why no placement exists.

    Either some tables have no option that fits even on empty hardware (`unplaceable`), or at the multipliers `byte`
    [D, M] the cheapest options of all tables need more than the capacity. `bytes_short` [M] says for each tier how much
    more of it alone, in all pools alike, would let the fluid problem fit; NaN where no amount is known to. Where the
    tables that are confined to some `ranks` [W] need more than these have, it counts the bytes of their pools only.
    """

    unplaceable: Ints
    byte: Floats
    bytes_short: Floats
    ranks: Bools | None = None


def blamed_ranks(problem: Problem, byte: Floats) -> Bools | None:
    """The one confined set of ranks [W] on which all multipliers [D, M] lie; None where they lie on others, too."""
    lies = byte.any(axis=1)
    confined = (mine for mine in confined_regions(problem) if lies.any() and mine[lies].all())
    return next((np.asarray(problem.capacity_regions.ranks[mine].any(axis=0)) for mine in confined), None)


def confined_regions(problem: Problem) -> Iterator[Bools]:
    """The capacity regions [D] of each set of ranks to which tables are confined."""
    capacity_regions = problem.capacity_regions
    if len(capacity_regions.kind) == problem.kinds:
        return
    parts = np.unique(capacity_regions.binds[:, problem.kinds :], axis=1, return_inverse=True)[1]
    for part in np.unique(parts).tolist():
        yield np.concatenate([np.zeros(problem.kinds, dtype=bool), parts == part])


def growth_for(problem: Problem, unplaceable: Ints) -> Floats:
    """[M] bytes by which a tier must grow, all its pools alike, for each of these tables to fit somewhere; or NaN."""
    demand = problem.extremes.pool_demand.min(axis=0)
    growth = np.full(demand.shape[1], np.nan)
    for m in range(len(growth)):
        others = np.delete(demand, m, axis=1).max(axis=1)
        factor = np.where(others <= 1, demand[:, m], np.inf)
        worst = 1.0
        for table in unplaceable.tolist():
            blocks = slice(*problem.table_block_start[table : table + 2])
            worst = max(worst, float(factor[blocks].min(initial=np.inf)))
        if np.isfinite(worst):
            growth[m] = (worst - 1.0) * float(problem.pool_capacity[m].sum())
    return growth
