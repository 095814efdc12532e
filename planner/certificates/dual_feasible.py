"""Dual feasible functions: what a plan below a threshold may put on one rank, beyond the sum of its seconds and bytes.

A plan faster than z loads an instance of a resource by less than what z leaves of its stage, so the shares of that
room which its blocks take sum to one at most. A function u is dual feasible if the u(x) of any shares that sum to one
at most do so, too: blocks of 0.7 that leave holes which nothing fills count for more than 0.7. So every instance has
a room of one for the transformed shares, and a multiplier for it makes a Lagrangian bound, as memory does. The same
holds of the shares that blocks take of a memory pool, whatever the threshold: tables of 0.28 of a node's memory, and no
more than three of them. Resources and memory tiers are numbered together here: columns first, then tiers.

Sources: Fekete & Schepers, Math. Program. 91, 2001; Clautiaux, Alves & Valério de Carvalho, Ann. Oper. Res. 179, 2010.
Nothing here searches: the solver and the check of a proof both take their arithmetic from this module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.certificates.tilings import OptionTilings
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING


class PricedFunction(NamedTuple):
    """What a function proves of the instances of a column's resource, or the pools of a tier, that the ranks of a kind
    use; its multiplier."""

    kind: int
    columns: tuple[int, ...]
    """One column, where C + m is memory tier m; or columns of different stages, of resources that each rank has one
    of (`are_packed`)."""
    family: str
    parameter: float
    price_s: float
    """Seconds that the whole room of one instance is worth."""


class PackedItems(NamedTuple):
    """Loads, or bytes, that single ranks or memory pools get of blocks; n of them."""

    block: Ints
    """[n]"""
    amount: Floats
    """[n]"""
    ranks: Floats
    """[n] that get so much each."""


def _fekete_schepers(x: Floats, k: float | Floats) -> Floats:
    """u^(k): blocks of more than 1 / (k + 1) count as 1 / k."""
    return np.minimum(np.floor((k + 1) * x) / k, 1.0)


def _martello_toth(x: Floats, epsilon: float | Floats) -> Floats:
    """U^(epsilon): large blocks fill the rank, blocks that fit beside them count for nothing."""
    return np.where(x > 1 - epsilon, 1.0, np.where(x < epsilon, 0.0, x))


def _burdett_johnson(x: Floats, c: float | Floats) -> Floats:
    """f_BJ,1: the rounding of mixed integer cuts."""
    whole, part = np.floor(c), c - np.floor(c)
    floor = np.floor(c * x)
    return np.asarray((floor + np.maximum(c * x - floor - part, 0.0) / (1 - part)) / whole)


def _carlier(x: Floats, c: float | Floats) -> Floats:
    """f_CCM,1 (Carlier, Clautiaux & Moukrim, Comput. Oper. Res. 34, 2007): rounded down, and the rest of it up."""
    whole = np.floor(c)
    below = np.where(x < 0.5, np.floor(c * x) / whole, 0.5)
    return np.asarray(np.where(x > 0.5, 1 - np.floor(c * (1 - x)) / whole, below))


_MOST = 1e6
FAMILIES: Mapping[str, tuple[Callable[[Floats, float | Floats], Floats], float, float]] = {
    "fekete_schepers": (_fekete_schepers, 1.0, _MOST),
    "martello_toth": (_martello_toth, 0.0, 0.5),
    "burdett_johnson": (_burdett_johnson, 1.0, _MOST),
    "carlier_clautiaux_moukrim": (_carlier, 1.0, _MOST),
}
"""The function of shares and a parameter, and the range of the parameter. None decreases."""


def is_function(family: str, parameter: float) -> bool:
    """Whether there is such a function: a known family, its parameter in range, and whole where it must be."""
    if family not in FAMILIES:
        return False
    _, low, high = FAMILIES[family]
    return low <= parameter <= high and (family != "fekete_schepers" or parameter == int(parameter))


def transformed(family: str, parameter: float | Floats, shares: Floats) -> Floats:
    """[n] what the shares count for, or [p, n] with parameters [p, 1]; a share above one as one."""
    return np.asarray(FAMILIES[family][0](np.minimum(shares, 1.0), parameter))


@dataclass(frozen=True)
class StageRooms:
    """What the stages of a plan faster than a threshold last at most, constants aside."""

    moved_s: float
    """All stages together."""
    least: Floats
    """[S] seconds that each stage lasts at least."""
    roofs: Floats
    """[S] seconds that each stage is limited to."""

    def seconds(self, stages: list[int]) -> float:
        """The seconds of some stages together."""
        alone = np.minimum(self._left(self.least[stages]), self.roofs[stages])
        return float(min(alone.sum(), self._left(self.least[stages].sum())))

    def _left(self, own: Floats) -> Floats:
        """What stages that last so long at least are left of all by the others."""
        return np.asarray(self.moved_s - (self.least.sum() - own) * (1 - ROUNDING))


def stage_rooms(problem: Problem, threshold_s: float, least: Floats) -> StageRooms:
    """What stages of a plan faster than the threshold last at most.

    Every plan takes `least` [S] seconds in the stages, and no more than the problem's limits on them.
    """
    roofs = np.full(len(least), np.inf)
    if problem.stage_limits is not None:
        roofs = problem.stage_limits.roofs * (1 + ROUNDING)
    return StageRooms(threshold_s * (1 + ROUNDING) - float(problem.stage_constants.sum()), least, roofs)


def packed_rows(problem: Problem) -> int:
    """Columns and memory tiers that functions may be of."""
    return len(problem.stage_of_column) + len(problem.pool_capacity)


def have_own_instances(problem: Problem) -> Bools:
    """[C] whether each rank has an instance of the column's resource to itself."""
    return np.array([len(np.unique(instance)) == problem.world for instance in problem.resource_of_rank], dtype=bool)


