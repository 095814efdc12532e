"""The true optimum of a tiny problem, by trying everything.

Written from the definition in the docstring of `planner.problem.arrays` alone: plain loops over ranks, columns and
pools, and nothing taken from there but the data. Partial placements are given up when they already take as long as the
best one known or overfill a memory, which is right because no load and no size is negative.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.regions import TableGroup

Place = tuple[int, int]
"""(block, number of its site, or -1)."""


@dataclass(frozen=True)
class Optimum:
    """The shortest step, and one placement that takes it: for each table its option and the places of its blocks."""

    step_s: float
    choices: tuple[tuple[int, tuple[Place, ...]], ...]


class _Choices:
    """The options of a table with all their places, and what each adds to each (column, instance) and (tier, pool)."""

    def __init__(self, problem: Problem, slots: "_Slots", table: int) -> None:
        every = [
            (option, places)
            for option in range(len(problem.option_table))
            if problem.option_table[option] == table
            for places in _ways(problem, option)
        ]
        seconds = np.array([sum(slots.seconds(*each) for each in places) for _, places in every])
        size = np.array([sum(slots.size(*each) for each in places) for _, places in every])
        kept = np.flatnonzero(slots.fits(slots.base_size, size)) if every else np.zeros(0, dtype=np.int64)
        self.ways = [every[number] for number in kept.tolist()]
        self.seconds, self.size = (each[kept] if every else each for each in (seconds, size))


_known: dict[int, tuple[Problem, Optimum | None]] = {}
"""By identity: many tests ask for the optima of the same tiny problems. Who holds a problem keeps its identity."""


def optimum(problem: Problem) -> Optimum | None:
    """The optimum, or None where no placement fits."""
    if id(problem) not in _known:
        _known[id(problem)] = problem, _computed(problem)
    return _known[id(problem)][1]


def _computed(problem: Problem) -> Optimum | None:
    slots = _Slots(problem)
    choices = [_Choices(problem, slots, table) for table in range(len(problem.table_rows))]
    if not all(of_table.ways for of_table in choices) or (slots.base_size > slots.capacity).any():
        return None
    order = sorted(range(len(choices)), key=lambda table: -float(slots.step_s(choices[table].seconds).min()))
    best_s, best = float("inf"), None
    taken: dict[int, tuple[int, tuple[Place, ...]]] = {}

    def descend(seconds: np.ndarray, size: np.ndarray) -> None:
        nonlocal best_s, best
        if len(taken) == len(order):
            best_s, best = float(slots.step_s(seconds)), dict(taken)
            return
        table = order[len(taken)]
        of_table = choices[table]
        steps = np.where(slots.fits(size, of_table.size), slots.step_s(seconds + of_table.seconds), np.inf)
        for number in np.argsort(steps, kind="stable").tolist():
            if steps[number] >= best_s:
                return
            way = of_table.ways[number]
            if _keeps_company(problem, table, way[1], taken):
                taken[table] = way
                descend(seconds + of_table.seconds[number], size + of_table.size[number])
                del taken[table]

    descend(slots.base_seconds, slots.base_size)
    return None if best is None else Optimum(best_s, tuple(best[table] for table in range(len(order))))


class _Slots:
    """A number for each (column, instance) and each (tier, pool), the base of each, and the sums over them."""

    def __init__(self, problem: Problem) -> None:
        ranks = range(len(problem.kind_of_rank))
        columns, tiers = range(len(problem.stage_of_column)), range(len(problem.pool_capacity))
        pairs = [(c, i) for c in columns for i in sorted({int(problem.resource_of_rank[c][r]) for r in ranks})]
        self.seconds_slot = {pair: number for number, pair in enumerate(pairs)}
        self.stage_slots = [
            [self.seconds_slot[pair] for pair in pairs if problem.stage_of_column[pair[0]] == stage]
            for stage in range(len(problem.stage_constants))
        ]
        self.constant_s = sum(float(value) for value in problem.stage_constants)
        pools = [(m, p) for m in tiers for p in range(len(problem.pool_capacity[m]))]
        self.size_slot = {pair: number for number, pair in enumerate(pools)}
        self.capacity = np.array([float(problem.pool_capacity[m][p]) for m, p in pools])
        self.base_seconds, self.base_size = np.zeros(len(pairs)), np.zeros(len(pools))
        for rank in ranks:
            kind = problem.kind_of_rank[rank]
            for c in columns:
                slot = self.seconds_slot[c, int(problem.resource_of_rank[c][rank])]
                self.base_seconds[slot] += float(problem.base_loads[kind][c])
            for m in tiers:
                slot = self.size_slot[m, int(problem.pool_of_rank[m][rank])]
                self.base_size[slot] += float(problem.base_bytes[m])
        self._problem = problem
        self._costs: dict[Place, tuple[np.ndarray, np.ndarray]] = {}

    def step_s(self, seconds: np.ndarray) -> np.ndarray:
        """[...] the step of seconds [..., slots]: of every stage the longest, one after the other."""
        return self.constant_s + sum(seconds[..., slots].max(axis=-1) for slots in self.stage_slots if slots)

    def fits(self, taken: np.ndarray, more: np.ndarray) -> np.ndarray:
        """[n] whether so much more [n, slots] fits beside what is taken."""
        return (taken + more <= self.capacity).all(axis=-1)

    def seconds(self, block: int, place: int) -> np.ndarray:
        """What a block at a place adds to each (column, instance)."""
        return self._cost(block, place)[0]

    def size(self, block: int, place: int) -> np.ndarray:
        """What it adds to each (tier, pool)."""
        return self._cost(block, place)[1]

    def _cost(self, block: int, place: int) -> tuple[np.ndarray, np.ndarray]:
        if (block, place) not in self._costs:
            self._costs[block, place] = _costed(self._problem, self, block, place)
        return self._costs[block, place]


def _ways(problem: Problem, option: int) -> Iterator[tuple[Place, ...]]:
    """Every way to place the blocks of an option, of a free one in every tiling; equal blocks are not told apart."""
    types = [block for block in range(len(problem.block_option)) if problem.block_option[block] == option]
    where = {b: [place for place in _places(problem, b) if _is_allowed(problem, b, place)] for b in types}
    for counts in _tilings(problem, option, types):
        per_type = []
        for block, count in zip(types, counts, strict=True):
            groups = itertools.combinations_with_replacement(where[block], count)
            per_type.append([[(block, place) for place in group] for group in groups])
        for combination in itertools.product(*per_type):
            places = tuple(itertools.chain.from_iterable(combination))
            if not problem.option_colocated[option] or _on_different_ranks_of_one_node(problem, places):
                yield places


def _tilings(problem: Problem, option: int, types: list[int]) -> Iterator[tuple[int, ...]]:
    """How often each block type is taken: as it is said of a fixed option; in a free one so that the units are met."""
    whole = int(problem.option_units[option])
    if not whole:
        yield tuple(int(problem.block_count[block]) for block in types)
        return
    units = [int(problem.block_units[block]) for block in types]
    for counts in itertools.product(*(range(whole // width + 1) for width in units)):
        if sum(count * width for count, width in zip(counts, units, strict=True)) == whole:
            yield counts


def _places(problem: Problem, block: int) -> range:
    sites = problem.sites[problem.block_extent[block]]
    return range(-1, 0) if sites.reach == "world" else range(int(sites.of_rank[-1]) + 1)


def _members(problem: Problem, block: int, place: int) -> list[int]:
    """The ranks that take part in a placed block, in order."""
    sites, ranks = problem.sites[problem.block_extent[block]], range(len(problem.kind_of_rank))
    if sites.reach == "world":
        return list(ranks)
    return [rank for rank in ranks if sites.of_rank[rank] == place]


def _is_allowed(problem: Problem, block: int, place: int) -> bool:
    """By the kinds of the ranks, and by the rank set of the block's table."""
    ranks = problem.rank_sets[problem.table_rank_set[problem.option_table[problem.block_option[block]]]]
    members = _members(problem, block, place)
    return all(ranks[rank] and problem.allowed[problem.kind_of_rank[rank]][block] for rank in members)


