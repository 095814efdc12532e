"""Conversions: whole tables change their memory tier or cache size where they are.

A move in the multiple-choice part of the problem: the option changes, the place does not.
"""

import numpy as np

from planner.problem.numbers import Ints
from planner.solvers.improve.items import Items
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState

CONVERSIONS = 3
"""Other tiers and cache sizes that are drawn for each whole table in one round."""
CANDIDATES = 16
"""Conversions of one rank of which the best one or two are found in one round."""


def convert(state: SearchState, smoothing: Smoothing) -> int:
    """Change the tier or cache size of whole tables where they are, on each rank of the best one or two; return how
    many."""
    problem, items = state.problem, state.items
    item, family = _alternatives(state)
    if not len(item):
        return 0
    rank = items.rank[item]
    kind = problem.kind_of_rank[rank]
    old, new = state.block_of[items.family[item], items.units[item]], state.block_of[family, items.units[item]]
    load = state.block_load[kind, new] - state.block_load[kind, old]
    size = state.block_bytes[kind, new] - state.block_bytes[kind, old]
    ranks, drawn = _drawn(state, rank, smoothing)
    there = (drawn >= 0)[..., None]
    more = np.where(there, smoothing.relative(load)[drawn], 0.0)
    bytes_more = np.where(there, size[drawn], 0.0)
    now = smoothing.relative(state.loads.load.T[ranks])[:, None, None]
    value = smoothing.value_of((now + more[:, :, None] + more[:, None])[..., None, :])
    fits = (state.loads.free.T[ranks][:, None, None] >= bytes_more[:, :, None] + bytes_more[:, None]).all(axis=-1)
    same = np.where(there[..., 0], item[drawn], -np.arange(1, drawn.shape[1] + 1))
    twice = same[:, :, None] == same[:, None]
    twice[:, 0, 0] = False
    value = np.where(fits & ~twice, value, np.inf).reshape(len(ranks), -1)
    best = value.argmin(axis=1)
    better = np.flatnonzero(value[np.arange(len(ranks)), best] < value[:, 0] * (1 - 1e-9))
    first, second = np.divmod(best[better], drawn.shape[1])
    taken = np.concatenate([drawn[better, first], drawn[better, second]])
    taken = taken[taken >= 0]
    families = items.family.copy()
    families[item[taken]] = family[taken]
    return len(taken) if len(taken) and state.replace(Items(families, items.units, items.rank)) else 0


def _alternatives(state: SearchState) -> tuple[Ints, Ints]:
    """Draw for whole tables on one rank other splittable options of their table that have this width."""
    items, problem = state.items, state.problem
    table = state.table_of_family[items.family]
    single = np.bincount(table, minlength=problem.tables)[table] == 1
    start = np.searchsorted(state.table_of_family, np.arange(problem.tables + 1))
    item = np.repeat(np.flatnonzero(single), CONVERSIONS)
    count = np.diff(start)[table[item]]
    family = start[table[item]] + (state.random.random(len(item)) * count).astype(np.int64)
    block = state.block_of[family, items.units[item]]
    kind = problem.kind_of_rank[items.rank[item]]
    possible = (family != items.family[item]) & (block >= 0) & state.allowed[kind, block]
    possible &= items.units[item] == state.whole_units[items.family[item]]
    return item[possible], family[possible]


def _drawn(state: SearchState, rank: Ints, smoothing: Smoothing) -> tuple[Ints, Ints]:
    """Draw ranks of which no two share a memory pool, the fullest first, and for each [n, m] some candidates of its
    own.

    The first candidate of each rank is -1, to change nothing; so are those that are missing.
    """
    problem = state.problem
    order = np.argsort(-smoothing.fullness(state.loads.load), kind="stable")
    for pool in problem.pool_of_rank:
        order = order[np.sort(np.unique(pool[order], return_index=True)[1])]
    lottery = np.lexsort((state.random.random(len(rank)), rank))
    start = np.searchsorted(rank[lottery], np.arange(problem.world + 1))
    count = np.minimum(np.diff(start), CANDIDATES)[order]
    position = np.arange(CANDIDATES)
    index = np.minimum(start[order][:, None] + position, max(len(lottery) - 1, 0))
    chosen = np.where(position < count[:, None], lottery[index], -1)
    return order, np.concatenate([np.full((len(order), 1), -1), chosen], axis=1)
