"""Lexicographic tie-breaking: of plans that are nearly as fast, the one that is best otherwise.

By default, within `GIVE` of the best step: first no rank fuller than `CROWDED`, then few blocks, whole tables first,
then a fullest rank that is less full; or other goals in another order, with a tolerance each (`planner.problem.goals`).
Each of these is sought by changes of one table or two blocks, none of which spoils more of a goal before it than its
tolerance. What is best is so only as far as such changes go.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.goals import CROWDED, USUAL, Goal, GoalName, HbmMemories, Reached
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement
from planner.solvers.improve.changes import Changeable, PlacementChange
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome
from planner.solvers.kept_goals import NEAR, KeptGoals
from planner.solvers.stash_twins import stash_bytes, unstashed

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
    reached: tuple[Reached, ...] = ()
    """The goals, in their order."""


@dataclass(frozen=True)
class Ends:
    """What plans are told apart by, and within what."""

    goals: Sequence[Goal] = USUAL
    """The step is the first of them."""
    longest_s: float = math.inf
    """A step of at most so long stays one."""
    incumbent: IncumbentPlacement | None = None
    """What bytes move away from; None where none do."""
    most_moved: float = math.inf
    """The most that may move."""
    best_step_s: float | None = None
    """The best step found, where that is not the outcome's."""
    gap: float = 0.0
    """A plan that is so near to the bound stays so, unless a tolerance is stated."""

    def limit_s(self, outcome: Outcome, best_s: float) -> float:
        """The longest step. Of a plan that was proven optimal, or came as near to the bound as was asked, only as much
        is given up as leaves it that, unless a tolerance is stated."""
        assert outcome.bound is not None
        step, limit_s = self.goals[0], best_s * (1 + self.goals[0].share)
        if step.tolerance is None:
            bound_s = min([outcome.bound.seconds, *(each.bound.seconds for each in outcome.elsewhere)])
            near_s = bound_s * (1 + (OPTIMAL_GAP if outcome.status == "optimal" else self.gap))
            if best_s <= near_s or outcome.status == "optimal":
                limit_s = min(limit_s, near_s)
        return max(best_s, min(limit_s, self.longest_s))


def finished(
    problem: Problem, outcome: Outcome, memories: HbmMemories | None = None, ends: Ends | None = None
) -> Finished:
    """Return the plan of an outcome made tidier; `memories` are those of the accelerators."""
    ends, memories = ends or Ends(), memories or HbmMemories()
    if outcome.placement is None or outcome.step_s is None or outcome.bound is None:
        return Finished(outcome, None)
    best_s = outcome.step_s if ends.best_step_s is None else min(ends.best_step_s, outcome.step_s)
    limit_s = max(ends.limit_s(outcome, best_s), outcome.step_s)
    near_s = limit_s * (1 - NEAR) if limit_s > outcome.step_s else limit_s
    finish = _Finish(problem, outcome.placement, near_s, memories, ends)
    finish.run()
    placement = finish.now.placement()
    state = load_state(problem, placement)
    if state.step_s() > limit_s or state.overflow_bytes() > load_state(problem, outcome.placement).overflow_bytes():
        finish = _Finish(problem, outcome.placement, near_s, memories, ends)
        return Finished(outcome, best_s, finish.reached(best_s))
    reached = finish.reached(best_s)
    return Finished(replace(outcome, placement=placement, step_s=state.step_s()), best_s, reached)


