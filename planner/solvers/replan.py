"""The search for a plan that follows another: better placements that move few bytes.

It begins with the old placement; what no longer fits, and what is new, is placed where it costs least. Then tables are
*released* in steps of ever more bytes, those first that weigh most on the step for their bytes, and local search moves
them. After each step the released tables *return*, one after the other, to where they were: first those whose return
makes no stage longer, then, under rising tolerances, those that cost some time, down to the old placement. Every
placement on this way is a candidate with its step and its moved bytes; the best one within the terms is the answer.

The candidates do not depend on the limit, but for how many release steps are made, so that a larger limit never gives
a slower plan.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.moves import Homes, ranks_of
from planner.problem import NODE, RANK, WORLD, Bools, Floats, Ints, Placement, Problem, load_state, place_block
from planner.solvers.bounding import TIGHTEN_BLOCKS
from planner.solvers.finishing import GIVE
from planner.solvers.fluid import Fluid, FluidSolution
from planner.solvers.greedy import place
from planner.solvers.improve import Improver
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Progress, Status
from planner.solvers.infeasible import shortage
from planner.solvers.insertion import Pieces
from planner.solvers.limits import Clock, Limits
from planner.solvers.local_search import IDLE_ROUNDS, SQUARINGS
from planner.solvers.prices import Bound
from planner.solvers.repartition import ROUNDING_BYTES
from planner.solvers.rounding import round_picks
from planner.solvers.ruin import TEMPERATURES, Ruin, may_ruin, ruin_steps
from planner.solvers.search import solve
from planner.solvers.target import target_seconds
from planner.solvers.threshold import tighten

RELEASES = (0.0, 1 / 512, 1 / 64, 1 / 8, 1.0)
"""Shares of all bytes that are released, one after the other."""
ROUNDS = (6, 6, 8, 12, 40)
"""Rounds of local search at each norm, for each release."""
TOLERANCES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, np.inf)
"""Shares by which returning tables may lengthen a stage, one after the other."""
SWEEPS = 3
"""Times that all released tables are asked to return under one tolerance: those that left make room for others."""
HEADROOMS = (0.0, 0.02, 0.1, 0.3)
"""Shares of each memory pool that the old placement leaves to what is new, until that fits."""
FAR = 0.03
"""Gap above which, after all releases, a plan that knows of no other is tried."""
ROUNDING = 1e-12
"""Relative amount by which sums of loads in another order may differ."""
SAME = 1e-9
"""Relative difference of steps that counts as none: fewer moved bytes decide."""


@dataclass(frozen=True)
class MoveTerms:
    """What moving costs."""

    limit_bytes: float | None = None
    """The most that may move."""
    seconds_per_byte: float = 0.0
    """What is added to the step for each moved byte."""


@dataclass(frozen=True)
class Replanned:
    """What the search found."""

    outcome: Outcome
    least_bytes: float
    """No placement moves less."""
    found_bytes: float | None
    """The fewest moved bytes of any placement found; None where there is none."""
    best_step_s: float | None = None
    """The step of the best placement on these terms, of which a little may be given up to move less."""


def replan(
    problem: Problem, homes: Homes, terms: MoveTerms, limits: Limits, progress: Progress | None = None
) -> Replanned:
    """The best placement found that follows the one of `homes` on these terms, with a lower bound on all placements.

    The bound holds for placements that move any number of bytes. Where none within the limit is found, the outcome's
    status is "timeout"; where there is none, "infeasible", and `least_bytes` is above the limit or the outcome has a
    shortage of memory.
    """
    fluid = Fluid(problem)
    least = homes.least_moved_bytes(problem)
    missing = shortage(fluid)
    if missing is not None:
        return Replanned(Outcome("infeasible", None, None, None, missing), least, None)
    if terms.limit_bytes is not None and least > terms.limit_bytes + 1:
        return Replanned(Outcome("infeasible", None, None, None, None), least, None)
    search = _Replan(fluid, homes, terms, limits, progress or (lambda *_: None))
    search.run()
    return Replanned(search.outcome(), least, search.fewest_bytes, search.best_step_s)


@dataclass(frozen=True)
class _Found:
    placement: Placement
    step_s: float
    moved_bytes: float


class _Replan:
    def __init__(self, fluid: Fluid, homes: Homes, terms: MoveTerms, limits: Limits, tell: Progress) -> None:
        self._fluid, self._problem, self._homes = fluid, fluid.problem, homes
        self._terms, self._limits, self._tell = terms, limits, tell
        self._clock = Clock(limits)
        self._relaxed: FluidSolution = fluid.solve()
        self._bound = Bound(self._relaxed.bound_s, self._relaxed.prices, None)
        self._best: _Found | None = None
        self._ways: list[_Way] = []
        self._fresh_ran_out = False
        self.fewest_bytes: float | None = None
        self._table_of_block: Ints = self._problem.option_table[self._problem.block_option]
        tell("bound", None, self._bound.seconds)

    @property
    def best_step_s(self) -> float | None:
        """Of the best placement within the terms, before anything is given up to move less."""
        return None if self._best is None else self._best.step_s

    def outcome(self) -> Outcome:
        """What was found within the terms, the placement that moves least of those that are nearly as fast."""
        if self._best is None:
            return Outcome("timeout", None, None, self._bound, None, ran_out_of_time=self._ran_out)
        best_s = self._best.step_s
        self._tighten(best_s)
        bound = replace(self._bound, seconds=min(self._bound.seconds, best_s))
        is_optimal = best_s <= bound.seconds * (1 + OPTIMAL_GAP)
        found = self._least_moved(max(best_s, bound.seconds * (1 + OPTIMAL_GAP)) if is_optimal else best_s * (1 + GIVE))
        status: Status = "optimal" if is_optimal else "feasible"
        return Outcome(status, found.placement, found.step_s, bound, None, ran_out_of_time=self._ran_out)

    def _least_moved(self, limit_s: float) -> _Found:
        """Of all placements met whose step is at most `limit_s`, the one that moves the fewest bytes; of these, the
        fastest."""
        assert self._best is not None
        least, where = (self._best.moved_bytes, self._best.step_s), None
        for way in self._ways:
            for point, (step_s, moved_bytes, _) in enumerate(way.points):
                if step_s <= limit_s and (moved_bytes, step_s) < least and self._may_move(moved_bytes):
                    least, where = (moved_bytes, step_s), (way, point)
        if where is None:
            return self._best
        way, point = where
        return _Found(way.placement(point), way.points[point][0], way.points[point][1])

    @property
    def _ran_out(self) -> bool:
        return self._clock.ran_out or self._fresh_ran_out

    def _may_move(self, moved_bytes: float) -> bool:
        return self._terms.limit_bytes is None or moved_bytes <= self._terms.limit_bytes

    def run(self) -> None:
        """The old placement, the releases, and a plan that knows of no other; each with the way back."""
        start = self._start()
        current, step_s = start, np.inf
        if start is not None:
            self._homeward = _Homeward(self._problem, self._homes, start)
            current, step_s = self._offer_way_back(start, "old placement")
            self._tighten(step_s)
        else:
            self._homeward = _Homeward(self._problem, self._homes, None)
        self._release_all(current, step_s)

    def _release_all(self, current: Placement | None, step_s: float) -> None:
        total = float(self._table_bytes.sum())
        for number, (share, rounds) in enumerate(zip(RELEASES, ROUNDS, strict=True)):
            if current is None or self._is_good(step_s) or self._clock.is_over():
                break
            released = self._released(current, share * total)
            limit = self._terms.limit_bytes
            is_last = limit is not None and share * total >= limit
            for done in itertools.count() if released.any() else ():
                if done == self._passes(is_last=is_last) or (done and self._is_good(step_s)) or self._clock.is_over():
                    break
                seed = self._limits.seed + number + len(RELEASES) * done
                current = self._improved(current, step_s, released, rounds, seed)
                current, step_s = self._offer_way_back(current, "local search")
            if is_last:
                return
        is_far = step_s > self._bound.seconds * (1 + max(FAR, self._limits.gap))
        if is_far and (current is None or not self._clock.is_over()):
            fresh = solve(self._problem, self._limits.left_of(self._clock), lambda *_: self._say())
            self._fresh_ran_out = fresh.ran_out_of_time
            if fresh.placement is not None:
                self._offer_way_back(fresh.placement, "new plan")

    def _passes(self, *, is_last: bool) -> int | None:
        """Passes for one release: without an effort the last release takes all the time there is (None)."""
        if self._limits.effort is None:
            return None if is_last else 1
        return self._limits.effort

    def _say(self) -> None:
        """That the search goes on."""
        self._tell("local search", None if self._best is None else self._best.step_s, self._bound.seconds)

    def _is_good(self, step_s: float) -> bool:
        return step_s <= self._bound.seconds * (1 + self._limits.gap)

    def _tighten(self, step_s: float) -> None:
        if len(self._problem.block_option) <= TIGHTEN_BLOCKS:
            found = tighten(self._fluid, self._relaxed, step_s)
            if found.seconds > self._bound.seconds:
                self._bound = found

    # -- candidates --------------------------------------------------------------------------------------------

    def _offer_way_back(self, placement: Placement, source: str) -> tuple[Placement, float]:
        """Offer a placement and those on its way back; the one in which all went back that may at no cost."""
        way = self._homeward.way_back(placement, self._clock)
        self._ways.append(way)
        best: int | None = None
        tidy = 0
        for i, (step_s, moved_bytes, is_free) in enumerate(way.points):
            tidy = i if is_free else tidy
            if self._is_better(step_s, moved_bytes):
                best = i
                self._best = _Found(placement, step_s, moved_bytes)
        if best is not None and self._best is not None:
            self._best = replace(self._best, placement=way.placement(best))
            self._tell(source, self._best.step_s, self._bound.seconds)
        return way.placement(tidy), way.points[tidy][0]

    def _is_better(self, step_s: float, moved_bytes: float) -> bool:
        self.fewest_bytes = min(moved_bytes, np.inf if self.fewest_bytes is None else self.fewest_bytes)
        if not self._may_move(moved_bytes):
            return False
        if self._best is None:
            return True
        price = self._terms.seconds_per_byte
        value, best = step_s + price * moved_bytes, self._best.step_s + price * self._best.moved_bytes
        if abs(value - best) <= SAME * best:
            return moved_bytes < self._best.moved_bytes
        return value < best

    # -- releases ----------------------------------------------------------------------------------------------

    @property
    def _table_bytes(self) -> Floats:
        """[T] the most that a table can move while it has one copy."""
        found = np.zeros(self._problem.tables)
        whole = self._homes.whole_bytes(self._problem)
        np.maximum.at(found, self._table_of_block, whole)
        return np.where(self._homes.rows_before > 0, found, 0.0)

    def _released(self, placement: Placement, budget_bytes: float) -> Bools:
        """[T] tables of at most so many bytes together, those first that weigh most on the step for their bytes."""
        problem, block = self._problem, placement.item_block
        load = problem.fixed[:, block] + problem.by_rows[:, block]
        weight = np.einsum("kbc,kc->kb", load, self._relaxed.prices.weight).max(axis=0)
        value = np.bincount(self._table_of_block[block], weights=weight, minlength=problem.tables)
        size = self._table_bytes
        order = np.argsort(-value / np.maximum(size, 1.0), kind="stable")
        order = order[np.argsort(size[order] > 0, kind="stable")]
        released = np.zeros(problem.tables, dtype=bool)
        released[order[np.cumsum(size[order]) <= budget_bytes]] = True
        return released

    def _improved(self, placement: Placement, step_s: float, released: Bools, rounds: int, seed: int) -> Placement:
        """Local search on the released tables: from where they are, or taken out and placed anew in other options."""
        problem = self._problem
        if not released.all():
            held = _part(placement, ~released[self._table_of_block[placement.item_block]])
            other = self._completed(held, np.zeros(0, dtype=np.int64))
            if other is not None and other[1] < step_s:
                placement = other[0]
        if may_ruin(problem):
            every_pick = np.ones(len(problem.block_option), dtype=bool)
            aim = target_seconds(self._fluid, self._relaxed, step_s)
            ruin = Ruin(problem, self._relaxed.prices, every_pick, aim, seed, released)
            ruin.start_from(placement)
            ruin.run(ruin_steps(problem, 0), TEMPERATURES[0], self._clock.is_over)
            placement = ruin.best() or placement
        improver, number = Improver(problem, placement, seed, released), 0
        for squarings in SQUARINGS:
            idle = 0
            for _ in range(rounds):
                idle = 0 if improver.round(number, squarings) else idle + 1
                number += 1
                if idle >= IDLE_ROUNDS or self._is_good(improver.best_s):
                    break
                if self._clock.is_over():
                    return improver.best()
        return improver.best()

    def _completed(self, held: Placement, loose: Ints) -> tuple[Placement, float] | None:
        """The held and loose blocks and tables that have neither, placed, and the step; None if they do not fit."""
        problem, fluid = self._problem, self._fluid
        chosen = problem.block_option[np.concatenate([held.item_block, loose])]
        known = np.zeros(problem.tables, dtype=bool)
        known[problem.option_table[chosen]] = True
        relaxed, picks = self._relaxed, np.zeros(0, dtype=np.int64)
        if not known.all():
            is_chosen = np.zeros(len(problem.option_table), dtype=bool)
            is_chosen[chosen] = True
            usable = ~known[self._table_of_block] | is_chosen[problem.block_option]
            if shortage(fluid, usable) is None:
                relaxed = fluid.solve(usable=usable, tolerance=1e-4)
            picks = round_picks(fluid, relaxed)[~known]
        placed = place(problem, picks, relaxed.stage_seconds, held, loose)
        return None if placed is None else (_sorted(placed[0]), placed[1].step_s())

    # -- the old placement -------------------------------------------------------------------------------------

    def _start(self) -> Placement | None:
        """The old placement with what is new; as few bytes as possible leave pools that are too full for that.

        What leaves keeps its form where that can be placed; else it may take any. None where nothing helps.
        """
        problem, homes = self._problem, self._homes
        if not len(homes.start.item_block) and not len(homes.loose):
            return None
        for headroom in HEADROOMS:
            leaving = self._leaving(headroom)
            held = _part(homes.start, ~leaving)
            left = homes.start.item_block[leaving]
            is_tied = problem.option_tied[problem.block_option[left]]
            if not ((problem.block_extent[left] == WORLD) | is_tied).any():
                found = self._completed(held, np.concatenate([homes.loose, left]))
                if found is not None:
                    return found[0]
            tables = np.zeros(problem.tables, dtype=bool)
            tables[self._table_of_block[np.concatenate([left, homes.loose])]] = True
            found = self._completed(_part(held, ~tables[self._table_of_block[held.item_block]]), homes.loose[:0])
            if found is not None:
                return found[0]
            if self._clock.is_over():
                break
        return None

    def _leaving(self, headroom: float) -> Bools:
        """[I] blocks of the old placement that must leave, so that every pool has this share of its capacity free."""
        problem, start = self._problem, self._homes.start
        state = load_state(problem, start)
        leaving = np.zeros(len(start.item_block), dtype=bool)
        first, count = ranks_of(problem, start.item_block, start.item_place)
        size = self._most_bytes(start)
        for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
            firsts = np.unique(pool, return_index=True)[1]
            for rank in firsts[state.free[m, firsts] < headroom * capacity[pool[firsts]]].tolist():
                last = int(np.searchsorted(pool, pool[rank], side="right"))
                here = np.flatnonzero((first < last) & (first + count > rank) & (size[:, m] > 0) & ~leaving)
                here = here[np.lexsort((size[here, m], problem.block_extent[start.item_block[here]]))]
                while len(here) and (lack := headroom * capacity[pool[rank]] - float(state.free[m, rank])) > 0:
                    on_ranks = here[problem.block_extent[start.item_block[here]] == RANK]
                    among = on_ranks if len(on_ranks) else here
                    enough = np.searchsorted(size[among, m], lack) if len(on_ranks) else len(among) - 1
                    item = int(among[min(enough, len(among) - 1)])
                    place_block(problem, state, int(start.item_block[item]), int(start.item_place[item]), -1.0)
                    leaving[item] = True
                    here = here[here != item]
        return leaving

    def _most_bytes(self, placement: Placement) -> Floats:
        """[I, M] bytes that a block takes on the rank where it takes most."""
        problem, block = self._problem, placement.item_block
        _, count = ranks_of(problem, block, placement.item_place)
        rows = problem.table_rows[self._table_of_block[block]]
        share = np.where(problem.block_replicated[block], 1.0, -(-rows // count) / rows)[:, None]
        size = problem.bytes_fixed[:, block] + problem.bytes_by_rows[:, block] * share
        return np.asarray(size.max(axis=0))


@dataclass(frozen=True)
class _Way:
    """A placement and the tables that return from it, one after the other."""

    problem: Problem
    start: Placement
    points: list[tuple[float, float, bool]]
    """(step, moved bytes, whether the returns so far cost nothing) before any return, and after each."""
    returns: list[tuple[int, Pieces]]
    """(table, its blocks and places)."""

    def placement(self, point: int) -> Placement:
        """At one of the points."""
        if not point:
            return self.start
        back = dict(self.returns[:point])
        gone = np.zeros(self.problem.tables, dtype=bool)
        gone[list(back)] = True
        table = self.problem.option_table[self.problem.block_option[self.start.item_block]]
        stays = _part(self.start, ~gone[table])
        pieces = np.array([piece for pieces in back.values() for piece in pieces], dtype=np.int64)
        return _sorted(
            Placement(
                np.concatenate([stays.item_block, pieces[:, 0]]), np.concatenate([stays.item_place, pieces[:, 1]])
            )
        )


class _Goal:
    """A placement that tables return to."""

    def __init__(self, problem: Problem, placement: Placement, pieces: dict[int, Pieces], moved_bytes: Floats) -> None:
        placed = _sorted(placement)
        order = np.argsort(problem.option_table[problem.block_option[placed.item_block]], kind="stable")
        self._block, self._place = placed.item_block[order], placed.item_place[order]
        table = problem.option_table[problem.block_option[self._block]]
        self._start: Ints = np.searchsorted(table, np.arange(problem.tables + 1))
        self.pieces, self.moved_bytes = pieces, moved_bytes

    def items(self, tables: Ints) -> tuple[Ints, Ints, Ints]:
        """Which of the `tables`, the block and the place of each of their blocks."""
        count = self._start[tables + 1] - self._start[tables]
        which = np.repeat(np.arange(len(tables)), count)
        index = np.arange(len(which)) + np.repeat(self._start[tables] - np.cumsum(count) + count, count)
        return which, self._block[index], self._place[index]


class _Homeward:
    """Where tables return to: how the old plan held them, or else the start of the search."""

    def __init__(self, problem: Problem, homes: Homes, start: Placement | None) -> None:
        self._problem, self._homes = problem, homes
        table_of_loose = problem.option_table[problem.block_option[homes.loose]]
        table = problem.option_table[problem.block_option[homes.start.item_block]]
        whole = _part(homes.start, ~np.isin(table, table_of_loose))
        self._goals: list[_Goal] = []
        for goal in (whole, start):
            if goal is not None:
                pieces = _by_table(problem, goal)
                self._goals.append(_Goal(problem, goal, pieces, self._moved_bytes(goal, pieces)))
        self._own_column: Bools = np.array([len(np.unique(i)) == problem.world for i in problem.resource_of_rank])
        self._own_pool: Bools = np.array([len(np.unique(i)) == problem.world for i in problem.pool_of_rank])

    def _moved_bytes(self, placement: Placement, pieces: dict[int, Pieces]) -> Floats:
        """[T] for all tables of a placement; what is known of those that are as in a goal is not computed again."""
        moved = np.zeros(self._problem.tables)
        is_new = np.zeros(self._problem.tables, dtype=bool)
        is_new[list(pieces)] = True
        for goal in self._goals:
            same = [table for table, where in pieces.items() if is_new[table] and goal.pieces.get(table) == where]
            moved[same], is_new[same] = goal.moved_bytes[same], False
        table = self._problem.option_table[self._problem.block_option[placement.item_block]]
        return moved + self._homes.moved_bytes(self._problem, _part(placement, is_new[table]))

    def way_back(self, placement: Placement, clock: Clock) -> _Way:
        """All returns from a placement, tolerance by tolerance."""
        problem = self._problem
        self._state = state = load_state(problem, placement)
        self._now = _by_table(problem, placement)
        self._moved = self._moved_bytes(placement, self._now)
        busy = (state.stage_seconds() - problem.stage_constants)[problem.stage_of_column]
        points = [(state.step_s(), float(self._moved.sum()), True)]
        returns: list[tuple[int, Pieces]] = []
        for tolerance in TOLERANCES:
            most = 1 + tolerance + ROUNDING
            self._ceiling: Floats = busy * most if np.isfinite(most) else np.full(len(busy), np.inf)
            for _ in range(SWEEPS):
                before = len(returns)
                for goal in self._goals:
                    for table, is_barred in self._candidates(goal, at_no_cost=tolerance == 0):
                        pieces = self._return(table, goal.pieces[table], is_barred=is_barred)
                        if pieces is not None:
                            self._now[table] = pieces
                            self._moved[table] = goal.moved_bytes[table]
                            returns.append((table, pieces))
                            points.append((state.step_s(), float(self._moved.sum()), tolerance == 0))
                if len(returns) == before or clock.is_over():
                    break
        return _Way(problem, placement, points, returns)

    def _candidates(self, goal: _Goal, *, at_no_cost: bool) -> list[tuple[int, bool]]:
        """Tables that save bytes if they return, those first that save most, unless it makes a stage too long.

        With each, whether its memory there is too full. At no cost, tables return that save no bytes, too.
        """
        away = [table for table, pieces in goal.pieces.items() if self._now[table] != pieces]
        tables = np.array(away, dtype=np.int64)
        saved = self._moved[tables] - goal.moved_bytes[tables]
        tables = tables[(saved > 0) | ((saved == 0) & at_no_cost & (goal is self._goals[0]))]
        tables = tables[np.lexsort((tables, goal.moved_bytes[tables] - self._moved[tables]))]
        overloads, overfills = self._alone(goal, tables)
        return list(zip(tables[~overloads].tolist(), overfills[~overloads].tolist(), strict=True))

    def _alone(self, goal: _Goal, tables: Ints) -> tuple[Bools, Bools]:
        """Whether a single-rank piece of each table [n] makes a stage too long, or a pool too full, where it returns.

        Only resources that the rank shares with no other are looked at, and only tables that are on single ranks now.
        """
        problem, state = self._problem, self._state
        which, block, rank = goal.items(tables)
        pieces = [(i, *piece) for i, table in enumerate(tables.tolist()) for piece in self._now[table]]
        which_now, block_now, rank_now = np.array(pieces, dtype=np.int64).reshape(-1, 3).T
        everywhere = np.zeros((len(tables), problem.kinds, len(problem.stage_of_column)))
        np.add.at(everywhere, which, problem.everywhere[:, block].swapaxes(0, 1))
        np.subtract.at(everywhere, which_now, problem.everywhere[:, block_now].swapaxes(0, 1))
        is_spread = np.zeros(len(tables), dtype=bool)
        is_spread[which_now[problem.block_extent[block_now] != RANK]] = True
        looked_at = np.flatnonzero((problem.block_extent[block] == RANK) & ~is_spread[which])
        which, block, rank = which[looked_at], block[looked_at], rank[looked_at]
        single = np.flatnonzero(~is_spread[which_now])
        places, at = np.unique(which_now[single] * problem.world + rank_now[single], return_inverse=True)
        same = np.searchsorted(places, which * problem.world + rank)
        same = np.where(np.append(places, -1)[same] == which * problem.world + rank, same, len(places))
        found: list[Bools] = []
        for own, fixed, by_rows, now, most, more in (
            (self._own_column, problem.fixed, problem.by_rows, state.load, self._ceiling, everywhere),
            (self._own_pool, problem.bytes_fixed, problem.bytes_by_rows, -state.free, ROUNDING_BYTES, None),
        ):
            kind, kind_now = problem.kind_of_rank[rank], problem.kind_of_rank[rank_now[single]]
            there = np.zeros((len(places) + 1, len(own)))
            np.add.at(there, at, fixed[kind_now, block_now[single]] + by_rows[kind_now, block_now[single]])
            then = now[:, rank].T + fixed[kind, block] + by_rows[kind, block] - there[same]
            then += 0.0 if more is None else more[which, kind]
            wrong = (then > most)[:, own].any(axis=1)
            found.append(np.bincount(which, weights=wrong, minlength=len(tables)) > 0)
        return found[0], found[1]

    def _return(self, table: int, pieces: Pieces, *, is_barred: bool) -> Pieces | None:
        """Put a table back, or into another memory there if its own is too full; None where it does not fit."""
        now = self._now[table]
        if not is_barred:
            outcome = self._exchange(now, pieces)
            if outcome != "full":
                return pieces if outcome == "done" else None
        for variant in self._variants(table, pieces):
            if variant == now:
                return None
            if self._exchange(now, variant) == "done":
                return variant
        return None

    def _variants(self, table: int, pieces: Pieces) -> Iterator[Pieces]:
        """The same columns at the same places in other tiers or cache sizes."""
        problem = self._problem
        own = problem.block_option[pieces[0][0]]
        if not problem.option_units[own]:
            return
        units = problem.block_units[[block for block, _ in pieces]]
        kinds = problem.kind_of_rank[[where for _, where in pieces]]
        for option in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
            if option == own or problem.option_units[option] != problem.option_units[own]:
                continue
            types = np.arange(*problem.block_start[option : option + 2])
            blocks = types[np.minimum(np.searchsorted(problem.block_units[types], units), len(types) - 1)]
            if np.array_equal(problem.block_units[blocks], units) and problem.allowed[kinds, blocks].all():
                yield [(block, where) for block, (_, where) in zip(blocks.tolist(), pieces, strict=True)]

    def _exchange(self, old: Pieces, new: Pieces) -> Literal["done", "slow", "full"]:
        """Put other pieces of a table in the place of its present ones, if ceilings and memory are kept."""
        problem, state = self._problem, self._state
        everywhere = problem.everywhere[:, [b for b, _ in new]].sum(axis=1)
        everywhere -= problem.everywhere[:, [b for b, _ in old]].sum(axis=1)
        ranks = np.concatenate([self._ranks(block, where) for block, where in new])
        self._charge(old, new, everywhere)
        where = slice(None) if everywhere.any() else ranks
        is_slow = bool((state.load[:, where] > self._ceiling[:, None]).any())
        is_full = bool((state.free[:, ranks] < -ROUNDING_BYTES).any())
        if not is_slow and not is_full:
            return "done"
        self._charge(new, old, -everywhere)
        return "slow" if is_slow else "full"

    def _ranks(self, block: int, where: int) -> Ints:
        extent = self._problem.block_extent[block]
        if extent == RANK:
            return np.array([where])
        if extent == NODE:
            return np.arange(self._problem.node_start[where], self._problem.node_start[where + 1])
        return np.arange(self._problem.world)

    def _charge(self, gone: Pieces, come: Pieces, everywhere: Floats) -> None:
        for block, where in gone:
            place_block(self._problem, self._state, block, where, -1.0)
        for block, where in come:
            place_block(self._problem, self._state, block, where)
        if everywhere.any():
            self._state.add_everywhere(everywhere)


def _part(placement: Placement, index: Bools) -> Placement:
    return Placement(placement.item_block[index], placement.item_place[index])


def _sorted(placement: Placement) -> Placement:
    order = np.lexsort((placement.item_place, placement.item_block))
    return Placement(placement.item_block[order], placement.item_place[order])


def _by_table(problem: Problem, placement: Placement) -> dict[int, Pieces]:
    """The blocks of each table with their places, in order of both."""
    placed = _sorted(placement)
    table = problem.option_table[problem.block_option[placed.item_block]].tolist()
    found: dict[int, Pieces] = {}
    for of, block, where in zip(table, placed.item_block.tolist(), placed.item_place.tolist(), strict=True):
        found.setdefault(of, []).append((block, where))
    return found
