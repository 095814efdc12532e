"""Pairwise repartition: paired ranks divide their blocks anew."""

import numpy as np

from planner.problem.numbers import Ints
from planner.solvers.improve.items import Items
from planner.solvers.improve.repartition import Bins, repartitioned
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState


def repartition_ranks(state: SearchState, smoothing: Smoothing) -> int:
    """Divide blocks of single ranks between paired ranks anew; return how many changed their rank."""
    items = state.items
    left, right = state.pairs(smoothing.fullness(state.loads.load), state.reached_kind)
    bins, order = rank_bins(state, (left, right))
    if not len(order):
        return 0
    moved, target = repartitioned(bins, left, right, smoothing, state.random)
    rank = items.rank.copy()
    rank[order[moved]] = target
    return len(moved) if len(moved) and state.replace(Items(items.family, items.units, rank)) else 0


def rank_bins(state: SearchState, pairs: tuple[Ints, Ints]) -> tuple[Bins, Ints]:
    """Return every rank with the items that its partner may take in one round, and the items in the order of theirs."""
    problem, items = state.problem, state.items
    partner = state.partners(*pairs, problem.world)[items.rank]
    order = np.flatnonzero(partner >= 0)
    order = order[np.argsort(items.rank[order], kind="stable")]
    if problem.is_confined:
        order = order[problem.is_within(state.table_of_family[items.family[order]], partner[order])]
    kind = problem.kind_of_rank[items.rank[order]]
    block = state.block_of[items.family[order], items.units[order]]
    bins = Bins(
        state.loads.load.T[:, None, :],
        state.room(np.concatenate(pairs)).T[:, None, :],
        items.rank[order],
        state.block_load[kind, block][:, None, :],
        state.block_bytes[kind, block][:, None, :],
    )
    return bins, order