class _Finish:
    """One placement, changed as long as it becomes better and its step stays below a limit."""

    def __init__(
        self, problem: Problem, placement: Placement, limit_s: float, memories: HbmMemories, ends: Ends
    ) -> None:
        self.now = Changeable(problem, placement)
        self._problem, self._memories, self._ends, self._kept = problem, memories, ends, KeptGoals()
        self._measured, self._lower = memories.moments, LOWER
        """The memories of which ranks are emptied, and by which share at least."""
        if ends.most_moved < math.inf:
            self._kept.most["moved_bytes"] = ends.most_moved
        self._limit_s = max(limit_s, self.now.step_s)
        hbm = memories.moments[0]
        self._capacity: Floats = np.maximum(problem.pool_capacity[hbm], 1.0)[problem.pool_of_rank[hbm]]
        self._work = 0.0

    def run(self) -> None:
        """Pursue one aim after the other."""
        aims = {
            "crowded_ranks": self._empty_crowded_ranks,
            "blocks": self._merge,
            "fullest_rank": self._empty_fullest_rank,
            "moved_bytes": self._return_tables,
            "largest_stash": self._lower_stash,
        }
        for goal in self._ends.goals[1:]:
            self._work = self.now.work + MOST_WORK
            aims[goal.name]()
            self._kept.keep(goal, self._value(goal.name))

    def reached(self, best_s: float) -> tuple[Reached, ...]:
        """Return the goals with their best values and what is left of these."""
        step, *others = self._ends.goals
        values = [(goal, self._value(goal.name)) for goal in others]
        first = Reached(step, best_s, self.now.step_s)
        return (first, *(Reached(goal, self._kept.best.get(goal.name, value), value) for goal, value in values))

    def _value(self, name: GoalName) -> float:
        """Return how far a goal is reached now."""
        now = self.now
        if name == "moved_bytes":
            incumbent = self._ends.incumbent
            return 0.0 if incumbent is None else float(incumbent.moved_bytes(self._problem, now.placement()).sum())
        if name == "blocks":
            return float(len(now.block))
        if name == "largest_stash":
            stash = self._memories.stash
            return 0.0 if stash is None else float((self._taken(now.state.free, (stash,)) * self._capacity).max())
        share = self._taken(now.state.free, self._memories.moments)
        return float((share > CROWDED).sum()) if name == "crowded_ranks" else float(share.max())

    def _make(self, change: PlacementChange) -> bool:
        """Make a change that keeps to what was reached before; return whether it does."""
        now = self.now
        before = now.block, now.place, now.state, now.step_s
        now.make(change)
        if all(self._value(name) <= most for name, most in self._kept.most.items()):
            return True
        now.block, now.place, now.state, now.step_s = before
        return False

    def _most(self) -> Floats:
        """Return the share [W] to which each rank may be filled for the sake of few blocks."""
        share, most, best = self._share(self.now.state.free), self._kept.most, self._kept.best
        crowded = max((share > CROWDED).sum(), best.get("crowded_ranks", 0))  # of fewer than needed, none is given up
        if "crowded_ranks" in most and crowded + 1 > most["crowded_ranks"]:
            return np.minimum(np.maximum(share, CROWDED), most.get("fullest_rank", np.inf))
        return np.full(self._problem.world, most.get("fullest_rank", np.inf))

    # -- moved bytes -------------------------------------------------------------------------------------------

    def _return_tables(self) -> None:
        """Put tables back where they were, those first of which most has moved."""
        incumbent, problem = self._ends.incumbent, self._problem
        if incumbent is None:
            return
        moved = incumbent.moved_bytes(problem, self.now.placement())
        was, loose = incumbent.start, set(problem.table_of_block[incumbent.loose].tolist())
        for table in np.argsort(-moved, kind="stable").tolist():
            home = np.flatnonzero(problem.table_of_block[was.item_block] == table)
            if not moved[table] or table in loose or not len(home) or problem.grouped[table] or not self._has_work:
                continue
            come = tuple(zip(was.item_block[home].tolist(), was.item_place[home].tolist(), strict=True))
            change = self.now.exchange(np.flatnonzero(self.now.table == table).tolist(), come)
            if change is not None and change.step_s <= self._limit_s:
                self._make(change)

    @property
    def _has_work(self) -> bool:
        return self.now.work < self._work

    def _share(self, free: Floats) -> Floats:
        """Return the share of each rank's memory that is taken [W], of what is measured; `free` is [M, W]."""
        return self._taken(free, self._measured)

    def _taken(self, free: Floats, memories: Sequence[int]) -> Floats:
        """Return the share of each rank's HBM [W] that the most of these memories takes."""
        return np.asarray(1.0 - free[list(memories)].min(axis=0) / self._capacity)

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
            if offer is not None and self._make(offer[1]):
                return True
            if not self._has_work:
                return False
        items = here[order].tolist()
        if any(self._exchanged(item, size, most) for item in items if self._has_work):
            return True
        return any(self._halved(item, limits) for item in items if self._has_work and self._may_cut())

    def _may_cut(self) -> bool:
        """Whether the goals before allow one more block."""
        most = self._kept.most.get("blocks")
        return most is not None and len(self.now.block) + 1 <= most

    def _halved(self, item: int, limits: Floats) -> bool:
        """Let half of the columns of an item go to the rank that is least full then, within limits [W]."""
        now, problem = self.now, self._problem
        block, rank = int(now.block[item]), int(now.place[item])
        option = int(problem.block_option[block])
        types = np.arange(*problem.block_start[option : option + 2])
        goes = int(problem.block_units[block]) // 2
        parts = [types[problem.block_units[types] == units] for units in (int(problem.block_units[block]) - goes, goes)]
        if not goes or any(not len(part) for part in parts):
            return False
        stays, half = (int(part[0]) for part in parts)
        state = now.cleared([item])
        now.charge(state, stays, rank)
        offers = now.offers(state, [], half)
        share = self._share(offers.free)
        fit = (offers.step_s <= self._limit_s) & (share <= limits)
        if not fit.any():
            return False
        to = int(np.where(fit, share, np.inf).argmin())
        return self._make(PlacementChange(float(offers.step_s[to]), (item,), ((stays, rank), (half, to))))

    def _exchanged(self, item: int, size: Floats, most: float) -> bool:
        """Let an item and a smaller one change places, where neither rank is fuller than `most` then, or the item's own
        is emptied as much as can be."""
        now, rank = self.now, int(self.now.place[item])
        partners = np.flatnonzero(now.may_move & (size < size[item]))
        others, step = now.swaps(item, partners)
        share, there = self._share(now.state.free), now.place[others]
        taken = share[there] + (size[item] - size[others]) / self._capacity[there]
        gained = (size[item] - size[others]) / self._capacity[rank]
        fit = (step <= self._limit_s) & (taken <= most) & (gained >= self._lower)
        if not fit.any():
            return False
        enough = share[rank] - gained <= most
        best = int(np.where(fit, np.where(enough, 1.0 - taken, gained - 1.0), -np.inf).argmax())
        return self._make(now.swap(item, int(others[best]), float(step[best])))

    def _sizes(self) -> Floats:
        """Return the bytes [I] of each item on a single rank; 0 of others."""
        now, problem = self.now, self._problem
        on_rank = problem.is_on_rank[now.block]
        kind = problem.kind_of_rank[np.where(on_rank, now.place, 0)]
        return np.where(on_rank, problem.whole_bytes[kind, now.block, self._measured[0]], 0.0)

    def _empty_fullest_rank(self) -> None:
        """Make the fullest rank emptier, as long as that makes none as full as it was."""
        while self._has_work:
            share = self._share(self.now.state.free)
            rank = int(share.argmax())
            if not self._empty(rank, float(share[rank]) - self._lower):
                return

    # -- stashed tables ----------------------------------------------------------------------------------------

    def _lower_stash(self) -> None:
        """Let tables stay that fit without being stashed, the largest first; then empty the rank that stashes most."""
        now, memories = self.now, self._memories
        if memories.stash is None:
            return
        size = stash_bytes(self._problem, memories)
        for table in np.argsort(-np.bincount(now.table, weights=size[now.block]), kind="stable").tolist():
            items = np.flatnonzero(now.table == table)
            if not self._has_work or not size[now.block[items]].any():
                continue
            if (stay := unstashed(self._problem, memories, now.block[items])) is not None:
                change = now.exchange(items.tolist(), tuple(zip(stay.tolist(), now.place[items].tolist(), strict=True)))
                if change is not None and change.step_s <= self._limit_s:
                    self._make(change)
        self._measured = (memories.stash,)
        self._lower = LOWER * float(self._share(now.state.free).max())
        self._empty_fullest_rank()
        self._measured, self._lower = memories.moments, LOWER

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
            most = self._most()
            whole = self._best(items, self._whole(items), most)
            if whole is not None and self._make(whole[1]):
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
        return self._make(PlacementChange(state.step_s(), tuple(items), tuple(come)))

    def _paired(self, items: list[int], most: Floats) -> bool:
        """Join two blocks of a table, the narrowest ones first."""
        problem, now = self._problem, self.now
        order = sorted(items, key=lambda item: (int(problem.block_units[now.block[item]]), int(now.place[item])))
        for first, second in _pairs(order, now.place):
            units = problem.block_units[now.block[[first, second]]].sum()
            option = problem.block_option[now.block[first]]
            types = np.arange(*problem.block_start[option : option + 2])
            offer = self._best([first, second], types[problem.block_units[types] == units], most)
            if offer is not None and self._make(offer[1]):
                return True
            if not self._has_work:
                return False
        return False


def _pairs(items: list[int], place: Ints) -> Iterator[tuple[int, int]]:
    """Yield pairs of items: those that share a rank first, then the first item with each of the others."""
    yield from ((first, second) for first, second in itertools.combinations(items, 2) if place[first] == place[second])
    yield from ((items[0], second) for second in items[1:] if place[items[0]] != place[second])
