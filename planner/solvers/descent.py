"""The last moves: while a block elsewhere, a table in another option, or two blocks in each other's place make the step
shorter, the best of these changes is made.

Judged by the step itself, not by a smoothed one: what is left is a local optimum. Only what stands on a resource that
alone makes a stage as long as it is can help, so few blocks are looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem import NODE, RANK, Bools, Floats, Ints, Placement, Problem, load_state, place_block
from planner.solvers.repartition import ROUNDING_BYTES

WORTH = 1e-7
"""Share of the step that a change must save."""
EQUAL = 1e-12
"""Relative difference of loads that counts as none."""
WORK = 4e8
"""Numbers that are looked at, at most: about two seconds."""


@dataclass(frozen=True)
class Change:
    """Items that leave, and blocks with their places that come instead."""

    step_s: float
    gone: tuple[int, ...]
    come: tuple[tuple[int, int], ...]


def descended(
    problem: Problem, placement: Placement, is_over: Callable[[], bool] = lambda: False
) -> tuple[Placement, float]:
    """The local optimum that the best change of all, made again and again, leads to; and its step."""
    descent = Descent(problem, placement)
    while not is_over() and descent.improve():
        pass
    return descent.placement(), descent.step_s


class Descent:
    """One placement that becomes better change by change."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self._problem = problem
        self._block: list[int] = placement.item_block.tolist()
        self._place: list[int] = placement.item_place.tolist()
        self._state = load_state(problem, placement)
        self._work = WORK
        self.step_s = self._state.step_s()

    def placement(self) -> Placement:
        """As it is now."""
        block, place = np.array(self._block, dtype=np.int64), np.array(self._place, dtype=np.int64)
        order = np.lexsort((place, block))
        return Placement(block[order], place[order])

    def improve(self) -> bool:
        """Make the best change of the first block for which there is one; False where there is none, or no work left."""
        limit_s = self.step_s * (1 - WORTH)
        for changes in self._changes():
            best = min(changes, key=lambda change: change.step_s, default=None)
            if best is not None and best.step_s < limit_s:
                self._make(best)
                return True
            if self._work <= 0:
                return False
        return False

    def _make(self, change: Change) -> None:
        for item in sorted(change.gone, reverse=True):
            del self._block[item], self._place[item]
        self._block += [block for block, _ in change.come]
        self._place += [place for _, place in change.come]
        self._state = load_state(self._problem, self.placement())
        self.step_s = self._state.step_s()

    # -- what may help -----------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[list[Change]]:
        """The best change of each sort, of each block and table that makes a stage as long as it is; the longest first."""
        problem = self._problem
        block, place = np.array(self._block, dtype=np.int64), np.array(self._place, dtype=np.int64)
        table = problem.table_of_block[block]
        free_to_move = ~problem.grouped[table]
        single = (problem.block_extent[block] == RANK) & free_to_move & ~problem.option_tied[problem.block_option[block]]
        partners, of_table = np.flatnonzero(single), _positions(table, problem.tables)
        seen: set[int] = set()
        for item in self._concerned(block, place, free_to_move).tolist():
            of, found = of_table[int(table[item])], []
            if single[item]:
                found += self._put_elsewhere([item], block, place, self._variants(item, block, len(of) == 1))
                found += self._swapped(item, block, place, partners)
            if int(table[item]) not in seen and (len(of) > 1 or not single[item]):
                found += self._put_elsewhere(of, block, place, self._whole_on_rank(int(table[item])))
                found += self._converted(of, block, place)
            seen.add(int(table[item]))
            yield found

    def _concerned(self, block: Ints, place: Ints, free_to_move: Bools) -> Ints:
        """Items that load every resource which makes some stage as long as it is, those first that load it most.

        Where two resources that no item loads both make a stage as long as it is, no single change makes it shorter.
        """
        problem, load = self._problem, self._state.load
        peak, share = load.max(axis=1), np.zeros(len(block))
        on_node = problem.block_extent[block] == NODE
        rank = np.where(on_node, problem.node_start[np.where(on_node, place, 0)], np.maximum(place, 0))
        kind = problem.kind_of_rank[rank]
        for columns in self._columns_of_stage:
            longest = float(peak[columns].max())
            if longest <= 0:
                continue
            of_stage = np.full(len(block), np.inf)
            for column in columns[peak[columns] >= longest * (1 - EQUAL)].tolist():
                full = load[column] >= longest * (1 - EQUAL)
                is_one = len(np.unique(problem.resource_of_rank[column][full])) == 1
                own = problem.whole_load[kind, block, column] * (self._is_on(block, place, full) & is_one)
                of_stage = np.minimum(of_stage, own + problem.everywhere[kind, block, column])
            share = np.maximum(share, of_stage / longest)
        found = np.flatnonzero((share > EQUAL) & free_to_move)
        return found[np.argsort(-share[found], kind="stable")]

    def _is_on(self, block: Ints, place: Ints, ranks: Bools) -> Bools:
        """[I] items that some of the ranks hold a part of."""
        problem = self._problem
        extent, on_node = problem.block_extent[block], np.logical_or.reduceat(ranks, problem.node_start[:-1])
        here = np.where(extent == RANK, ranks[np.maximum(place, 0)], True)
        return np.asarray(here & np.where(extent == NODE, on_node[np.where(extent == NODE, place, 0)], True))

    # -- single ranks ------------------------------------------------------------------------------------------

    def _put_elsewhere(self, items: list[int], block: Ints, place: Ints, variants: Ints) -> Iterator[Change]:
        """One block of each variant in the place of some items, on the rank where that is best."""
        problem, whole = self._problem, self._state.copy()
        for item in items:
            place_block(problem, whole, int(block[item]), int(place[item]), -1.0)
        left = problem.everywhere[:, block[items]].sum(axis=1)
        reach = problem.rank_sets[problem.table_rank_set[problem.table_of_block[block[items[0]]]]]
        for variant in variants.tolist():
            more = problem.everywhere[:, variant] - left
            state = whole
            if more.any():
                state = whole.copy()
                state.add_everywhere(more)
            kind = problem.kind_of_rank
            load, size = problem.whole_load[kind, variant].T, problem.whole_bytes[kind, variant].T
            others = self._others(state.load)
            step = self._steps(np.maximum(others, state.load + load))
            may = reach & problem.allowed[kind, variant] & (state.free + ROUNDING_BYTES >= size).all(axis=0)
            step = np.where(may, step, np.inf)
            rank = int(step.argmin())
            self._work -= load.size
            yield Change(float(step[rank]), tuple(items), ((variant, rank),))

    def _variants(self, item: int, block: Ints, is_alone: bool) -> Ints:
        """The block itself; of a table in one block, also what else holds it on one rank."""
        if not is_alone:
            return block[[item]]
        return self._whole_on_rank(int(self._problem.table_of_block[block[item]]))

    def _whole_on_rank(self, table: int) -> Ints:
        """Blocks that hold the table as a whole on one rank."""
        problem = self._problem
        own = np.arange(*problem.table_block_start[table : table + 2])
        return own[self._is_whole[own]]

    @cached_property
    def _is_whole(self) -> Bools:
        """[B]"""
        problem = self._problem
        whole = problem.option_units[problem.block_option]
        only = np.diff(problem.block_start)[problem.block_option] == 1
        fixed = (whole == 0) & only & (problem.block_count == 1)
        is_whole = np.where(whole > 0, problem.block_units == whole, fixed)
        return np.asarray(is_whole & (problem.block_extent == RANK) & problem.allowed.any(axis=0))

    def _swapped(self, item: int, block: Ints, place: Ints, partners: Ints) -> Iterator[Change]:
        """A block and another one in each other's place."""
        problem, load, free = self._problem, self._state.load, self._state.free
        own, rank = int(block[item]), int(place[item])
        within = problem.rank_sets[problem.table_rank_set]
        table = problem.table_of_block
        others = partners[place[partners] != rank]
        there, theirs = place[others], block[others]
        here_kind, kind = problem.kind_of_rank[rank], problem.kind_of_rank[there]
        may = within[table[theirs], rank] & within[table[own]][there]
        may &= problem.allowed[here_kind, theirs] & problem.allowed[kind, own]
        others, there, theirs, kind = others[may], there[may], theirs[may], kind[may]
        if not len(others):
            return
        here = (problem.whole_load[here_kind, theirs] - problem.whole_load[here_kind, own]).T
        gone = (problem.whole_load[kind, own] - problem.whole_load[kind, theirs]).T
        same = problem.resource_of_rank[:, there] == problem.resource_of_rank[:, [rank]]
        peak = np.maximum(load[:, [rank]] + here + np.where(same, gone, 0.0), self._others_of_two(rank, there))
        peak = np.maximum(peak, load[:, there] + gone + np.where(same, here, 0.0))
        step = self._steps(peak)
        size = (problem.whole_bytes[here_kind, theirs] - problem.whole_bytes[here_kind, own]).T
        back = (problem.whole_bytes[kind, own] - problem.whole_bytes[kind, theirs]).T
        pooled = problem.pool_of_rank[:, there] == problem.pool_of_rank[:, [rank]]
        fits = free[:, [rank]] + ROUNDING_BYTES >= size + np.where(pooled, back, 0.0)
        fits &= free[:, there] + ROUNDING_BYTES >= back + np.where(pooled, size, 0.0)
        step = np.where(fits.all(axis=0), step, np.inf)
        best = int(step.argmin())
        self._work -= peak.size
        come = (own, int(there[best])), (int(theirs[best]), rank)
        yield Change(float(step[best]), (item, int(others[best])), come)

    # -- options -----------------------------------------------------------------------------------------------

    def _converted(self, items: list[int], block: Ints, place: Ints) -> Iterator[Change]:
        """A table in several blocks with all of them in another free option, where they are."""
        problem = self._problem
        option = int(problem.block_option[block[items[0]]])
        if len(items) == 1 or not problem.option_units[option]:
            return
        table, units = int(problem.option_table[option]), problem.block_units[block[items]]
        for other in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
            if other == option or problem.option_units[other] != problem.option_units[option]:
                continue
            types = np.arange(*problem.block_start[other : other + 2])
            at = np.minimum(np.searchsorted(problem.block_units[types], units), len(types) - 1)
            kind = problem.kind_of_rank[place[items]]
            if (problem.block_units[types[at]] == units).all() and problem.allowed[kind, types[at]].all():
                pairs = zip(types[at].tolist(), place[items].tolist(), strict=True)
                yield from self._tried(items, block, place, tuple(pairs))

    def _tried(self, items: list[int], block: Ints, place: Ints, come: tuple[tuple[int, int], ...]) -> Iterator[Change]:
        """Some blocks in the place of some items, if they fit."""
        problem, state = self._problem, self._state.copy()
        for item in items:
            place_block(problem, state, int(block[item]), int(place[item]), -1.0)
        for each, where in come:
            place_block(problem, state, each, where)
        more = problem.everywhere[:, [each for each, _ in come]].sum(axis=1)
        state.add_everywhere(more - problem.everywhere[:, block[items]].sum(axis=1))
        self._work -= state.load.size * (len(items) + len(come))
        if state.overflow_bytes() <= ROUNDING_BYTES:
            yield Change(state.step_s(), tuple(items), come)

    # -- arithmetic --------------------------------------------------------------------------------------------

    def _steps(self, peak: Floats) -> Floats:
        """[n] the step, of the longest load [C, n] of each column."""
        problem = self._problem
        found = np.full(peak.shape[1], float(problem.stage_constants.sum()))
        for columns in self._columns_of_stage:
            found += peak[columns].max(axis=0)
        return found

    @cached_property
    def _columns_of_stage(self) -> list[Ints]:
        stage = self._problem.stage_of_column
        return [np.flatnonzero(stage == number) for number in np.unique(stage).tolist()]

    def _others(self, load: Floats) -> Floats:
        """[C, W] of `load` [C, W], the longest on an instance that the rank does not use."""
        problem = self._problem
        every = np.arange(len(load))
        fullest = load.argmax(axis=1)
        of_fullest = problem.resource_of_rank == problem.resource_of_rank[every, fullest][:, None]
        second = np.where(of_fullest, -np.inf, load).max(axis=1)
        return np.where(of_fullest, second[:, None], load[every, fullest][:, None])

    def _others_of_two(self, rank: int, ranks: Ints) -> Floats:
        """[C, n] the longest load on an instance that neither the rank nor the one of `ranks` [n] uses."""
        problem = self._problem
        own = problem.resource_of_rank == problem.resource_of_rank[:, [rank]]
        return self._others(np.where(own, -np.inf, self._state.load))[:, ranks]


def _positions(table: Ints, tables: int) -> list[list[int]]:
    """The items of each table."""
    found: list[list[int]] = [[] for _ in range(tables)]
    for item, of in enumerate(table.tolist()):
        found[of].append(item)
    return found
