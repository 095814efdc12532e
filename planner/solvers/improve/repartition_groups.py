"""Pairwise repartition of group-wide blocks: paired groups of ranks, nodes say, divide theirs anew."""

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.sites import Sites
from planner.solvers.improve.repartition import Bins, repartitioned
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState


def repartition_groups(state: SearchState, smoothing: Smoothing) -> int:
    """Divide group-wide blocks between paired groups of one kind anew; return how many changed their group."""
    problem = state.problem
    pairs = ((extent, kind) for extent in problem.group_extents for kind in range(problem.kinds))
    return sum(_repartition(state, smoothing, extent, kind) for extent, kind in pairs)


def _repartition(state: SearchState, smoothing: Smoothing, extent: int, kind: int) -> int:
    problem, sites = state.problem, state.problem.sites[extent]
    of_kind = np.flatnonzero(problem.kind_of_rank[sites.first] == kind)
    mine = np.flatnonzero((problem.block_extent[state.group_block] == extent) & np.isin(state.group_site, of_kind))
    if len(of_kind) < 2 or not len(mine):
        return 0
    ranks = int(sites.sizes[of_kind[0]])
    members = sites.order[(sites.start[of_kind][:, None] + np.arange(ranks)).ravel()]
    fullness = smoothing.fullness(state.loads.load)[members].reshape(len(of_kind), ranks).sum(axis=1)
    left, right = state.pairs(fullness, np.zeros(len(of_kind), dtype=np.int64))
    order = mine[np.argsort(state.group_site[mine], kind="stable")]
    partners = state.partners(left, right, len(of_kind))
    partner = of_kind[partners[np.searchsorted(of_kind, state.group_site[order])]]
    may_move = _may_be_there(state, state.group_block[order], sites, partner)
    order = order[may_move & ~_meets_another_part(state, order, partner)]
    if not len(order):
        return 0
    load, size = _amounts(state, state.group_block[order], kind, ranks)
    shape = (len(of_kind), ranks, -1)
    bins = Bins(
        state.loads.load.T[members].reshape(shape),
        state.room(members).T[members].reshape(shape),
        np.searchsorted(of_kind, state.group_site[order]),
        load,
        size,
    )
    moved, target = repartitioned(bins, left, right, smoothing, state.random)
    if len(moved):
        state.charge_groups(order[moved], -1.0)
        state.group_site[order[moved]] = of_kind[target]
        state.charge_groups(order[moved], 1.0)
    return len(moved)


def _meets_another_part(state: SearchState, items: Ints, places: Ints) -> Bools:
    """Return which of the `items` [n] are parts of rows that would meet another part of their table on these places."""
    problem = state.problem
    option = problem.block_option[state.group_block]
    held, wanted = option * problem.world + state.group_site, option[items] * problem.world + places
    return np.asarray(problem.option_apart[option[items]] & np.isin(wanted, held))


def _may_be_there(state: SearchState, blocks: Ints, sites: Sites, places: Ints) -> Bools:
    """Return whether [n] each block's table may use all ranks of the site at its position."""
    problem = state.problem
    return np.asarray(sites.all(problem.rank_sets)[problem.table_rank_set[problem.table_of_block[blocks]], places])


def _amounts(state: SearchState, blocks: Ints, kind: int, ranks: int) -> tuple[Floats, Floats]:
    """Return the loads [n, ranks, C] and bytes [n, ranks, M] of group-wide blocks."""
    problem = state.problem
    share = np.stack([problem.row_shares.on_site(block, ranks) for block in blocks.tolist()])[..., None]
    load = problem.fixed[kind, blocks][:, None] + problem.by_rows[kind, blocks][:, None] * share
    size = problem.bytes_fixed[kind, blocks][:, None] + problem.bytes_by_rows[kind, blocks][:, None] * share
    return load, size
