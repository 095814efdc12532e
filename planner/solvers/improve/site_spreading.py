"""Tables from sites to all ranks, where sites' loads come in steps: what respread is to single ranks.

What a site sends is a whole number of columns, mostly of several at once. Where most sites stand on one step and their
mean is not far above the next one below, no swap brings the longest down there. Tables that cost least on all ranks
leave the sites then, as many as the mean is above that step; swaps level what is left.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers.bound.load_steps import NEAR, common_amount, level_below
from planner.solvers.improve.site_balancing import may_swap
from planner.solvers.improve.site_levelling import SiteLevelling
from planner.solvers.improve.state import SearchState

ROOM = 0.08
"""Share of a step by which the mean is brought below it: swaps need some room."""
USABLE = 1.0
"""Steps of a site below the level that others' columns are expected to fill: further ones are there for a reason."""
WORTH = 0.25
"""Share of what the steps alone would save that must be left once all ranks hold the tables."""


@dataclass(frozen=True)
class _Steps:
    """Columns whose loads come in steps and may come down to the next one; at most one of each stage."""

    columns: Ints
    """[D]"""
    above_s: Floats
    """[D] seconds that all sites together must give up."""
    saved_s: Floats
    """[D] seconds from the longest to the next step."""


def spread_from_sites(state: SearchState, value: Floats) -> bool:
    """Hold tables on all ranks instead of sites, those that cost least by the `value` [B] of the option that each block
    names, where that lets a stage come down by a step and saves more than it costs; return whether any are."""
    steps = _steps(state)
    chosen = None if steps is None else _cheapest(state, value, steps)
    if steps is None or chosen is None:
        return False
    before = state.group_block, state.group_site, state.settled, state.loads
    relief_s = _take_off(state, *chosen, steps)
    if _saved_s(state, before[-1].load, steps, relief_s) >= WORTH * float(steps.saved_s.sum()):
        levelling = SiteLevelling(state)
        if levelling.level(np.zeros(0, dtype=np.int64)):
            state.group_block, state.group_site = levelling.held()
            state.loads = load_state(state.problem, state.placement())
            state.note()
            return True
    state.group_block, state.group_site, state.settled, state.loads = before
    return False


def _steps(state: SearchState) -> _Steps | None:
    """Return what keeps stages above the next step; None where nothing does."""
    problem = state.problem
    sites = problem.sites[int(problem.block_extent[state.group_block[0]])]
    full = np.maximum.reduceat(state.loads.load, sites.first, axis=1)
    load = problem.extremes.peak_load(0, state.group_block[may_swap(problem, state.group_block)])
    columns, above_s, saved_s = [], [], []
    for column in longest_columns(problem, full):
        step_s, peak_s = common_amount(load[:, column]), float(full[column].max())
        level_s = level_below(full[column], step_s, peak_s - 2 * NEAR * step_s) if step_s else None
        if level_s is None:
            continue
        usable_s = np.minimum(np.maximum(level_s - full[column], 0.0), USABLE * step_s)
        above = float(np.maximum(full[column] - level_s, 0.0).sum() - usable_s.sum()) + ROOM * step_s * sites.count
        if above > 0:
            columns.append(column)
            above_s.append(above)
            saved_s.append(peak_s - level_s)
    return _Steps(np.array(columns), np.array(above_s), np.array(saved_s)) if columns else None


def longest_columns(problem: Problem, load: Floats) -> list[int]:
    """Return the column of each stage whose largest load [C, n] is longest."""
    peak = load.max(axis=1)
    members = [np.flatnonzero(problem.stage_of_column == stage) for stage in np.unique(problem.stage_of_column)]
    return [int(of_stage[peak[of_stage].argmax()]) for of_stage in members]


def _cheapest(state: SearchState, value: Floats, steps: _Steps) -> tuple[Ints, Ints] | None:
    """Return the tables that cost least for what sites get rid of, and their blocks on all ranks; None where all tables
    together are too few."""
    problem = state.problem
    block = state.group_block[may_swap(problem, state.group_block)]
    table = problem.table_of_block[block]
    relief_s = np.zeros((problem.tables, len(steps.columns)))
    np.add.at(relief_s, table, problem.extremes.peak_load(0, block, steps.columns))
    share = (relief_s / steps.above_s).min(axis=1)
    own_value = np.full(problem.tables, np.inf)
    own_value[table] = value[block]
    wide, wide_value = _world_wide(problem, value)
    possible = np.flatnonzero((wide >= 0) & (share > 0))
    cost_s = np.maximum(wide_value[possible] - own_value[possible], 0.0)
    possible = possible[np.argsort(cost_s / share[possible], kind="stable")]
    count = int(np.searchsorted(np.cumsum(share[possible]), 1.0)) + 1
    if count > len(possible):
        return None
    first = problem.block_start[wide[possible[:count]]]
    return possible[:count], np.concatenate([problem.blocks_of_choice(at) for at in first.tolist()])


def _world_wide(problem: Problem, value: Floats) -> tuple[Ints, Floats]:
    """Return the option [T] of each table that costs least on all ranks, -1 where it has none, and what it costs."""
    first = problem.block_start[:-1]
    is_wide = np.logical_and.reduceat(problem.is_world_wide & problem.allowed[0], first)
    options = np.flatnonzero(is_wide)
    options = options[np.argsort(-value[first[options]], kind="stable")]
    wide, least = np.full(problem.tables, -1), np.full(problem.tables, np.inf)
    wide[problem.option_table[options]] = options
    least[problem.option_table[options]] = value[first[options]]
    return wide, least


def _take_off(state: SearchState, tables: Ints, blocks: Ints, steps: _Steps) -> Floats:
    """Put the world-wide `blocks` in the place of what `tables` have on sites; return the seconds [D] that these get
    rid of."""
    problem = state.problem
    gone = np.isin(problem.table_of_block[state.group_block], tables)
    relief_s = problem.extremes.peak_load(0, state.group_block[gone], steps.columns).sum(axis=0)
    state.group_block, state.group_site = state.group_block[~gone], state.group_site[~gone]
    state.settled = Placement(
        np.append(state.settled.item_block, blocks), np.append(state.settled.item_place, np.full(len(blocks), NOWHERE))
    )
    state.loads = load_state(problem, state.placement())
    return np.asarray(relief_s)


def _saved_s(state: SearchState, before: Floats, steps: _Steps, relief_s: Floats) -> float:
    """Return the seconds by which the step is shorter than with the loads `before` [C, W], once the sites are on the
    next step and all else is level: what all ranks take more counts in full."""
    problem = state.problem
    sites = problem.sites[int(problem.block_extent[state.group_block[0]])].count
    more_s = (state.loads.load - before).mean(axis=1)
    elsewhere = [column for column in longest_columns(problem, before) if column not in steps.columns]
    paid_s = more_s[steps.columns] + relief_s / sites
    return float((steps.saved_s - paid_s).sum() - more_s[elsewhere].sum())
