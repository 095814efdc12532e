"""Tables to spread over the world so that a stage whose loads come in steps can end a step lower.

What a rank sends is a whole number of column units. Where most ranks stand on one step and the mean is above it, some
must stand on the next, however blocks are exchanged. The cheapest tables that bring the mean down to the step are
taken from single ranks; then exchanges can level the rest.
"""

import numpy as np

from planner.problem import Floats, Ints, LoadState
from planner.solvers.items import Items
from planner.solvers.trading import Goods

ALIKE = 0.5
"""Share of the ranks whose loads differ by whole steps."""
NEAR = 1e-3
"""Share of a step by which a load may be off it."""
ROOM = 0.1
"""Of the height of a step, by so much the mean is brought below it: exchanges need some room."""
DEAR = 0.8
"""Share of what the stages gain that spreading the tables may cost."""


def relief(goods: Goods, items: Items, state: LoadState) -> tuple[Ints, Ints]:
    """Items, whole tables on single ranks, and the world-wide option of each; none where it is not worth it."""
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    problem = goods.problem
    steps = _steps(goods, state)
    if not steps:
        return nothing
    item, option, off = _spreadable(goods, items)
    if not len(item):
        return nothing
    _, load, size = goods.world_options
    columns = np.array([column for column, _, _ in steps])
    wanted = np.array([above_s + ROOM * problem.reach.sum() * gain_s for _, above_s, gain_s in steps])
    share = ((off[:, columns] - problem.world * load[option][:, columns]) / wanted).min(axis=1)
    growth = load[option] - off / problem.world
    relieved = np.isin(problem.stage_of_column, problem.stage_of_column[columns])
    growth[:, relieved] = np.maximum(growth[:, relieved], 0.0)
    cost = np.maximum(goods.growth_of_step(growth, state.load.max(axis=1)), 0.0)
    helps = np.flatnonzero(share > 0)
    order = helps[np.argsort(cost[helps] / share[helps], kind="stable")]
    order = order[np.sort(np.unique(item[order], return_index=True)[1])]
    enough = int(np.searchsorted(np.cumsum(share[order]), 1.0)) + 1
    taken = order[:enough]
    fits = ((size[option[taken]] * goods.sharing).sum(axis=0) <= state.free.min(axis=1)).all()
    gained_s = sum(gain_s for _, _, gain_s in steps)
    if share[taken].sum() < 1 or cost[taken].sum() > DEAR * gained_s or not fits:
        return nothing
    return item[taken], goods.world_options[0][option[taken]]


def _steps(goods: Goods, state: LoadState) -> list[tuple[int, float, float]]:
    """For each stage whose longest resource is loaded in steps: its column, the seconds by which all ranks together are
    above the step next below the mean, and the height of a step."""
    problem = goods.problem
    found = []
    peak = state.load.max(axis=1)
    for stage in np.unique(problem.stage_of_column).tolist():
        members = np.flatnonzero(problem.stage_of_column == stage)
        column = int(members[peak[members].argmax()])
        height_s = _height(goods, column)
        if not height_s:
            continue
        load: Floats = state.load[column, problem.reach]
        beyond = np.round(np.mod(load, height_s) / height_s / NEAR) % round(1 / NEAR)
        usual, count = np.unique(beyond, return_counts=True)
        if count.max() < ALIKE * len(load):
            continue
        offset_s = float(usual[count.argmax()]) * NEAR * height_s
        mean_s = float(load.mean())
        below_s = offset_s + float(np.floor((mean_s - offset_s) / height_s)) * height_s
        found.append((column, len(load) * (mean_s - below_s), height_s))
    return found


def _height(goods: Goods, column: int) -> float:
    """Seconds of which all blocks of single ranks take whole multiples; 0 where there is nothing like that."""
    problem = goods.problem
    blocks = np.flatnonzero(problem.block_is_free)
    seconds = np.unique(np.round(goods.load[:, blocks, column], 15))
    seconds = seconds[seconds > 0]
    if not len(seconds):
        return 0.0
    height_s = float(min(seconds[0], np.diff(seconds).min(initial=np.inf)))
    parts = seconds / height_s
    return height_s if (np.abs(parts - np.round(parts)) < NEAR).all() else 0.0


def _spreadable(goods: Goods, items: Items) -> tuple[Ints, Ints, Floats]:
    """Whole tables on single ranks with each of their world-wide options: item [n], number of the option among
    `world_options` [n], and the seconds [n, C] that the item takes of its rank."""
    problem = goods.problem
    options, _, _ = goods.world_options
    table, whole = goods.table_of_family[items.family], items.units == goods.whole[items.family]
    of_option = problem.option_table[options]
    first, last = np.searchsorted(of_option, table), np.searchsorted(of_option, table, side="right")
    count = np.where(whole, last - first, 0)
    item = np.repeat(np.arange(len(table)), count)
    option = np.arange(len(item)) + np.repeat(first - (count.cumsum() - count), count)
    kind = problem.kind_of_rank[items.rank[item]]
    return item, option, goods.load[kind, goods.block_of[items.family[item], items.units[item]]]
