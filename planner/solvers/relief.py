"""Tables to spread over the world so that a stage whose loads come in steps can end a step lower.

What a rank sends is a whole number of column units. Where most ranks stand on one step and the mean is above it, some
must stand on the next, however blocks are exchanged. The cheapest tables that bring the mean down to the step are
taken from single ranks; then exchanges can level the rest.
"""

import numpy as np

from planner.problem import Floats, Ints, LoadState
from planner.solvers.items import Items
from planner.solvers.steps import HEIGHTS, level_below
from planner.solvers.trading import Goods

ROOM = 0.04
"""Of the height of a step, by so much the mean is brought below it: exchanges need some room."""
PARTS = 20
"""Tables are chosen in so many parts; what one costs depends on those before."""


def relief(goods: Goods, items: Items, state: LoadState) -> tuple[Ints, Ints]:
    """Items, whole tables on single ranks, and the world-wide option of each; none where it is not worth it.

    Steps are as high as most ranks' loads allow: whole blocks come in few widths, and what is between needs cuts.
    """
    for units in HEIGHTS if len(goods.world_options[0]) else ():
        steps = _steps(goods, state, units)
        if steps:
            found = _Offers(goods, items, state).down(steps)
            if found is not None:
                return found
            break
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)


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

    def down(self, steps: list[tuple[int, float, float]]) -> tuple[Ints, Ints] | None:
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
        spared_s = sum(height_s * (1 - ROOM) - above_s / problem.reach.sum() for _, above_s, height_s in steps)
        if gained < 1 or longer_s > spared_s or (size > state.free.min(axis=1)).any():
            return None
        return self._item[taken], self._goods.world_options[0][self._option[taken]]

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
