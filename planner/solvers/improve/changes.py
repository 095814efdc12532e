"""A placement that changes block by block, and what each change would make of the step, for all ranks at once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, place_block
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES


@dataclass(frozen=True)
class PlacementChange:
    """Items that leave, and blocks with their places that come instead."""

    step_s: float
    gone: tuple[int, ...]
    come: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Offers:
    """What a block would make of the placement on each of the ranks."""

    step_s: Floats
    """[W] infinite where the block may not be, or does not fit."""
    free: Floats
    """[M, W] bytes that each rank would have left with the block, the others without."""


class Changeable:
    """A placement as items of a block and a place each, I items, with its loads."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.block: Ints = placement.item_block.copy()
        self.place: Ints = placement.item_place.copy()
        self.state: LoadState = load_state(problem, placement)
        self.step_s = self.state.step_s()
        self.work = 0
        """Numbers that were looked at."""

    def placement(self) -> Placement:
        """Return the placement as it is now."""
        order = np.lexsort((self.place, self.block))
        return Placement(self.block[order], self.place[order])

    def make(self, change: PlacementChange) -> None:
        """Let some items go, and blocks come to the end of the others."""
        self.state, kept = self.without(list(change.gone)), np.ones(len(self.block), dtype=bool)
        kept[list(change.gone)] = False
        for block, place in change.come:
            place_block(self.problem, self.state, block, place)
        self._charge_everywhere(self.state, [block for block, _ in change.come], list(change.gone))
        block, place = np.array(change.come, dtype=np.int64).T
        self.block = np.concatenate([self.block[kept], block])
        self.place = np.concatenate([self.place[kept], place])
        self.step_s = self.state.step_s()

    # -- what there is to change -------------------------------------------------------------------------------

    @property
    def table(self) -> Ints:
        """The table [I] of each item."""
        return self.problem.table_of_block[self.block]

    @property
    def may_move(self) -> Bools:
        """The items [I] on single ranks that may change their rank alone: of tables in no group, not colocated on a
        node."""
        problem = self.problem
        is_tied = problem.option_colocated[problem.block_option[self.block]]
        return np.asarray(problem.is_on_rank[self.block] & ~problem.grouped[self.table] & ~is_tied)

    def whole_on_rank(self, table: int) -> Ints:
        """Return the blocks that hold the table as a whole on one rank."""
        own = np.arange(*self.problem.table_block_start[table : table + 2])
        return own[self._is_whole[own]]

    @cached_property
    def _is_whole(self) -> Bools:
        """Which blocks [B] are a whole table on one rank."""
        problem = self.problem
        whole = problem.option_units[problem.block_option]
        only = np.diff(problem.block_start)[problem.block_option] == 1
        fixed = (whole == 0) & only & (problem.block_count == 1)
        is_whole = np.where(whole > 0, problem.block_units == whole, fixed)
        return np.asarray(is_whole & problem.is_on_rank & problem.allowed.any(axis=0))

    # -- what changes would make of it -------------------------------------------------------------------------

    def without(self, items: list[int]) -> LoadState:
        """Return the state without some items, but for what they cost everywhere."""
        state = self.state.copy()
        for item in items:
            place_block(self.problem, state, int(self.block[item]), int(self.place[item]), -1.0)
        return state

    def cleared(self, items: list[int]) -> LoadState:
        """Return the state without some items, and without what they cost everywhere."""
        state = self.without(items)
        self._charge_everywhere(state, [], items)
        return state

    def charge(self, state: LoadState, block: int, place: int) -> None:
        """Put a block into a state, with what it costs everywhere."""
        place_block(self.problem, state, block, place)
        self._charge_everywhere(state, [block], [])

    def offers(self, rest: LoadState, items: list[int], block: int) -> Offers:
        """Return what one block in the place of some items would make of each rank; `rest` is the state without
        these."""
        problem, kind = self.problem, self.problem.kind_of_rank
        if (problem.everywhere[:, [block, *self.block[items].tolist()]] != 0).any():
            rest = rest.copy()
            self._charge_everywhere(rest, [block], items)
        load, size = problem.whole_load[kind, block].T, problem.whole_bytes[kind, block].T
        step = self._steps(np.maximum(self._others(rest.load), rest.load + load))
        free = rest.free - size
        may = problem.may_hold(block) & (free >= -ROUNDING_BYTES).all(axis=0)
        self.work += load.size
        return Offers(np.where(may, step, np.inf), free)

    def swaps(self, item: int, partners: Ints) -> tuple[Ints, Floats]:
        """Return the partners of an item on other ranks [n], all on single ranks, and the step if they changed places;
        infinite where that does not fit."""
        problem, load, free = self.problem, self.state.load, self.state.free
        own, rank = int(self.block[item]), int(self.place[item])
        others = partners[self.place[partners] != rank]
        there, theirs = self.place[others], self.block[others]
        here_kind, kind = int(problem.kind_of_rank[rank]), problem.kind_of_rank[there]
        may = problem.is_within(problem.table_of_block[theirs], np.full(len(theirs), rank))
        may &= problem.may_hold(own)[there] & problem.allowed[here_kind, theirs]
        others, there, theirs, kind = others[may], there[may], theirs[may], kind[may]
        if not len(others):
            return others, np.zeros(0)
        here = (problem.whole_load[here_kind, theirs] - problem.whole_load[here_kind, own]).T
        gone = (problem.whole_load[kind, own] - problem.whole_load[kind, theirs]).T
        same = problem.resource_of_rank[:, there] == problem.resource_of_rank[:, [rank]]
        peak = np.maximum(load[:, [rank]] + here + np.where(same, gone, 0.0), self._others_of_two(rank, there))
        peak = np.maximum(peak, load[:, there] + gone + np.where(same, here, 0.0))
        size = (problem.whole_bytes[here_kind, theirs] - problem.whole_bytes[here_kind, own]).T
        back = (problem.whole_bytes[kind, own] - problem.whole_bytes[kind, theirs]).T
        pooled = problem.pool_of_rank[:, there] == problem.pool_of_rank[:, [rank]]
        fits = free[:, [rank]] + ROUNDING_BYTES >= size + np.where(pooled, back, 0.0)
        fits &= free[:, there] + ROUNDING_BYTES >= back + np.where(pooled, size, 0.0)
        self.work += peak.size
        return others, np.where(fits.all(axis=0), self._steps(peak), np.inf)

    def swap(self, item: int, other: int, step_s: float) -> PlacementChange:
        """Return the change that puts two items in each other's place."""
        come = (int(self.block[item]), int(self.place[other])), (int(self.block[other]), int(self.place[item]))
        return PlacementChange(step_s, (item, other), come)

    def exchange(self, items: list[int], come: tuple[tuple[int, int], ...]) -> PlacementChange | None:
        """Return the change that puts any blocks in the place of some items; None where they do not fit."""
        state = self.without(items)
        for block, place in come:
            place_block(self.problem, state, block, place)
        self._charge_everywhere(state, [block for block, _ in come], items)
        self.work += state.load.size * (len(items) + len(come))
        if state.overflow_bytes() > ROUNDING_BYTES:
            return None
        return PlacementChange(state.step_s(), tuple(items), come)

    def _charge_everywhere(self, state: LoadState, come: list[int], items: list[int]) -> None:
        """Charge what blocks that come cost everywhere, less what the items did."""
        everywhere = self.problem.everywhere
        state.add_everywhere(everywhere[:, come].sum(axis=1) - everywhere[:, self.block[items]].sum(axis=1))

    # -- arithmetic --------------------------------------------------------------------------------------------

    def _steps(self, peak: Floats) -> Floats:
        """Return the step [n] that the longest load [C, n] of each column makes."""
        step_s = np.full(peak.shape[1], float(self.problem.stage_constants.sum()))
        for columns in self.columns_of_stage:
            step_s += peak[columns].max(axis=0)
        return step_s

    @cached_property
    def columns_of_stage(self) -> list[Ints]:
        """The columns of each stage that has some."""
        stage = self.problem.stage_of_column
        return [np.flatnonzero(stage == number) for number in np.unique(stage).tolist()]

    def _others(self, load: Floats) -> Floats:
        """Return of `load` [C, W] the longest on an instance that the rank does not use [C, W]."""
        resource, every = self.problem.resource_of_rank, np.arange(len(load))
        fullest = load.argmax(axis=1)
        of_fullest = resource == resource[every, fullest][:, None]
        second = np.where(of_fullest, -np.inf, load).max(axis=1)
        return np.asarray(np.where(of_fullest, second[:, None], load[every, fullest][:, None]))

    def _others_of_two(self, rank: int, ranks: Ints) -> Floats:
        """Return the longest load [C, n] on an instance that neither the rank nor the one of `ranks` [n] uses."""
        resource = self.problem.resource_of_rank
        own = resource == resource[:, [rank]]
        return np.asarray(self._others(np.where(own, -np.inf, self.state.load))[:, ranks])
