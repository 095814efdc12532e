"""Cheaper options on sites, whatever blocks and memories these take, once sites are level.

A plan has room where the fluid optimum has none: seconds of stages that are not level, bytes that no block fits into.
At the prices beside the plan (`planner.solvers.bound.present_prices`) some tables cost more than they must. Each takes
a cheaper option where swaps make the sites level again, though it may have more blocks then, or take more of a memory.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.solvers.improve.site_balancing import may_swap
from planner.solvers.improve.site_levelling import SiteLevelling
from planner.solvers.improve.state import SearchState

WORTHWHILE = 1e-6
"""Share of the step that an option must save."""
ATTEMPTS = 300
"""Changes that are tried at most, 10 to 30 ms each; half of them succeed as a rule."""


@dataclass(frozen=True)
class _Change:
    """An option that costs less than the one that a table has."""

    table: int
    blocks: Ints
    """Those of the option, as often as they occur."""
    saved_s: float


def convert_on_sites(state: SearchState, value: Floats, kept: Collection[int] = ()) -> bool:
    """Hold tables, but for those that are `kept`, in other options on sites, those that save most by the `value` [B] of
    the option that each block names before the others; return whether any are. All blocks on groups of ranks have sites
    of one extent."""
    changes = [change for change in _changes(state, value) if change.table not in kept]
    if not changes:
        return False
    levelling = SiteLevelling(state, np.concatenate([change.blocks for change in changes]))
    first, done, left = levelling.present, set[int](), ATTEMPTS
    for change in changes:
        new = np.arange(first, first + len(change.blocks))
        first += len(change.blocks)
        if change.table in done or not levelling.fits(new):
            continue
        if _apply(levelling, change, new):
            done.add(change.table)
        left -= 1
        if not left:
            break
    if not done:
        return False
    state.group_block, state.group_site = levelling.held()
    state.loads = load_state(state.problem, state.placement())
    state.note()
    return True


def _changes(state: SearchState, value: Floats) -> list[_Change]:
    """Return the options that cost less than the present ones, the most saving first."""
    problem, block = state.problem, state.group_block
    first = problem.block_start[:-1]
    extent = int(problem.block_extent[block[0]])
    own = np.full(problem.tables, -np.inf)
    movable = block[may_swap(problem, block)]
    own_option = problem.block_option[movable]
    own[problem.option_table[own_option]] = value[first[own_option]]
    saved_s = own[problem.option_table] - value[first]
    options = np.flatnonzero((saved_s > WORTHWHILE * state.best_s) & problem.is_on_group[first])
    changes = []
    for option in options[np.argsort(-saved_s[options], kind="stable")].tolist():
        types = np.arange(problem.block_start[option], problem.block_start[option + 1])
        is_alike = (problem.block_extent[types] == extent).all() and may_swap(problem, types).all()
        if is_alike and problem.allowed[0, types].all():
            blocks = np.repeat(types, problem.block_count[types])
            changes.append(_Change(int(problem.option_table[option]), blocks, float(saved_s[option])))
    return changes


def _apply(levelling: SiteLevelling, change: _Change, new: Ints) -> bool:
    """Hold a table in another option, whose blocks are `new`, if the sites come to be level again; return whether so.
    They are on the emptiest of the sites where its blocks are, and of the others where these are not enough."""
    old, bins = levelling.of_table(change.table), levelling.bins
    if len(new) > len(bins.load):
        return False
    own = np.unique(bins.place[old])
    others = np.setdiff1d(np.arange(len(bins.load)), own)
    own = own[np.argsort(bins.load[own].max(axis=1), kind="stable")]
    others = others[np.argsort(bins.load[others].sum(axis=1), kind="stable")]
    return levelling.replace(old, new, np.concatenate([own, others])[: len(new)])
