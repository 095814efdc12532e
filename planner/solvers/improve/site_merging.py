"""Coarser cuts on sites: tables over groups of ranks in fewer and larger blocks, which cost less.

Starts cut tables so that all blocks are small, as small ones pack well; the coarser cut costs less in total. Once the
sites are level, a table gives up some of its sites and has more on the others. Blocks of the others go where there is
room now, one swap after the other, until no site is above the stages' longest and the memory that there is. A cut
with which that is not reached stays as it was.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.solvers.improve.site_balancing import may_swap
from planner.solvers.improve.site_levelling import SiteLevelling
from planner.solvers.improve.state import SearchState

MORE_BYTES = 0.01
"""Share by which another cut may take more bytes of a memory: there is seldom room for another memory."""
WORTHWHILE = 1e-3
"""Share of what a table costs that another cut must save."""


@dataclass(frozen=True)
class _Cut:
    """A cut that costs less than the one that a table has."""

    table: int
    blocks: Ints
    """Those of the option, as often as they occur."""
    value_s: float
    saved_s: float


def merge_cuts(state: SearchState, value: Floats, kept: Collection[int] = ()) -> bool:
    """Hold tables, but for those that are `kept`, in options of fewer blocks on sites, those that save most by the
    `value` [B] of the option that each block names before the others; return whether any are. All blocks on groups of
    ranks have sites of one extent."""
    problem = state.problem
    cuts = [cut for cut in _cuts(state, value) if cut.table not in kept]
    if not cuts:
        return False
    levelling = SiteLevelling(state, np.concatenate([cut.blocks for cut in cuts]))
    first, least_s = levelling.present, dict[int, float]()
    for cut in cuts:
        new = np.arange(first, first + len(cut.blocks))
        first += len(cut.blocks)
        if cut.value_s < least_s.get(cut.table, np.inf) and _apply(levelling, cut, new):
            least_s[cut.table] = cut.value_s
    if not least_s:
        return False
    state.group_block, state.group_site = levelling.held()
    state.loads = load_state(problem, state.placement())
    state.note()
    return True


def _cuts(state: SearchState, value: Floats) -> list[_Cut]:
    """Return the cuts that cost less than the present ones and have no more blocks, the most saving first."""
    problem, block = state.problem, state.group_block
    own = np.unique(problem.block_option[block[may_swap(problem, block)]])
    extent = int(problem.block_extent[block[0]])
    cuts = []
    for option in own.tolist():
        table, first = int(problem.option_table[option]), int(problem.block_start[option])
        own_types = np.arange(first, problem.block_start[option + 1])
        most = int(problem.block_count[own_types].sum())
        for other in range(problem.option_start[table], problem.option_start[table + 1]):
            types = np.arange(problem.block_start[other], problem.block_start[other + 1])
            saved_s = float(value[first] - value[types[0]])
            if saved_s <= WORTHWHILE * value[first] or not problem.is_on_group[types[0]]:
                continue
            blocks = np.repeat(types, problem.block_count[types])
            is_alike = (problem.block_extent[types] == extent).all() and may_swap(problem, types).all()
            is_alike &= bool((_stored(problem, types) <= _stored(problem, own_types) * (1 + MORE_BYTES)).all())
            if is_alike and len(blocks) <= most and problem.allowed[0, types].all():
                cuts.append(_Cut(table, blocks, float(value[types[0]]), saved_s))
    return sorted(cuts, key=lambda cut: (-cut.saved_s, cut.table))


def _stored(problem: Problem, types: Ints) -> Floats:
    """Return the bytes [M] that all blocks of a fixed option take on groups of ranks together."""
    ranks = problem.row_shares.holders[0, types][:, None]
    each = ranks * problem.bytes_fixed[0, types] + problem.bytes_by_rows[0, types]
    return np.asarray((problem.block_count[types][:, None] * each).sum(axis=0))


def _apply(levelling: SiteLevelling, cut: _Cut, new: Ints) -> bool:
    """Hold a table in another cut, whose blocks are `new`, if the sites come to be level again; return whether so."""
    old, bins = levelling.of_table(cut.table), levelling.bins
    if len(new) > len(old) or not levelling.fits(new):
        return False
    sites = bins.place[old]
    kept = sites[np.argsort(bins.load[sites].max(axis=1), kind="stable")[: len(new)]]
    return levelling.replace(old, new, kept)
