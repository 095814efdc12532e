"""Lexicographic tie-breaking: of plans that are nearly as fast, the one that is best otherwise.

Within `GIVE` of the best step: first no rank fuller than `CROWDED`, then few blocks, whole tables first, then a fullest
rank that is less full. Each of these is sought by changes of one table or two blocks, which spoil nothing that comes
before it.

This is lexicographic optimization with a tolerance in the first objective, the step.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.improve.changes import Changeable, PlacementChange
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome

GIVE = 1e-3
"""Share of the best step that may be given up."""
CROWDED = 0.9
"""Share of a rank's usable memory above which it is crowded: what a run needs beyond the estimate finds no room."""
NEAR = 1e-9
"""Relative amount that is kept free of limits for rounding."""
PARTS = (2, 4, 8)
"""Equal blocks that a table in more of them is tried in."""
LOWER = 0.01
"""Share of a rank's memory by which the fullest one must become emptier."""
MOST_WORK = 1e6
"""Numbers that are looked at for each aim, at most."""


@dataclass(frozen=True)
class Finished:
    """An outcome, and what was given up for it."""

    outcome: Outcome
    best_step_s: float | None
    """Before; None where there is no plan."""


def finished(problem: Problem, outcome: Outcome, memory: int = 0, longest_s: float = math.inf) -> Finished:
    """Return the plan of an outcome made tidier; `memory` is that of the accelerators.

    A step of at most `longest_s` stays one. A plan that was proven optimal stays so: of that, only as much is given up
    as the word allows.
    """
    if outcome.placement is None or outcome.step_s is None or outcome.bound is None:
        return Finished(outcome, None)
    best_s = outcome.step_s
    is_optimal = outcome.status == "optimal"
    limit_s = max(best_s, outcome.bound.seconds * (1 + OPTIMAL_GAP)) if is_optimal else best_s * (1 + GIVE)
    limit_s = max(best_s, min(limit_s, longest_s))
    finish = _Finish(problem, outcome.placement, limit_s * (1 - NEAR) if limit_s > best_s else limit_s, memory)
    finish.run()
    placement = finish.now.placement()
    state = load_state(problem, placement)
    if state.step_s() > limit_s or state.overflow_bytes() > load_state(problem, outcome.placement).overflow_bytes():
        return Finished(outcome, best_s)
    return Finished(replace(outcome, placement=placement, step_s=state.step_s()), best_s)


