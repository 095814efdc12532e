"""Respread: tables that go to all ranks of the world, or come back from it, where a stage's loads come in steps.

What a rank sends is a whole number of column units. Where most ranks stand on one step and the mean is above it, some
must stand on the next, however blocks are exchanged. Either the cheapest tables that bring the mean down to the step
are taken from single ranks and spread over the world; or the most expensive of those that are spread, as many as ranks
have room for below the next step, come back. Then exchanges can level the rest.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.load_steps import HEIGHTS, level_below
from planner.solvers.improve.exchange_index import ExchangeIndex
from planner.solvers.improve.items import Items, merged_items
from planner.solvers.improve.state import SearchState

ROOM = 0.04
"""Share of a step's height by which the mean is brought below it: exchanges need some room."""
PARTS = 20
"""Tables are chosen in so many parts; what one costs depends on those before."""


@dataclass(frozen=True)
class Respreading:
    """Tables that go from single ranks to the world, or come back."""

    gain_s: float
    """Seconds by which the step is shorter, were all loads even or on the step."""
    items: Ints
    """Whole tables on single ranks that are spread."""
    options: Ints
    """The world-wide option of each."""
    back: Ints
    """World-wide options that are given up."""
    placed: Items
    """Whole tables on single ranks instead."""


def respread(state: SearchState) -> bool:
    """Spread tables over the world, or bring some back, where that lets stages end on a step."""
    problem, items, options_over_world = (
        state.problem,
        state.items,
        state.problem.block_option[state.settled.item_block],
    )
    change = respreading(state.exchange_index, items, state.loads, options_over_world)
    if change is None:
        return False
    kept = np.ones(len(items.rank), dtype=bool)
    kept[change.items] = False
    left = ~np.isin(options_over_world, change.back)
    blocks = np.flatnonzero(np.isin(problem.block_option, change.options))
    blocks = np.repeat(blocks, problem.block_count[blocks])
    state.settled = Placement(
        np.concatenate([state.settled.item_block[left], blocks]),
        np.concatenate([state.settled.item_place[left], np.full(len(blocks), -1)]),
    )
    both = zip(
        (items.family, items.units, items.rank),
        (change.placed.family, change.placed.units, change.placed.rank),
        strict=True,
    )
    state.items = merged_items(Items(*(np.concatenate([old[kept], new]) for old, new in both)), problem.world)
    state.loads = load_state(problem, state.placement())
    return True


def respreading(index: ExchangeIndex, items: Items, state: LoadState, options_over_world: Ints) -> Respreading | None:
    """Return the better of the two; None where neither is worth it. World-wide options so far: `options_over_world`.

    Steps are as high as most ranks' loads allow: whole blocks come in few widths, and what is between needs cuts.
    """
    for units in HEIGHTS if len(index.world_options[0]) else ():
        steps = _steps(index, state, units)
        if steps:
            respreadings = [
                _SpreadCandidates(index, items, state).best_spread(steps),
                _brought_back(index, state, steps, options_over_world),
            ]
            return max(
                (respreading for respreading in respreadings if respreading is not None),
                key=lambda respreading: respreading.gain_s,
                default=None,
            )
    return None


def _spared_s(index: ExchangeIndex, steps: list[tuple[int, float, float]]) -> float:
    """Return the seconds from the means to the steps of one unit above them, which exchanges reach where the means
    leave some room, but for the room that is left below the steps themselves."""
    ranks, spared_s = int(index.problem.reach.sum()), 0.0
    for column, above_s, height_s in steps:
        unit_s, mean_s = float(index.amount[column]), above_s / ranks
        reached_s = float(np.ceil(mean_s / unit_s + ROOM)) * unit_s
        spared_s += min(reached_s, height_s) - ROOM * height_s - mean_s
    return spared_s