def _keeps_company(
    problem: Problem, table: int, places: tuple[Place, ...], taken: dict[int, tuple[int, tuple[Place, ...]]]
) -> bool:
    """Whether a table's places suit the groups that it is in, given those of the tables before it."""

    def zones(group: TableGroup, of: tuple[Place, ...]) -> set[int]:
        ranks = {rank for block, place in of for rank in _members(problem, block, place)}
        return {int(group.zone_of_rank[rank]) for rank in ranks}

    for group in problem.affinity_groups:
        if table in group.tables:
            others = [zones(group, taken[t][1]) for t in group.tables.tolist() if t in taken]
            if len(set.union(zones(group, places), *others)) != 1:
                return False
    for group in problem.anti_affinity_groups:
        if table in group.tables:
            others = [zones(group, taken[t][1]) for t in group.tables.tolist() if t in taken]
            if any(zones(group, places) & other for other in others):
                return False
    return True


def _on_different_ranks_of_one_node(problem: Problem, places: tuple[Place, ...]) -> bool:
    ranks = [rank for _, rank in places]
    return len(set(ranks)) == len(ranks) and len({int(problem.node_of_rank[rank]) for rank in ranks}) == 1


def _costed(problem: Problem, slots: _Slots, block: int, place: int) -> tuple[np.ndarray, np.ndarray]:
    seconds, size = np.zeros(len(slots.base_seconds)), np.zeros(len(slots.base_size))
    members = _members(problem, block, place)
    for position, rank in enumerate(members):
        share = _row_share(problem, block, len(members), position)
        kind = problem.kind_of_rank[rank]
        for c in range(len(problem.stage_of_column)):
            slot = slots.seconds_slot[c, int(problem.resource_of_rank[c][rank])]
            seconds[slot] += float(problem.fixed[kind][block][c] + problem.by_rows[kind][block][c] * share)
        for m in range(len(problem.pool_capacity)):
            slot = slots.size_slot[m, int(problem.pool_of_rank[m][rank])]
            size[slot] += float(problem.bytes_fixed[kind][block][m] + problem.bytes_by_rows[kind][block][m] * share)
    for rank in range(len(problem.kind_of_rank)):
        for c in range(len(problem.stage_of_column)):
            slot = slots.seconds_slot[c, int(problem.resource_of_rank[c][rank])]
            seconds[slot] += float(problem.everywhere[problem.kind_of_rank[rank]][block][c])
    assert seconds.min() >= 0
    assert size.min() >= 0
    return seconds, size


def _row_share(problem: Problem, block: int, ranks: int, position: int) -> float:
    if problem.block_replicated[block]:
        return 1.0
    rows, copies = (
        int(problem.table_rows[problem.option_table[problem.block_option[block]]]),
        problem.block_copies[block],
    )
    size = -(-rows // (ranks // copies))
    part = position % (ranks // copies) if problem.copies_apart else position // copies
    return max(0, min(size, rows - part * size)) / (rows * copies)
