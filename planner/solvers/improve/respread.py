"""Tables to spread over the world, or to bring back from it, where a stage's loads come in steps.

What a rank sends is a whole number of column units. Where most ranks stand on one step and the mean is above it, some
must stand on the next, however blocks are exchanged. Either the cheapest tables that bring the mean down to the step
are taken from single ranks and spread over the world; or the dearest of those that are spread, as many as ranks have
room for below the next step, come back. Then exchanges can level the rest.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.load_steps import HEIGHTS, level_below
from planner.solvers.improve.exchanges import Goods
from planner.solvers.improve.items import Items, merged_items
from planner.solvers.improve.state import SearchState

ROOM = 0.04
"""Of the height of a step, by so much the mean is brought below it: exchanges need some room."""
PARTS = 20
"""Tables are chosen in so many parts; what one costs depends on those before."""


@dataclass(frozen=True)
class Respreading:
    """Tables that go from single ranks to the world, or come back."""

    gain_s: float
    """By which the step is shorter, were all loads even or on the step."""
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
    problem, items, held = state.problem, state.items, state.problem.block_option[state.settled.item_block]
    change = respreading(state.exchange_index, items, state.loads, held)
    if change is None:
        return False
    kept = np.ones(len(items.rank), dtype=bool)
    kept[change.items] = False
    left = ~np.isin(held, change.back)
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


def respreading(goods: Goods, items: Items, state: LoadState, held: Ints) -> Respreading | None:
    """The better of the two; None where neither is worth it. World-wide options are `held` so far.

    Steps are as high as most ranks' loads allow: whole blocks come in few widths, and what is between needs cuts.
    """
    for units in HEIGHTS if len(goods.world_options[0]) else ():
        steps = _steps(goods, state, units)
        if steps:
            found = [_Offers(goods, items, state).down(steps), _filling(goods, state, steps, held)]
            return max((one for one in found if one is not None), key=lambda one: one.gain_s, default=None)
    return None


def _spared_s(problem: Problem, steps: list[tuple[int, float, float]]) -> float:
    """Seconds from the means to the steps above them, but for the room that is left."""
    ranks = int(problem.reach.sum())
    return sum(height_s * (1 - ROOM) - above_s / ranks for _, above_s, height_s in steps)


def _filling(goods: Goods, state: LoadState, steps: list[tuple[int, float, float]], held: Ints) -> Respreading | None:
    """Tables of the `held` world-wide options that cost most there, back on the ranks with most room below the step
    above the mean; of clusters with one kind of rank."""
    problem = goods.problem
    number = np.flatnonzero(np.isin(goods.world_options[0], held))
    if problem.kinds > 1 or not len(number):
        return None
    of_family = goods.table_of_family
    table = problem.option_table[goods.world_options[0][number]]
    first, last = np.searchsorted(of_family, table), np.searchsorted(of_family, table, side="right")
    family = np.concatenate([np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    number = np.repeat(number, last - first)
    block = goods.block_of[family, goods.whole[family]]
    possible = (block >= 0) & ~problem.grouped[of_family[family]] & goods.allowed[0, block]
    number, family, block = number[possible], family[possible], block[possible]
    table = of_family[family]
    columns = np.array([column for column, _, _ in steps])
    room = np.array([height_s * (1 - ROOM) * problem.reach.sum() - above_s for _, above_s, height_s in steps])
    on = goods.load[0, block]
    share = (on[:, columns] / room).max(axis=1)
    growth = -goods.spread_growth(np.zeros(len(block), dtype=np.int64), block, number)
    filled = np.isin(problem.stage_of_column, problem.stage_of_column[columns])
    mean, none = state.load[:, problem.reach].mean(axis=1), np.zeros(len(problem.stage_constants))
    level = np.where(filled & ~np.isin(np.arange(len(mean)), columns), 0.0, mean)
    cost = goods.growth_of_step(growth - np.where(filled, on / problem.world, 0.0), level, none)
    load, free = np.where(problem.reach, state.load[columns[0]], np.inf), state.free.copy()
    taken: list[int] = []
    ranks: list[int] = []
    full = 0.0
    for at in np.argsort(cost / np.maximum(share, 1e-12), kind="stable").tolist():
        if cost[at] >= 0:
            break
        if full + share[at] > 1 or table[at] in table[taken]:
            continue
        size = goods.size[0, block[at]]
        rank = int(np.where((free >= size[:, None]).all(axis=0), load, np.inf).argmin())
        if np.isinf(load[rank]) or (free[:, rank] < size).any():
            continue
        load[rank] += on[at, columns[0]]
        for tier, pool in enumerate(problem.pool_of_rank):
            free[tier, pool == pool[rank]] -= size[tier]
        full += float(share[at])
        taken.append(at)
        ranks.append(rank)
    longer_s = float(goods.growth_of_step(growth[taken].sum(axis=0)[None], mean, none)[0])
    gain_s = _spared_s(problem, steps) - longer_s
    nothing = np.zeros(0, dtype=np.int64)
    placed = Items(family[taken], goods.whole[family[taken]], np.array(ranks, dtype=np.int64))
    return Respreading(gain_s, nothing, nothing, goods.world_options[0][number[taken]], placed) if taken else None


class _Offers:
    """Tables that may be spread, and what that costs were all loads even."""

    def __init__(self, goods: Goods, items: Items, state: LoadState) -> None:
        self._goods, self._state, problem = goods, state, goods.problem
        self._item, self._option = _spreadable(goods, items)
        _, _, self._size = goods.world_options
        self._mean: Floats = state.load[:, problem.reach].mean(axis=1)
        block = goods.block_of[items.family[self._item], items.units[self._item]]
        kind = problem.kind_of_rank[items.rank[self._item]]
        self._growth: Floats = goods.spread_growth(kind, block, self._option)
        """[n, C]"""
        self._off: Floats = goods.load[kind, block]
        """[n, C] what the ranks that hold the tables get rid of; what replaces it loads all ranks alike."""

    def down(self, steps: list[tuple[int, float, float]]) -> Respreading | None:
        """The cheapest ones that bring the mean of each step's column below it; None where that is too dear."""
        problem, state = self._goods.problem, self._state
        columns = np.array([column for column, _, _ in steps])
        wanted = np.array([above_s + ROOM * problem.reach.sum() * height_s for _, above_s, height_s in steps])
        share = (self._off[:, columns] / wanted).min(axis=1)
        relieved = np.isin(problem.stage_of_column, problem.stage_of_column[columns])
        paid = self._growth + np.where(relieved, self._off / problem.world, 0.0)
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
                    size += self._size[self._option[at]] * self._goods.sharing
        longer_s = float(self._of_step((mean - self._mean)[None], self._mean)[0])
        gain_s = _spared_s(problem, steps) - longer_s
        if gained < 1 or gain_s < 0 or (size > state.free.min(axis=1)).any():
            return None
        nothing = np.zeros(0, dtype=np.int64)
        options = self._goods.world_options[0][self._option[taken]]
        return Respreading(gain_s, self._item[taken], options, nothing, Items(nothing, nothing, nothing))

    def _of_step(self, seconds: Floats, mean: Floats) -> Floats:
        return self._goods.growth_of_step(seconds, mean, np.zeros(len(self._goods.problem.stage_constants)))


