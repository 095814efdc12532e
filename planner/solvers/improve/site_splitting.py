"""Finer cuts on sites: tables over groups of ranks in more and smaller blocks, where a large one leaves room unused.

A block of half of a stage's time on one resource may load others by far less. Its site is full in that stage, and what
would fill the rest of it, and its memory, is on no site in such amounts. Many small blocks may fill another resource
there, so that each stage has something to wait for, and yet all other sites take what this one does not. That is far
more than what it costs to cut the table in two. This is the reverse of coarser cuts (`site_merging`), for a few tables.

The part that leaves has other company than the small blocks that its site has too many of then: a few sites share them
anew (`site_division`).
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.solvers.improve.site_balancing import may_swap
from planner.solvers.improve.site_levelling import SiteLevelling
from planner.solvers.improve.site_spreading import longest_columns
from planner.solvers.improve.state import SearchState

WORTHWHILE = 5e-5
"""Share of the step that all sites would gain if one were as full as the others, for which it is looked at."""
PAID = 0.5
"""Share of that gain that the finer cut may cost."""
LARGE = 0.1
"""Share of a stage's time that a block takes, for its table to be cut finer."""
BESIDE, ATTEMPTS = 2, 2
"""Further sites that share their small blocks anew with those where the finer cut is, and draws of such sites."""


@dataclass(frozen=True)
class _Cut:
    """A finer cut of a table."""

    table: int
    blocks: Ints
    """Those of the option, as often as they occur."""


def split_cuts(state: SearchState, value: Floats) -> list[int]:
    """Hold tables with a large block on a site that is less full than others in options of more blocks, by the `value`
    [B] of the option that each block names; return the tables. All blocks on groups of ranks have sites of one
    extent."""
    problem = state.problem
    cuts = _cuts(state, value)
    if not cuts:
        return []
    levelling = SiteLevelling(state, np.concatenate([cut.blocks for cut in cuts]))
    first, split = levelling.present, list[int]()
    for cut in cuts:
        new = np.arange(first, first + len(cut.blocks))
        first += len(cut.blocks)
        if _apply(state, levelling, cut, new):
            split.append(cut.table)
    if split:
        state.group_block, state.group_site = levelling.held()
        state.loads = load_state(problem, state.placement())
        state.note()
    return split


def _cuts(state: SearchState, value: Floats) -> list[_Cut]:
    """Return finer cuts of the largest block of each site that is less full than others, those of the emptiest first;
    of each table the one of the fewest blocks."""
    problem, block = state.problem, state.group_block
    extent = int(problem.block_extent[block[0]])
    unused_s, longest = _unused(state, extent)
    index = np.flatnonzero(may_swap(problem, block))
    load = problem.extremes.peak_load(0, block[index])
    share = (load / np.maximum(longest[problem.stage_of_column], 1e-15)).max(axis=1)
    load_s = load.max(axis=1)
    cuts: dict[int, _Cut] = {}
    for site in np.argsort(-unused_s, kind="stable").tolist():
        gain_s = float(unused_s[site]) / len(unused_s)
        if gain_s < WORTHWHILE * state.best_s:
            break
        here = np.flatnonzero(state.group_site[index] == site)
        largest = here[load_s[here].argmax()] if len(here) else -1
        if largest < 0 or share[largest] < LARGE:
            continue
        table = int(problem.table_of_block[block[index[largest]]])
        finer = _finer(problem, int(problem.block_option[block[index[largest]]]), extent, value, PAID * gain_s)
        if finer is not None and table not in cuts:
            cuts[table] = _Cut(table, finer)
    return list(cuts.values())


def _unused(state: SearchState, extent: int) -> tuple[Floats, Floats]:
    """Return the seconds [N] that each site has left, above the median of sites, on the resource of each stage that is
    fullest on average: what all others take more of. And [S] what stages last."""
    problem = state.problem
    full = np.maximum.reduceat(state.loads.load, problem.sites[extent].first, axis=1)
    longest = np.zeros(len(problem.stage_constants))
    np.maximum.at(longest, problem.stage_of_column, full.max(axis=1))
    fullest = longest_columns(problem, full.mean(axis=1, keepdims=True))
    unused_s = (longest[problem.stage_of_column[fullest], None] - full[fullest]).sum(axis=0)
    return unused_s - float(np.median(unused_s)), longest


def _finer(problem: Problem, option: int, extent: int, value: Floats, most_s: float) -> Ints | None:
    """Return the blocks of the option with the fewest blocks of those that are more than this one's and cost at
    most so much more, bytes included; None where there is none."""
    table, own = int(problem.option_table[option]), _types(problem, option)
    count, found = int(problem.block_count[own].sum()), None
    for other in range(problem.option_start[table], problem.option_start[table + 1]):
        types = _types(problem, other)
        blocks = np.repeat(types, problem.block_count[types])
        if len(blocks) <= count or not problem.is_on_group[types[0]]:
            continue
        is_alike = (problem.block_extent[types] == extent).all() and may_swap(problem, types).all()
        if not is_alike or not problem.allowed[0, types].all() or value[types[0]] - value[own[0]] > most_s:
            continue
        if found is None or len(blocks) < len(found):
            found = blocks
    return found


def _types(problem: Problem, option: int) -> Ints:
    return np.arange(problem.block_start[option], problem.block_start[option + 1])


def _apply(state: SearchState, levelling: SiteLevelling, cut: _Cut, new: Ints) -> bool:
    """Hold a table in another cut, whose blocks are `new`, if the sites come to be level again; return whether so. They
    are where its blocks are, and on others drawn at random; these sites, and some more, share their small blocks
    anew."""
    old, bins = levelling.of_table(cut.table), levelling.bins
    if len(new) <= len(old) or len(new) > len(bins.load) or not levelling.fits(new):
        return False
    own = np.unique(bins.place[old])
    others = np.setdiff1d(np.arange(len(bins.load)), own)
    for _ in range(ATTEMPTS):
        sites = np.concatenate([own, state.random.permutation(others)])
        if levelling.replace(old, new, sites[: len(new)], np.sort(sites[: len(new) + BESIDE])):
            return True
    return False