def are_packed(problem: Problem, columns: tuple[int, ...]) -> bool:
    """Whether functions may be of what blocks take of these columns together."""
    if len(columns) == 1:
        return 0 <= columns[0] < packed_rows(problem)
    if not columns or min(columns) < 0 or max(columns) >= len(problem.stage_of_column):
        return False
    is_of_own_stage = len(np.unique(problem.stage_of_column[list(columns)])) == len(columns)
    return is_of_own_stage and bool(have_own_instances(problem)[list(columns)].all())


def shares_of(problem: Problem, kind: int, columns: tuple[int, ...], rooms: StageRooms, amounts: Floats) -> Floats:
    """[n] what `amounts` [n] are of the room that the base leaves, rounded down; of the largest pool of a tier."""
    tier = columns[0] - len(problem.stage_of_column)
    if tier >= 0:
        pool, used = problem.pool_of_rank[tier], problem.reach & (problem.kind_of_rank == kind)
        free = problem.pool_capacity[tier] - np.bincount(pool) * problem.base_bytes[tier]
        room = float(free[pool[used]].max(initial=0.0)) * (1 + ROUNDING)
    else:
        base = float(problem.extremes.base_of_instance[kind, list(columns)].sum())
        room = rooms.seconds(problem.stage_of_column[list(columns)].tolist()) - base + abs(base) * ROUNDING
    return np.asarray(amounts * (1 - ROUNDING) / max(room, 1e-300))


def instances(problem: Problem, kind: int, columns: tuple[int, ...]) -> int:
    """Instances of a column's resource, or pools of a tier, that the ranks of a kind use, of those that tables may;
    ranks, where there are several columns."""
    used = problem.reach & (problem.kind_of_rank == kind)
    tier = columns[0] - len(problem.stage_of_column)
    return len(np.unique((problem.resource_of_rank[columns[0]] if tier < 0 else problem.pool_of_rank[tier])[used]))


def placed_items(problem: Problem, kind: int, columns: tuple[int, ...], blocks: Ints) -> PackedItems:
    """What ranks, or pools, of a kind get of blocks if they are placed there, for each sort that holds a part."""
    tier = columns[0] - len(problem.stage_of_column)
    if tier < 0:
        fixed, by_rows = (_together(load[kind], blocks, columns) for load in (problem.fixed, problem.by_rows))
        return _items_of_ranks(problem, kind, blocks, fixed, by_rows)
    fixed, by_rows = problem.bytes_fixed[kind, blocks, tier], problem.bytes_by_rows[kind, blocks, tier]
    whole = _in_one_pool(problem, tier)[problem.block_extent[blocks]]
    holders = problem.row_shares.holders[kind, blocks]
    size = fixed * holders + by_rows * np.where(problem.block_replicated[blocks], holders, 1)
    held = np.flatnonzero(whole & (size > 0))
    rest = np.flatnonzero(~whole)
    others = _items_of_ranks(problem, kind, blocks[rest], fixed[rest], by_rows[rest])
    return PackedItems(
        np.concatenate([held, rest[others.block]]),
        np.concatenate([size[held], others.amount]),
        np.concatenate([np.ones(len(held)), others.ranks]),
    )


def _together(load: Floats, blocks: Ints, columns: tuple[int, ...]) -> Floats:
    """[n] what blocks [n] take of some columns together, of a `load` [B, C]."""
    return np.asarray(sum(load[blocks, column] for column in columns))


def _in_one_pool(problem: Problem, tier: int) -> Bools:
    """[E] whether each site of an extent draws on one pool of the tier."""
    pool = problem.pool_of_rank[tier]
    return np.array(
        [sites.reach != "world" and bool((pool[sites.first[sites.of_rank]] == pool).all()) for sites in problem.sites]
    )