def _steps(goods: Goods, state: LoadState, units: int) -> list[tuple[int, float, float]]:
    """For each stage whose longest resource is loaded in steps of so many units: its column, the seconds by which all
    ranks together are above the step next below the mean, and the height of a step."""
    problem = goods.problem
    found = []
    peak = state.load.max(axis=1)
    for stage in np.unique(problem.stage_of_column).tolist():
        members = np.flatnonzero(problem.stage_of_column == stage)
        column = int(members[peak[members].argmax()])
        height_s = units * float(goods.amount[column])
        load: Floats = state.load[column, problem.reach]
        mean_s = float(load.mean())
        below_s = level_below(load, height_s, mean_s) if height_s else None
        if below_s is not None:
            found.append((column, len(load) * (mean_s - below_s), height_s))
    return found


def _spreadable(goods: Goods, items: Items) -> tuple[Ints, Ints]:
    """Whole tables on single ranks with each of their world-wide options: item [n], and number of the option among
    `world_options` [n]."""
    problem = goods.problem
    options, _, _ = goods.world_options
    table, whole = goods.table_of_family[items.family], items.units == goods.whole[items.family]
    of_option = problem.option_table[options]
    first, last = np.searchsorted(of_option, table), np.searchsorted(of_option, table, side="right")
    count = np.where(whole, last - first, 0)
    item = np.repeat(np.arange(len(table)), count)
    option = np.arange(len(item)) + np.repeat(first - (count.cumsum() - count), count)
    return item, option