class _Finish:
    """One placement, changed as long as it becomes better and its step stays below a limit."""

    def __init__(self, problem: Problem, placement: Placement, limit_s: float, memory: int) -> None:
        self.now = Changeable(problem, placement)
        self._problem, self._memory = problem, memory
        self._limit_s = max(limit_s, self.now.step_s)
        pool = problem.pool_of_rank[memory]
        self._capacity: Floats = np.maximum(problem.pool_capacity[memory], 1.0)[pool]
        self._work = 0.0

    def run(self) -> None:
        """Pursue one aim after the other."""
        for aim in (self._empty_crowded_ranks, self._merge, self._empty_fullest_rank):
            self._work = self.now.work + MOST_WORK
            aim()

    @property
    def _has_work(self) -> bool:
        return self.now.work < self._work

    def _share(self, free: Floats) -> Floats:
        """Return the share of each rank's memory that is taken [W]; `free` is [M, W]."""
        return np.asarray(1.0 - free[self._memory] / self._capacity)

    def _best(self, items: list[int], blocks: Ints, most: Floats) -> tuple[float, PlacementChange] | None:
        """Return one of the blocks in the place of some items, on the rank that is least full then, within the limit;
        with the share of its memory. `most` [W] is that to which each rank may be filled."""
        rest, best = self.now.without(items), None
        for block in blocks.tolist():
            offers = self.now.offers(rest, items, block)
            share = self._share(offers.free)
            fit = (offers.step_s <= self._limit_s) & (share <= most)
            if not fit.any():
                continue
            rank = int(np.where(fit, share, np.inf).argmin())
            if best is None or share[rank] < best[0]:
                change = PlacementChange(float(offers.step_s[rank]), tuple(items), ((block, rank),))
                best = float(share[rank]), change
        return best

    # -- crowded ranks -----------------------------------------------------------------------------------------

    def _empty_crowded_ranks(self) -> None:
        """Move blocks off ranks that are crowded, the fullest first, onto others that do not become so."""
        hopeless: set[int] = set()
        while self._has_work:
            share = self._share(self.now.state.free)
            share[list(hopeless)] = 0.0
            rank = int(share.argmax())
            if share[rank] <= CROWDED:
                return
            if not self._empty(rank, CROWDED):
                hopeless.add(rank)

    def _empty(self, rank: int, most: float) -> bool:
        """Move a block off a rank, or exchange it for a smaller one, so that no rank it goes to is fuller than `most`:
        the smallest that is enough, or else the largest."""
        now, capacity = self.now, self._capacity[rank]
        size = self._sizes()
        here = np.flatnonzero(now.may_move & (now.place == rank) & (size > 0))
        excess = (float(self._share(now.state.free)[rank]) - most) * capacity
        enough = size[here] >= excess
        order = np.lexsort((np.where(enough, size[here], -size[here]), ~enough))
        limits = np.full(self._problem.world, most)
        limits[rank] = -np.inf
        for item in here[order].tolist():
            offer = self._best([item], now.block[[item]], limits)
            if offer is not None:
                now.make(offer[1])
                return True
            if not self._has_work:
                return False
        return any(self._exchanged(item, size, most) for item in here[order].tolist() if self._has_work)

    def _exchanged(self, item: int, size: Floats, most: float) -> bool:
        """Let an item and a smaller one change places, where neither rank is fuller than `most` then, or the item's own
        is emptied as much as can be."""
        now, rank = self.now, int(self.now.place[item])
        partners = np.flatnonzero(now.may_move & (size < size[item]))
        others, step = now.swaps(item, partners)
        share, there = self._share(now.state.free), now.place[others]
        taken = share[there] + (size[item] - size[others]) / self._capacity[there]
        gained = (size[item] - size[others]) / self._capacity[rank]
        fit = (step <= self._limit_s) & (taken <= most) & (gained >= LOWER)
        if not fit.any():
            return False
        enough = share[rank] - gained <= most
        best = int(np.where(fit, np.where(enough, 1.0 - taken, gained - 1.0), -np.inf).argmax())
        now.make(now.swap(item, int(others[best]), float(step[best])))
        return True

    def _sizes(self) -> Floats:
        """Return the bytes [I] of each item on a single rank; 0 of others."""
        now, problem = self.now, self._problem
        on_rank = problem.is_on_rank[now.block]
        kind = problem.kind_of_rank[np.where(on_rank, now.place, 0)]
        return np.where(on_rank, problem.whole_bytes[kind, now.block, self._memory], 0.0)

    def _empty_fullest_rank(self) -> None:
        """Make the fullest rank emptier, as long as that makes none as full as it was."""
        while self._has_work:
            share = self._share(self.now.state.free)
            rank = int(share.argmax())
            if not self._empty(rank, float(share[rank]) - LOWER):
                return

    # -- blocks ------------------------------------------------------------------------------------------------

    def _merge(self) -> None:
        """Hold tables in fewer blocks, those in most blocks first: whole, else in halves and so on, else by joining
        two."""
        problem, now = self._problem, self.now
        count = np.bincount(now.table, minlength=problem.tables)
        for table in np.argsort(-count, kind="stable").tolist():
            if count[table] < 2 or problem.grouped[table] or not self._has_work:
                continue
            items = np.flatnonzero(now.table == table).tolist()
            most = np.maximum(self._share(now.state.free), CROWDED)
            whole = self._best(items, self._whole(items), most)
            if whole is not None:
                now.make(whole[1])
                continue
            if not now.may_move[items].all() or not problem.block_is_splittable[now.block[items]].all():
                continue
            if not any(self._cut(items, parts, most) for parts in PARTS if parts < len(items)):
                while self._has_work and self._paired(np.flatnonzero(now.table == table).tolist(), most):
                    pass

    def _whole(self, items: list[int]) -> Ints:
        """Return blocks for the whole table on one rank, of the memory tier and cache that it has."""
        problem = self._problem
        own = self.now.whole_on_rank(int(self.now.table[items[0]]))
        return np.asarray(own[problem.block_option[own] == problem.block_option[self.now.block[items[0]]]])

    def _cut(self, items: list[int], parts: int, most: Floats) -> bool:
        """Hold a table in so many nearly equal blocks on different ranks, each where the step stays shortest."""
        now, problem = self.now, self._problem
        option = int(problem.block_option[now.block[items[0]]])
        types = np.arange(*problem.block_start[option : option + 2])
        whole, units = int(problem.option_units[option]), problem.block_units[types]
        wanted = [whole // parts + (i < whole % parts) for i in range(parts)]
        if not set(wanted) <= set(units.tolist()):
            return False
        state, taken, come = now.cleared(items), np.zeros(problem.world, dtype=bool), list[tuple[int, int]]()
        for block in types[np.searchsorted(units, wanted)].tolist():
            offers = now.offers(state, [], block)
            share = self._share(offers.free)
            step = np.where((share <= most) & ~taken, offers.step_s, np.inf)
            rank = int(np.lexsort((share, step))[0])
            if step[rank] > self._limit_s:
                return False
            now.charge(state, block, rank)
            taken[rank] = True
            come.append((block, rank))
        now.make(PlacementChange(state.step_s(), tuple(items), tuple(come)))
        return True

    def _paired(self, items: list[int], most: Floats) -> bool:
        """Join two blocks of a table, the narrowest ones first."""
        problem, now = self._problem, self.now
        order = sorted(items, key=lambda item: (int(problem.block_units[now.block[item]]), int(now.place[item])))
        for first, second in _pairs(order, now.place):
            units = problem.block_units[now.block[[first, second]]].sum()
            option = problem.block_option[now.block[first]]
            types = np.arange(*problem.block_start[option : option + 2])
            offer = self._best([first, second], types[problem.block_units[types] == units], most)
            if offer is not None:
                now.make(offer[1])
                return True
            if not self._has_work:
                return False
        return False


def _pairs(items: list[int], place: Ints) -> Iterator[tuple[int, int]]:
    """Yield pairs of items: those that share a rank first, then the first item with each of the others."""
    yield from ((first, second) for first, second in itertools.combinations(items, 2) if place[first] == place[second])
    yield from ((items[0], second) for second in items[1:] if place[items[0]] != place[second])
