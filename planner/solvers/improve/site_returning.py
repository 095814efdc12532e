"""Tables from all ranks back to sites, where sites' loads come in steps: the reverse of `site_spreading`.

A stage ends on a step, and sites below it have room for whole columns. Up to that room a table's columns cost nothing
there, while on all ranks it loads other stages and memories of each. Tables that lose most on all ranks come to sites,
as many as there is room for; swaps level the rest.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.load_steps import NEAR, common_amount
from planner.solvers.improve.site_balancing import may_swap
from planner.solvers.improve.site_levelling import SiteLevelling
from planner.solvers.improve.site_spreading import longest_columns
from planner.solvers.improve.state import SearchState

SPARED = 0.08
"""Share of the sites on which a step of each column stays free: swaps need some room."""
USABLE = 2
"""Steps of a site that tables from all ranks may fill: further ones are there for a reason."""
WORTHWHILE = 1e-5
"""Share of the step that the tables must gain together."""


@dataclass(frozen=True)
class _Room:
    """Steps that sites have left below their stages' longest. D columns, at most one of each stage; N sites."""

    columns: Ints
    """[D]"""
    step_s: Floats
    """[D] seconds of one step."""
    steps: Ints
    """[N, D]"""


@dataclass(frozen=True)
class _Candidates:
    """Blocks over sites of tables on all ranks, those first that gain most for the steps that they take."""

    blocks: Ints
    """[n]"""
    steps: Ints
    """[n, D]"""
    gain_s: Floats
    """[n] by which the step is shorter if all is level."""


def return_to_sites(state: SearchState, value: Floats) -> bool:
    """Hold tables on sites instead of all ranks, those that gain most by the `value` [B] of the option that each block
    names, where sites have room below the step that a stage ends on; return whether any are. All blocks on groups of
    ranks have sites of one extent."""
    room = _room(state)
    chosen = None if room is None else _chosen(state, _candidates(state, value, room), room)
    if chosen is None:
        return False
    before = state.group_block, state.group_site, state.settled, state.loads
    _take_back(state, *chosen)
    levelling = SiteLevelling(state, aims=before[-1].stage_seconds() - state.problem.stage_constants)
    if levelling.level_again():
        state.group_block, state.group_site = levelling.held()
        state.loads = load_state(state.problem, state.placement())
        state.note()
        return True
    state.group_block, state.group_site, state.settled, state.loads = before
    return False


def _extent(state: SearchState) -> int:
    """Return the extent of all blocks on groups of ranks."""
    return int(state.problem.block_extent[state.group_block[0]])


def _room(state: SearchState) -> _Room | None:
    """Return the steps that sites have left; None where their loads do not come in steps."""
    problem = state.problem
    full = np.maximum.reduceat(state.loads.load, problem.sites[_extent(state)].first, axis=1)
    load = problem.extremes.peak_load(0, state.group_block[may_swap(problem, state.group_block)])
    longest = longest_columns(problem, full)
    amount = {column: common_amount(load[:, column]) for column in longest}
    columns = np.array([column for column in longest if amount[column]], dtype=np.int64)
    if not len(columns):
        return None
    step_s = np.array([amount[column] for column in columns.tolist()])
    left = (full[columns].max(axis=1, keepdims=True) - full[columns]) / step_s[:, None]
    return _Room(columns, step_s, np.minimum(np.floor(left + NEAR), USABLE).astype(np.int64).T)


def _candidates(state: SearchState, value: Floats, room: _Room) -> _Candidates:
    """Return the cheapest block over one site of each table on all ranks that gains something there."""
    problem, first = state.problem, state.problem.block_start[:-1]
    own = np.full(problem.tables, np.inf)
    wide = state.settled.item_block[problem.is_world_wide[state.settled.item_block]]
    np.minimum.at(own, problem.table_of_block[wide], value[wide])
    is_single = (problem.block_count[first] == 1) & (np.diff(problem.block_start) == 1) & problem.is_on_group[first]
    is_single &= (problem.block_extent[first] == _extent(state)) & problem.allowed[0, first]
    blocks = first[is_single & np.isfinite(own)[problem.option_table]]
    blocks = blocks[may_swap(problem, blocks)]
    blocks = blocks[np.lexsort((value[blocks], problem.table_of_block[blocks]))]
    _, cheapest = np.unique(problem.table_of_block[blocks], return_index=True)
    blocks = blocks[cheapest]
    load = problem.extremes.peak_load(0, blocks, room.columns)
    steps = np.ceil(load / room.step_s - NEAR).astype(np.int64)
    gain_s = own[problem.table_of_block[blocks]] - value[blocks] + load.sum(axis=1) / len(room.steps)
    order = np.argsort(-gain_s / np.maximum(steps.max(axis=1, initial=0), 1), kind="stable")
    order = order[gain_s[order] > 0]
    return _Candidates(blocks[order], steps[order], gain_s[order])


def _chosen(state: SearchState, candidates: _Candidates, room: _Room) -> tuple[Ints, Ints] | None:
    """Return the blocks that sites have room for, and the site of each: of those with as many steps left the one whose
    fullest resource or memory is least full then. None where they do not gain enough."""
    levelling, left = SiteLevelling(state, candidates.blocks), room.steps.copy()
    fullness, more = levelling.bins.load.copy(), levelling.bins.item_load[levelling.present :]
    spared, taken, sites = SPARED * len(left), list[int](), list[int]()
    for at, steps in enumerate(candidates.steps):
        if (left.sum(axis=0) - steps < spared).any():
            continue
        fits = (left >= steps).all(axis=1)
        if fits.any():
            site = int(np.where(fits, (fullness + more[at]).max(axis=1), np.inf).argmin())
            left[site] -= steps
            fullness[site] += more[at]
            taken.append(at)
            sites.append(site)
    if candidates.gain_s[taken].sum() < WORTHWHILE * state.loads.step_s():
        return None
    return candidates.blocks[taken], np.array(sites, dtype=np.int64)


def _take_back(state: SearchState, blocks: Ints, sites: Ints) -> None:
    """Put blocks on sites instead of what their tables have on all ranks."""
    problem, settled = state.problem, state.settled
    kept = ~np.isin(problem.table_of_block[settled.item_block], problem.table_of_block[blocks])
    state.settled = Placement(settled.item_block[kept], settled.item_place[kept])
    state.group_block, state.group_site = np.append(state.group_block, blocks), np.append(state.group_site, sites)
    state.loads = load_state(problem, state.placement())
