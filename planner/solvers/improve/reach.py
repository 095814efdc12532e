"""Recuts of tables over groups of ranks (nodes, say): in another number of blocks, on other groups.

Local search moves and cuts blocks of single ranks, and moves those of groups; how many of these a table has stays.
Other numbers may leave all ranks a whole step of room. They are compared by the step that their wide blocks allow, were
all blocks of single ranks dealt out as well as can be.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, place_everywhere, place_on_groups
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.load_steps import NEAR, amounts
from planner.solvers.improve.respread import ROOM
from planner.solvers.improve.wide import WideBlocks

TABLES = 64
"""Tables over groups of ranks that are tried in other cuts: those that load their ranks most."""
SQUARINGS = 3
"""Blocks go to the sites on which the sum of loads to the power of 2 to this one grows least."""


@dataclass(frozen=True)
class Recut:
    """A placement with one table over groups of ranks in another option, and the step that it may come to.

    It need not fit.
    """

    reach_s: float
    placement: Placement


class Reach:
    """Other ways to cut tables over groups of ranks, of one problem."""

    def __init__(self, problem: Problem, wide: WideBlocks) -> None:
        self._problem, self._wide = problem, wide

    def recuts(self, placement: Placement) -> list[Recut]:
        """Return every other way to cut one of the largest tables that are over groups of ranks, on the sites that are
        least loaded by wide blocks; the most promising first."""
        problem = self._problem
        on_rank, table = self._on_rank(placement), problem.table_of_block[placement.item_block]
        moved, recuts = self._moved(placement, on_rank), list[Recut]()
        for number in self._largest_over_groups(placement).tolist():
            own = table == number
            rest = Placement(placement.item_block[~own], placement.item_place[~own])
            base = self._base(rest, on_rank[~own])
            for option in self._group_wide[number]:
                if option == problem.block_option[placement.item_block[own][0]]:
                    continue
                blocks, places = self._placed(base, option)
                if len(places):
                    state = base.copy()
                    place_on_groups(problem, state, blocks, places)
                    place_everywhere(problem, state, blocks)
                    block, place = np.append(rest.item_block, blocks), np.append(rest.item_place, places)
                    order = np.lexsort((place, block))
                    recuts.append(Recut(self._step_s(state.load, moved), Placement(block[order], place[order])))
        return sorted(recuts, key=lambda recut: recut.reach_s)

    def _largest_over_groups(self, placement: Placement) -> Ints:
        """Return the tables over groups of ranks that may be cut apart from others and ask for the most seconds."""
        problem, block = self._problem, placement.item_block
        over_groups = block[problem.is_on_group[block]]
        seconds = (problem.fixed[0, over_groups] + problem.by_rows[0, over_groups]).sum(axis=1)
        of_table = np.bincount(problem.table_of_block[over_groups], weights=seconds, minlength=problem.tables)
        of_table[problem.grouped] = 0.0
        largest = np.argsort(-of_table, kind="stable")[:TABLES]
        return np.sort(largest[of_table[largest] > 0])

    # -- loads ---------------------------------------------------------------------------------------------------

    def _on_rank(self, placement: Placement) -> Bools:
        """Return which items [I] are on single ranks."""
        return self._problem.is_on_rank[placement.item_block]

    def _base(self, placement: Placement, on_rank: Bools) -> LoadState:
        """Return what wide blocks load, and what blocks of single ranks cost everywhere."""
        wide = Placement(placement.item_block[~on_rank], placement.item_place[~on_rank])
        state = load_state(self._problem, wide)
        place_everywhere(self._problem, state, placement.item_block[on_rank])
        return state

    def _moved(self, placement: Placement, on_rank: Bools) -> Floats:
        """Return the seconds [C] of all blocks of single ranks together."""
        block, rank = placement.item_block[on_rank], placement.item_place[on_rank]
        return np.asarray(self._problem.whole_load[self._problem.kind_of_rank[rank], block].sum(axis=0))

    # -- wide blocks ---------------------------------------------------------------------------------------------

    @cached_property
    def _group_wide(self) -> list[list[int]]:
        """The options of each table whose blocks are all over groups of ranks of one extent and may be there."""
        problem = self._problem
        fit = problem.is_on_group & problem.allowed.any(axis=0)
        options = np.logical_and.reduceat(fit, problem.block_start[:-1])
        return [
            [option for option in range(first, last) if options[option]]
            for first, last in zip(problem.option_start[:-1].tolist(), problem.option_start[1:].tolist(), strict=True)
        ]

    def _placed(self, base: LoadState, option: int) -> tuple[Ints, Ints]:
        """Return the option's blocks, the widest first, each on another site; none where there is no room."""
        problem = self._problem
        types = np.arange(*problem.block_start[option : option + 2])
        types = types[np.argsort(-problem.fixed[:, types].sum(axis=(0, 2)), kind="stable")]
        aim = np.maximum(base.load.max(axis=1), 1e-15)[:, None]
        now, sites = _powers(base.load / aim), problem.sites_of(int(types[0]))
        taken = np.zeros(sites.count, dtype=bool)
        places: list[int] = []
        for block in types.tolist():
            load, size = self._wide.total(block)
            then = _powers((base.load + load) / aim)
            fits = problem.may_hold(block) & (base.free >= size).all(axis=0)
            growth = np.where(fits, (then - now).sum(axis=0), np.inf)
            of_site = np.where(taken, np.inf, sites.sum(growth))
            best = np.argsort(of_site, kind="stable")[: int(problem.block_count[block])]
            if len(best) < problem.block_count[block] or np.isinf(of_site[best]).any():
                return types[:0], types[:0]
            taken[best] = True
            places += best.tolist()
        return np.repeat(types, problem.block_count[types]), np.array(places, dtype=np.int64)

    # -- levels --------------------------------------------------------------------------------------------------

    def _step_s(self, base: Floats, moved: Floats) -> float:
        """Return the step at `base` [C, W] loads and `moved` [C] seconds that are shared out."""
        problem = self._problem
        longest = np.zeros(len(problem.stage_constants))
        for column, stage in enumerate(problem.stage_of_column.tolist()):
            load = base[column][self._instances[column]]
            level_s = _level(load, float(moved[column]), float(self._amount[column]))
            longest[stage] = max(longest[stage], level_s)
        return float((longest + problem.stage_constants).sum())

    @cached_property
    def _amount(self) -> Floats:
        return amounts(self._problem)

    @cached_property
    def _instances(self) -> list[Ints]:
        """The first rank that may be used of each instance, of each column."""
        ranks = np.flatnonzero(self._problem.reach)
        return [ranks[np.unique(of[ranks], return_index=True)[1]] for of in self._problem.resource_of_rank]


def _powers(loads: Floats) -> Floats:
    """Return the loads squared that often: many times as fast as a power of them."""
    loads = np.maximum(loads, 0.0)  # below it something hides the load
    for _ in range(SQUARINGS):
        loads = loads * loads
    return loads


def _level(base: Floats, moved_s: float, amount_s: float) -> float:
    """Return the lowest level under which `moved_s` find room above the `base` [n]: as if poured, or in whole
    amounts."""
    if not moved_s:
        return float(base.max())
    load = np.sort(base)
    poured = (moved_s + load.cumsum()) / np.arange(1, len(load) + 1)
    under = np.flatnonzero(poured <= np.append(load[1:], np.inf))
    level_s = max(float(poured[under[0]]), float(load[-1]))
    if not amount_s:
        return level_s
    offset = np.unique(np.round(np.mod(base, amount_s), 15))
    first = offset + np.ceil((level_s - offset) / amount_s - NEAR) * amount_s
    for tried_s in np.sort(np.concatenate([first, first + amount_s])).tolist():
        room = np.floor((tried_s - base) / amount_s + NEAR).sum() * amount_s
        if room >= moved_s + ROOM * amount_s * len(base):
            return float(tried_s)
    return level_s + amount_s
