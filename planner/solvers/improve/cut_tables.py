"""Tables cut anew: pairs of ranks divide the columns of a table in another way, and repartition other blocks."""

from dataclasses import dataclass

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.improve.items import Items
from planner.solvers.improve.repartition import PRECISION, Bins, PairedItems, best_splits, drawn_items
from planner.solvers.improve.repartition_ranks import rank_bins
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState

CUTS = 16
"""Ways to divide a table's columns that a pair of ranks tries in one round."""
CUT_DRAWS = 3
"""Tables drawn for each, of which the one that costs least to cut is taken."""
BLOCKS_BESIDE_CUT = 8
"""Other blocks that are divided anew with each of them."""


@dataclass(frozen=True)
class _Cuts:
    """Ways to divide one table between two ranks, CUTS for each pair of ranks; arrays of [n]."""

    left: Ints
    right: Ints
    family: Ints
    """The table's splittable option."""
    units: Ints
    """Width that the left is to have."""
    rest: Ints
    """Width that the right is to have."""
    present: tuple[Ints, Ints]
    """Its items on either side now, -1 where there is none."""
    sides: tuple[tuple[Ints, tuple[Ints, Ints]], tuple[Ints, tuple[Ints, Ints]]]
    """The rank of either side, and the table's block there now and then."""
    legal: Bools


def cut_tables(state: SearchState, smoothing: Smoothing) -> int:
    """Divide the columns of a table between paired ranks in another way; return how many pairs did.

    Every pair makes some tries; the first leaves its blocks as they are. All are priced with the best split of some
    of the other blocks.
    """
    problem, items = state.problem, state.items
    pairs = state.pairs(smoothing.fullness(state.loads.load), state.reached_kind)
    bins, order = rank_bins(state, pairs)
    cuts = _draw_cuts(state, pairs, bins, order)
    if not len(cuts.left):
        return 0
    kind = problem.kind_of_rank[cuts.left]
    load = tuple(bins.load[at] + _more(state.block_load, kind, change) for at, change in cuts.sides)
    free = tuple(bins.free[at] - _more(state.block_bytes, kind, change) for at, change in cuts.sides)
    beside, at_left = drawn_items(bins, cuts.left, cuts.right, BLOCKS_BESIDE_CUT, state.random)
    touched = (beside >= 0) & (items.family[order[beside]] == cuts.family[:, None])
    beside, at_left = np.where(touched, -1, beside), at_left & ~touched
    to_left, value, _ = best_splits(
        bins, PairedItems(beside, at_left, (load[0], load[1]), (free[0], free[1])), smoothing
    )
    for k, share in enumerate(problem.ranks_of_kind / problem.world):
        more = sum(state.block_everywhere[k, new] - state.block_everywhere[k, old] for _, (old, new) in cuts.sides)
        value = value + share * smoothing.uniform_growth(more)
    value = np.where(cuts.legal, value, np.inf).reshape(-1, CUTS)
    first, best = np.arange(len(value)), value.argmin(axis=1)
    taken = (first * CUTS + best)[value[first, best] < value[:, 0] * (1 - PRECISION)]
    if not len(taken):
        return 0
    rank = items.rank.copy()
    changes = (to_left[taken] != at_left[taken]) & (beside[taken] >= 0)
    goes_to = np.where(to_left[taken], cuts.left[taken, None], cuts.right[taken, None])
    rank[order[beside[taken][changes]]] = goes_to[changes]
    return len(taken) if state.replace(_with_cuts(state, cuts, taken, rank)) else 0


def _draw_cuts(state: SearchState, pairs: tuple[Ints, Ints], bins: Bins, order: Ints) -> "_Cuts":
    """Draw tables of the pairs' items, those that cost little to cut more often, and widths for the left ranks."""
    items, count = state.items, np.bincount(bins.item_bin, minlength=state.problem.world)
    busy = count[pairs[0]] + count[pairs[1]] > 0
    left, right = np.repeat(pairs[0][busy], CUTS), np.repeat(pairs[1][busy], CUTS)
    start = np.cumsum(count) - count
    drawn = (state.random.random((len(left), CUT_DRAWS)) * (count[left] + count[right])[:, None]).astype(np.int64)
    on_left = drawn < count[left][:, None]
    item = order[drawn + np.where(on_left, start[left][:, None], (start[right] - count[left])[:, None])]
    family = items.family[item[np.arange(len(left)), state.cut_cost[items.family[item]].argmin(axis=1)]]
    present_items = [state.find(family, side) for side in (left, right)]
    was = [np.where(at >= 0, items.units[at], 0) for at in present_items]
    whole = was[0] + was[1]
    units = (state.random.random(len(left)) * (whole + 1)).astype(np.int64)
    units[::CUTS] = was[0][::CUTS]
    old = [state.block_of[family, of] for of in was]
    new = [state.block_of[family, of] for of in (units, whole - units)]
    kind = state.problem.kind_of_rank[left]
    legal = np.all([(block >= 0) & state.allowed[kind, block] for block in new], axis=0)
    legal[::CUTS] = True
    sides = ((left, (old[0], new[0])), (right, (old[1], new[1])))
    return _Cuts(left, right, family, units, whole - units, (present_items[0], present_items[1]), sides, legal)


def _more(amounts: Floats, kind: Ints, change: tuple[Ints, Ints]) -> Floats:
    """Return what the second block asks of a rank above the first [n, 1, x]; `amounts` are [K, B, x]."""
    old, new = change
    return (amounts[kind, new] - amounts[kind, old])[:, None]


def _with_cuts(state: SearchState, cuts: "_Cuts", taken: Ints, rank: Ints) -> Items:
    """Return the items on these ranks, the tables that are `taken` cut anew."""
    items = state.items
    kept = np.ones(len(rank), dtype=bool)
    for present in cuts.present:
        kept[present[taken][present[taken] >= 0]] = False
    family = np.concatenate([items.family[kept], cuts.family[taken], cuts.family[taken]])
    units = np.concatenate([items.units[kept], cuts.units[taken], cuts.rest[taken]])
    ranks = np.concatenate([rank[kept], cuts.left[taken], cuts.right[taken]])
    wide = units > 0
    return Items(family[wide], units[wide], ranks[wide])