def _brought_back(
    index: ExchangeIndex, state: LoadState, steps: list[tuple[int, float, float]], options_over_world: Ints
) -> Respreading | None:
    """Return the tables of the `options_over_world` that cost most there, back on the ranks with most room below the
    step above the mean; None where ranks are of several kinds."""
    problem = index.problem
    number = np.flatnonzero(np.isin(index.world_options[0], options_over_world))
    if problem.kinds > 1 or not len(number):
        return None
    of_family = index.table_of_family
    table = problem.option_table[index.world_options[0][number]]
    first, last = np.searchsorted(of_family, table), np.searchsorted(of_family, table, side="right")
    family = np.concatenate([np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    number = np.repeat(number, last - first)
    block = index.block_of[family, index.whole[family]]
    possible = (block >= 0) & ~problem.grouped[of_family[family]] & index.allowed[0, block]
    number, family, block = number[possible], family[possible], block[possible]
    table = of_family[family]
    columns = np.array([column for column, _, _ in steps])
    room = np.array([height_s * (1 - ROOM) * problem.reach.sum() - above_s for _, above_s, height_s in steps])
    if (room <= 0).any():
        return None
    on = index.load[0, block]
    share = (on[:, columns] / room).max(axis=1)
    growth = -index.spread_growth(np.zeros(len(block), dtype=np.int64), block, number)
    filled = np.isin(problem.stage_of_column, problem.stage_of_column[columns])
    mean, none = state.load[:, problem.reach].mean(axis=1), np.zeros(len(problem.stage_constants))
    level = np.where(filled & ~np.isin(np.arange(len(mean)), columns), 0.0, mean)
    cost = index.growth_of_step(growth - np.where(filled, on / problem.world, 0.0), level, none)
    load, free = np.where(problem.reach, state.load[columns[0]], np.inf), state.free.copy()
    taken: list[int] = []
    ranks: list[int] = []
    full = 0.0
    for at in np.argsort(cost / np.maximum(share, 1e-12), kind="stable").tolist():
        if cost[at] >= 0:
            break
        if full + share[at] > 1 or table[at] in table[taken]:
            continue
        size = index.size[0, block[at]]
        rank = int(np.where((free >= size[:, None]).all(axis=0), load, np.inf).argmin())
        if np.isinf(load[rank]) or (free[:, rank] < size).any():
            continue
        load[rank] += on[at, columns[0]]
        for tier, pool in enumerate(problem.pool_of_rank):
            free[tier, pool == pool[rank]] -= size[tier]
        full += float(share[at])
        taken.append(at)
        ranks.append(rank)
    longer_s = float(index.growth_of_step(growth[taken].sum(axis=0)[None], mean, none)[0])
    gain_s = _spared_s(index, steps) - longer_s
    if not taken or gain_s <= 0:
        return None
    nothing = np.zeros(0, dtype=np.int64)
    placed = Items(family[taken], index.whole[family[taken]], np.array(ranks, dtype=np.int64))
    return Respreading(gain_s, nothing, nothing, index.world_options[0][number[taken]], placed)


class _SpreadCandidates:
    """Tables that may be spread, and what that costs were all loads even."""

    def __init__(self, index: ExchangeIndex, items: Items, state: LoadState) -> None:
        self._index, self._state, problem = index, state, index.problem
        self._item, self._option = _spreadable(index, items)
        _, _, self._size = index.world_options
        self._mean: Floats = state.load[:, problem.reach].mean(axis=1)
        block = index.block_of[items.family[self._item], items.units[self._item]]
        kind = problem.kind_of_rank[items.rank[self._item]]
        self._growth: Floats = index.spread_growth(kind, block, self._option)
        """[n, C]"""
        self._off: Floats = index.load[kind, block]
        """[n, C] what the ranks that hold the tables get rid of; what replaces it loads all ranks alike."""

    def best_spread(self, steps: list[tuple[int, float, float]]) -> Respreading | None:
        """Return the cheapest tables that bring the mean of each step's column below it; None where that costs
        too much."""
        problem, state = self._index.problem, self._state
        columns = np.array([column for column, _, _ in steps])
        wanted = np.array([above_s + ROOM * problem.reach.sum() * height_s for _, above_s, height_s in steps])
        share = (self._off[:, columns] / wanted).min(axis=1)
        lowered = np.isin(problem.stage_of_column, problem.stage_of_column[columns])
        paid = self._growth + np.where(lowered, self._off / problem.world, 0.0)
        mean, size = self._mean.copy(), np.zeros(self._size.shape[1])
        open_to, taken, gained = share > 0, [], 0.0
        for part in range(1, PARTS + 1):
            helps = np.flatnonzero(open_to)
            cost = np.maximum(self._of_step(paid[helps], mean), 0.0)
            for at in helps[np.argsort(cost / share[helps], kind="stable")].tolist():
                if gained * PARTS >= part:
                    break
                if open_to[at]:
                    open_to[self._item == self._item[at]] = False
                    taken.append(at)
                    gained += float(share[at])
                    mean += self._growth[at]
                    size += self._size[self._option[at]] * self._index.sharing
        longer_s = float(self._of_step((mean - self._mean)[None], self._mean)[0])
        gain_s = _spared_s(self._index, steps) - longer_s
        if gained < 1 or gain_s <= 0 or (size > state.free.min(axis=1)).any():
            return None
        nothing = np.zeros(0, dtype=np.int64)
        options = self._index.world_options[0][self._option[taken]]
        return Respreading(gain_s, self._item[taken], options, nothing, Items(nothing, nothing, nothing))

    def _of_step(self, seconds: Floats, mean: Floats) -> Floats:
        return self._index.growth_of_step(seconds, mean, np.zeros(len(self._index.problem.stage_constants)))


def _steps(index: ExchangeIndex, state: LoadState, units: int) -> list[tuple[int, float, float]]:
    """Return for each stage whose longest resource is loaded in steps of so many units: its column, the seconds by
    which all ranks together are above the step next below the mean, and the height of a step."""
    problem = index.problem
    stepped = []
    peak = state.load.max(axis=1)
    for stage in np.unique(problem.stage_of_column).tolist():
        members = np.flatnonzero(problem.stage_of_column == stage)
        column = int(members[peak[members].argmax()])
        height_s = units * float(index.amount[column])
        load: Floats = state.load[column, problem.reach]
        mean_s = float(load.mean())
        below_s = level_below(load, height_s, mean_s) if height_s else None
        if below_s is not None:
            stepped.append((column, len(load) * (mean_s - below_s), height_s))
    return stepped


def _spreadable(index: ExchangeIndex, items: Items) -> tuple[Ints, Ints]:
    """Return whole tables on single ranks with each of their world-wide options: item [n], and number of the option
    among `world_options` [n]."""
    problem = index.problem
    options, _, _ = index.world_options
    table, whole = index.table_of_family[items.family], items.units == index.whole[items.family]
    of_option = problem.option_table[options]
    first, last = np.searchsorted(of_option, table), np.searchsorted(of_option, table, side="right")
    count = np.where(whole, last - first, 0)
    item = np.repeat(np.arange(len(table)), count)
    option = np.arange(len(item)) + np.repeat(first - (count.cumsum() - count), count)
    return item, option
