"""The true optimum of a tiny problem, by trying everything.

Written from the definition in the docstring of `planner.problem.arrays` alone: plain loops over ranks, columns and
pools, and nothing taken from there but the data. Partial placements are given up when they already take as long as the
best one known or overfill a memory, which is right because no load and no size is negative.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from planner.problem.arrays import Problem
from planner.problem.regions import TableGroup

Place = tuple[int, int]
"""(block, number of its site, or -1)."""


@dataclass(frozen=True)
class Optimum:
    """The shortest step, and one placement that takes it: for each table its option and the places of its blocks."""

    step_s: float
    choices: tuple[tuple[int, tuple[Place, ...]], ...]


@dataclass(frozen=True)
class _Choice:
    """One option of a table with its places, and what it adds to each (column, instance) and (tier, pool)."""

    option: int
    places: tuple[Place, ...]
    seconds: list[float]
    size: list[float]


_known: dict[int, tuple[Problem, Optimum | None]] = {}
"""By identity: many tests ask for the optima of the same tiny problems. Who holds a problem keeps its identity."""


def optimum(problem: Problem) -> Optimum | None:
    """The optimum, or None where no placement fits."""
    if id(problem) not in _known:
        _known[id(problem)] = problem, _computed(problem)
    return _known[id(problem)][1]


def _computed(problem: Problem) -> Optimum | None:
    slots = _Slots(problem)
    choices = [
        [choice for choice in _choices_of_table(problem, slots, table) if slots.fits(slots.base_size, choice.size)]
        for table in range(len(problem.table_rows))
    ]
    if not all(choices) or not slots.fits(slots.base_size, [0.0] * len(slots.base_size)):
        return None
    for of_table in choices:
        of_table.sort(key=lambda choice: slots.step_s(_sum(slots.base_seconds, choice.seconds)))
    order = sorted(range(len(choices)), key=lambda table: -slots.step_s(choices[table][0].seconds))
    best_s, best = float("inf"), None
    stack: list[_Choice] = []

    def descend(seconds: list[float], size: list[float]) -> None:
        nonlocal best_s, best
        step_s = slots.step_s(seconds)
        if step_s >= best_s:
            return
        if len(stack) == len(order):
            best_s, best = step_s, list(stack)
            return
        table = order[len(stack)]
        earlier = dict(zip(order, stack, strict=False))
        for choice in choices[table]:
            if slots.fits(size, choice.size) and _keeps_company(problem, table, choice, earlier):
                stack.append(choice)
                descend(_sum(seconds, choice.seconds), _sum(size, choice.size))
                stack.pop()

    descend(slots.base_seconds, slots.base_size)
    if best is None:
        return None
    by_table = dict(zip(order, best, strict=True))
    return Optimum(best_s, tuple((by_table[t].option, by_table[t].places) for t in range(len(order))))


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
        self.capacity = [float(problem.pool_capacity[m][p]) for m, p in pools]
        self.base_seconds, self.base_size = [0.0] * len(pairs), [0.0] * len(pools)
        for rank in ranks:
            kind = problem.kind_of_rank[rank]
            for c in columns:
                slot = self.seconds_slot[c, int(problem.resource_of_rank[c][rank])]
                self.base_seconds[slot] += float(problem.base_loads[kind][c])
            for m in tiers:
                slot = self.size_slot[m, int(problem.pool_of_rank[m][rank])]
                self.base_size[slot] += float(problem.base_bytes[m])

    def step_s(self, seconds: list[float]) -> float:
        busy = sum(max((seconds[slot] for slot in slots), default=0.0) for slots in self.stage_slots)
        return self.constant_s + busy

    def fits(self, taken: list[float], more: list[float]) -> bool:
        return all(a + b <= c for a, b, c in zip(taken, more, self.capacity, strict=True))


def _sum(first: list[float], second: list[float]) -> list[float]:
    return [a + b for a, b in zip(first, second, strict=True)]


def _choices_of_table(problem: Problem, slots: _Slots, table: int) -> Iterator[_Choice]:
    for option in range(len(problem.option_table)):
        if problem.option_table[option] == table:
            for places in _ways(problem, option):
                yield _costed(problem, slots, option, places)


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


def _keeps_company(problem: Problem, table: int, choice: _Choice, earlier: dict[int, _Choice]) -> bool:
    """Whether a table's places suit the groups that it is in, given those of the tables before it."""

    def zones(group: TableGroup, of: _Choice) -> set[int]:
        ranks = {rank for block, place in of.places for rank in _members(problem, block, place)}
        return {int(group.zone_of_rank[rank]) for rank in ranks}

    for group in problem.affinity_groups:
        if table in group.tables:
            others = [zones(group, earlier[t]) for t in group.tables.tolist() if t in earlier]
            if len(set.union(zones(group, choice), *others)) != 1:
                return False
    for group in problem.anti_affinity_groups:
        if table in group.tables:
            others = [zones(group, earlier[t]) for t in group.tables.tolist() if t in earlier]
            if any(zones(group, choice) & other for other in others):
                return False
    return True


def _on_different_ranks_of_one_node(problem: Problem, places: tuple[Place, ...]) -> bool:
    ranks = [rank for _, rank in places]
    return len(set(ranks)) == len(ranks) and len({int(problem.node_of_rank[rank]) for rank in ranks}) == 1


def _costed(problem: Problem, slots: _Slots, option: int, places: tuple[Place, ...]) -> _Choice:
    seconds, size = [0.0] * len(slots.base_seconds), [0.0] * len(slots.base_size)
    for block, place in places:
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
    assert min(seconds) >= 0
    assert min(size) >= 0
    return _Choice(option, places, seconds, size)


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