def _items_of_ranks(problem: Problem, kind: int, blocks: Ints, fixed: Floats, by_rows: Floats) -> PackedItems:
    """What single ranks of a kind get of blocks: each `fixed` [n], and its share of `by_rows` [n]."""
    rows, is_world_wide = problem.block_rows[blocks], problem.is_world_wide[blocks]
    of_kind = np.flatnonzero(problem.kind_of_rank == kind)
    whole = problem.is_on_rank[blocks] | problem.block_replicated[blocks]
    size, copies = -(-rows // problem.row_shares.cuts[kind, blocks]), problem.block_copies[blocks]
    full = rows // size * copies
    full_ranks = np.where(is_world_wide, np.searchsorted(of_kind, full), full)
    ranks, of_all = problem.row_shares.holders[kind, blocks], rows * copies
    rest = np.where(is_world_wide, np.isin(full, of_kind), 1) * (rows % size > 0) * copies
    sorts = [
        (np.flatnonzero(whole), fixed + by_rows, np.where(is_world_wide, len(of_kind), 1)),
        (np.flatnonzero(~whole), fixed + by_rows * (size / of_all), full_ranks),
        (np.flatnonzero(~whole), fixed + by_rows * (rows % size / of_all), rest),
        (np.flatnonzero(~whole), fixed, ranks - full_ranks - rest),
    ]
    some = [(at[(count[at] > 0) & (load[at] > 0)], load, count) for at, load, count in sorts]
    return PackedItems(
        np.concatenate([at for at, _, _ in some]),
        np.concatenate([load[at] for at, load, _ in some]),
        np.concatenate([count[at] for at, _, count in some]).astype(float),
    )


def everywhere_items(problem: Problem, kind: int, columns: tuple[int, ...], blocks: Ints) -> PackedItems:
    """What all ranks of a kind get of blocks wherever these are placed; of memory, nothing."""
    if columns[0] >= len(problem.stage_of_column):
        return PackedItems(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    seconds = _together(problem.everywhere[kind], blocks, columns)
    loading = np.flatnonzero(seconds > 0)
    ranks = float((problem.reach & (problem.kind_of_rank == kind)).sum())
    return PackedItems(loading, seconds[loading], np.full(len(loading), ranks))


def items_of_blocks(problem: Problem, kind: int, columns: tuple[int, ...]) -> tuple[PackedItems, PackedItems]:
    """What all blocks bring, each once: where they are placed on a kind, and wherever they are."""
    blocks = np.arange(len(problem.block_option))
    return placed_items(problem, kind, columns, blocks), everywhere_items(problem, kind, columns, blocks)


def counted_shares(
    problem: Problem, function: PricedFunction, items: tuple[PackedItems, PackedItems], rooms: StageRooms
) -> tuple[Floats, Floats]:
    """[B] what blocks count for whose `items` these are, where they are placed on the function's kind, and [B] wherever
    they are."""
    kind, columns, family, parameter, _ = function

    def counted(each: PackedItems) -> Floats:
        share = transformed(family, parameter, shares_of(problem, kind, columns, rooms, each.amount))
        many = np.bincount(each.block, weights=each.ranks * share, minlength=len(problem.block_option))
        return np.asarray(many, dtype=float)

    return counted(items[0]), counted(items[1])


def priced_shares(
    problem: Problem, functions: tuple[PricedFunction, ...], rooms: StageRooms
) -> tuple[Floats, Floats, float]:
    """What blocks pay: [K, B] where they are placed on a kind, and [B] wherever they are; and what all room costs."""
    placed, paid = np.zeros((problem.kinds, len(problem.block_option))), 0.0
    anywhere = np.zeros(len(problem.block_option))
    for function in functions:
        items = items_of_blocks(problem, function.kind, function.columns)
        there, spread = counted_shares(problem, function, items, rooms)
        placed[function.kind] += function.price_s * there
        anywhere += function.price_s * spread
        paid += function.price_s * instances(problem, function.kind, function.columns)
    return placed, anywhere, paid


def cheapest_wholes(problem: Problem, values: Floats, widths: list[OptionTilings]) -> tuple[Floats, Ints, list[Ints]]:
    """[T] least value of each table, its columns cut into whole blocks; [T] the option; and the tilings behind it.

    `values` [B] are those of the blocks, infinite where one may not be.
    """
    options = np.full(len(problem.option_table), np.inf)
    fixed = np.flatnonzero(problem.option_units == 0)
    total = np.add.reduceat(
        np.where(problem.block_is_splittable, 0.0, values * problem.block_count), problem.block_start[:-1]
    )
    options[fixed] = total[fixed]
    ends = np.append(values, np.inf)
    tilings = []
    for of_units in widths:
        best, width = of_units.cheapest(ends)
        options[of_units.options] = best[:, -1]
        tilings.append(width)
    cheapest = np.full(problem.tables, np.inf)
    np.minimum.at(cheapest, problem.option_table, options)
    best_options = np.flatnonzero(options == cheapest[problem.option_table])
    _, first = np.unique(problem.option_table[best_options], return_index=True)
    return cheapest, best_options[first], tilings


def taken_blocks(problem: Problem, chosen: Ints, widths: list[OptionTilings], tilings: list[Ints]) -> Floats:
    """[B] how often each block is taken by the chosen options [T] and their tilings."""
    options = np.zeros(len(problem.option_table), dtype=bool)
    options[chosen] = True
    mine = options[problem.block_option] & ~problem.block_is_splittable
    taken = np.where(mine, problem.block_count, 0).astype(float)
    for of_units, width in zip(widths, tilings, strict=True):
        of_units.count(width, options[of_units.options], taken)
    return taken
