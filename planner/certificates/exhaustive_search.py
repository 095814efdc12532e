"""Every plan of a small problem that may be below a threshold: table by table, all that are alike counted once.

Partial plans grow in layers. After each table those are left out that overfill a memory, break the policy, or cannot
stay below the threshold: by what they load already, by what the tables still to come add to the mean load of a
resource at least, or at given multipliers. Two partial plans are alike where ranks that nothing tells apart change
places; one of them goes on. This is dynamic programming over the loads (Bellman, 1957) as far as loads are alike.

Nothing here depends on a solver: a plan document claims a threshold, and the check tries every plan again.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK
from planner.problem.integrality import grain_seconds
from planner.problem.load_state import LoadState, place_block
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING
from planner.problem.symmetry import rank_symmetry

NEAR = 1e-7
"""Relative distance below the threshold within which a plan is not looked for."""
BYTES, RELATIVE_BYTES = 1e-3, 1e-13
"""By how much a memory may seem over-full: sums of doubles; of its capacity."""
QUANTUM = 1e-12
"""Loads that differ by less, relative to the largest, are equal."""
MOST_WAYS = 4_000
"""To hold one table, at most."""
MOST_PAIRS = 8_000
"""Block types x ranks, at most."""
MOST_NUMBERS = 20_000_000
"""That the partial plans of one layer may be made of."""
LATER_LAYERS = 0.5
"""Work on each layer still to come, over that on the last one: where that is more than what is left, it is given up."""
OF_A_PAIR = 8
"""Numbers that take as long as one of the numbers of a block at a place, which are worked out one block at a time."""
AT_ONCE = 1_000_000
"""Numbers that are worked on at once."""
CHECK_WORK = 5e9
"""Numbers beyond which a check gives up: more than any search takes."""


class Tried(NamedTuple):
    """The best plan below the threshold, where there is one."""

    step_s: float
    """Infinite where there is none."""
    placement: Placement | None
    work: float
    """Numbers worked on."""


@dataclass(frozen=True)
class _Ways:
    """All ways to hold one table. n ways."""

    items: list[list[tuple[int, int]]]
    """(block, place) of each."""
    added: Floats
    """[n, R, W] what each adds to the rows of a partial plan."""
    linear: Floats
    """[n, J] what each adds to the mean loads, the total bytes and the value at the multipliers."""


def try_all(
    problem: Problem,
    threshold_s: float,
    weight: Floats | None = None,
    byte: Floats | None = None,
    work: float = CHECK_WORK,
    is_over: Callable[[], bool] = lambda: False,
) -> Tried | None:
    """The fastest plan that is faster than `threshold_s`, if any; None where that takes more than `work` numbers, or
    when `is_over`, asked now and then, says so.

    `weight` [D, C] and `byte` [D, M] are multipliers as in `planner.certificates.multipliers`: the better, the less
    there is to try. Any are right.
    """
    if len(problem.block_option) * problem.world > MOST_PAIRS:
        return None
    return _Layers(problem, threshold_s, weight, byte, work, is_over).run()


def proven_s(threshold_s: float) -> float:
    """What it proves that no plan was found below a threshold."""
    return threshold_s * (1 - 1.1 * NEAR)


class _Layer(NamedTuple):
    """Partial plans. n of them."""

    parent: Ints
    """[n] in the layer before."""
    way: Ints
    """[n] of the last table."""
    rows: Floats
    """[n, R, W]"""
    linear: Floats
    """[n, J]"""

    def only(self, which: Ints) -> "_Layer":
        """Some of them."""
        return _Layer(self.parent[which], self.way[which], self.rows[which], self.linear[which])


class _TooMuchError(Exception):
    """More to try than the work allows."""


class _Layers:
    """Partial plans by their rows: C loads, M memories in use, one mark for each group; each [W]."""

    def __init__(
        self,
        problem: Problem,
        threshold_s: float,
        weight: Floats | None,
        byte: Floats | None,
        work: float,
        is_over: Callable[[], bool],
    ) -> None:
        self.problem, self.left, self.all_work, self.is_over = problem, work, work, is_over
        self.target = threshold_s * (1 - NEAR)
        self.columns, self.pools = len(problem.stage_of_column), len(problem.pool_capacity)
        self.groups = [*problem.together, *problem.apart]
        self.blank = LoadState(problem)
        capacity = [of_pool[pool] for of_pool, pool in zip(problem.pool_capacity, problem.pool_of_rank, strict=True)]
        self.capacity = np.stack(capacity)
        self.base = np.concatenate(
            [self.blank.load, self.capacity - self.blank.free, np.zeros((len(self.groups), problem.world))]
        )
        self.room = self.capacity + BYTES + RELATIVE_BYTES * np.abs(self.capacity)
        self.grain = grain_seconds(problem)
        self.idle_s = 0.0
        """What the share of the weights that lies on nothing adds to the value at the multipliers."""
        self.functional = self._functionals(weight, byte)
        self.symmetry = rank_symmetry(problem)
        self.stage_columns = [np.flatnonzero(problem.stage_of_column == s) for s in range(len(problem.stage_constants))]
        self.constant = float(problem.stage_constants.sum())

    def _functionals(self, weight: Floats | None, byte: Floats | None) -> Floats:
        """[J, R, W] mean of each column's instances, total of each tier's pools, and the value at the multipliers."""
        problem, world = self.problem, self.problem.world
        opens = np.ones((self.columns + self.pools, world), dtype=bool)
        instances = np.concatenate([problem.resource_of_rank, problem.pool_of_rank])
        opens[:, 1:] = instances[:, 1:] != instances[:, :-1]
        rows = len(self.base)
        found = np.zeros((len(opens) + 1, rows, world))
        for row, first in enumerate(opens):
            found[row, row, first] = 1.0 / first.sum() if row < self.columns else 1.0
        if weight is not None and byte is not None:
            kind = problem.kind_of_rank
            both = np.concatenate([weight[kind].T, byte[kind].T])
            for row, instance in enumerate(instances):
                within = np.isin(instance, np.unique(instance[problem.reach]))
                both[row] = np.where(opens[row] & within, np.maximum(both[row], 0.0), 0.0)
            for stage in range(len(problem.stage_constants)):
                own = np.flatnonzero(problem.stage_of_column == stage)
                both[own] /= max(1.0, float(both[own].sum()))
                self.idle_s += max(0.0, 1.0 - float(both[own].sum())) * float(self.grain[stage])
            found[-1, : len(opens)] = both
        return found

    # -- the ways to hold a table --------------------------------------------------------------------------------

    def _ways(self, table: int) -> _Ways | None:
        """The ways that fit by themselves; None where there are none."""
        problem = self.problem
        blocks = np.arange(*problem.table_block_start[table : table + 2])
        pairs = [(int(block), place) for block in blocks for place in self._places(int(block))]
        if not pairs:
            return None
        self._spend(OF_A_PAIR * len(pairs) * self.base.size)
        rows = np.stack([self._rows_of(block, place) for block, place in pairs])
        covers = np.stack([self._ranks_of(block, place) for block, place in pairs])
        fits = self._is_possible(self.base + rows, self._linear(rows) + self._linear(self.base[None]))
        number = {pair: i for i, pair in enumerate(pairs) if fits[i]}
        items: list[list[tuple[int, int]]] = []
        for option in range(problem.option_start[table], problem.option_start[table + 1]):
            for way in self._ways_of_option(option, number):
                items.append(way)
                self._spend(self.base.size)
                if len(items) > MOST_WAYS:
                    raise _TooMuchError
        if not items:
            return None
        taken = np.zeros((len(items), len(pairs)))
        for i, way in enumerate(items):
            for pair in way:
                taken[i, number[pair]] += 1.0
        added = np.tensordot(taken, rows, axes=1)
        kept = np.ones(len(items), dtype=bool)
        for g, group in enumerate(self.groups):
            if table in group.tables:
                zones = group.zone_of_rank[:, None] == group.zone_of_rank
                on = ((taken @ covers) > 0) @ zones > 0
                added[:, self.columns + self.pools + g] = on
                if g < len(problem.together):
                    first = group.zone_of_rank[on.argmax(axis=1)]
                    kept &= (on == (group.zone_of_rank == first[:, None])).all(axis=1)
        linear = self._linear(added)
        kept &= self._is_possible(self.base + added, linear + self._linear(self.base[None]))
        of = np.flatnonzero(kept)
        return _Ways([items[i] for i in of], added[of], linear[of]) if len(of) else None

    def _places(self, block: int) -> list[int]:
        problem, extent = self.problem, self.problem.block_extent[block]
        may = problem.may_hold(block)
        if extent == RANK:
            return [int(rank) for rank in np.flatnonzero(may)]
        if extent == NODE:
            return [int(node) for node in np.flatnonzero(np.logical_and.reduceat(may, problem.node_start[:-1]))]
        return [-1] if may.all() else []

    def _rows_of(self, block: int, place: int) -> Floats:
        """[R, W] what a block adds at a place."""
        state = self.blank.copy()
        state.load[:], state.free[:] = 0.0, 0.0
        place_block(self.problem, state, block, place)
        state.add_everywhere(self.problem.everywhere[:, block])
        return np.concatenate([state.load, -state.free, np.zeros((len(self.groups), self.problem.world))])

    def _ranks_of(self, block: int, place: int) -> Floats:
        """[W] 1 for ranks that hold a part of the block."""
        extent = self.problem.block_extent[block]
        every = np.arange(self.problem.world)
        if extent == RANK:
            return np.asarray((every == place).astype(float))
        return np.asarray((self.problem.node_of_rank == place).astype(float) if extent == NODE else np.ones(len(every)))

    def _ways_of_option(self, option: int, number: dict[tuple[int, int], int]) -> Iterator[list[tuple[int, int]]]:
        """Items of each way to place an option's blocks where these may be; equal blocks are not told apart."""
        problem = self.problem
        start, stop = problem.block_start[option : option + 2].tolist()
        where = {b: [place for block, place in number if block == b] for b in range(start, stop)}
        tied = bool(problem.option_tied[option])
        for counts in self._counts(option, where):
            if math.prod(math.comb(len(where[b]) + n - 1, n) for b, n in counts) > MOST_WAYS:
                raise _TooMuchError
            groups = [itertools.combinations_with_replacement(where[b], n) for b, n in counts]
            for combination in itertools.product(*groups):
                way = [(b, place) for (b, _), places in zip(counts, combination, strict=True) for place in places]
                if not tied or self._is_tied_right([place for _, place in way]):
                    yield way

    def _is_tied_right(self, ranks: list[int]) -> bool:
        return len(set(ranks)) == len(ranks) and len({int(self.problem.node_of_rank[rank]) for rank in ranks}) == 1

    def _counts(self, option: int, where: dict[int, list[int]]) -> Iterator[list[tuple[int, int]]]:
        """(block, how often) of each way to make up an option of blocks that have a place."""
        problem = self.problem
        whole = int(problem.option_units[option])
        if not whole:
            if all(where.values()):
                yield [(block, int(problem.block_count[block])) for block in where]
            return
        widths = [(block, int(problem.block_units[block])) for block, places in where.items() if places]
        stack: list[tuple[int, int, list[tuple[int, int]]]] = [(len(widths), whole, [])]
        steps = 0
        while stack:
            at, left, taken = stack.pop()
            steps += 1
            if steps > 10 * MOST_WAYS:
                raise _TooMuchError
            if not left:
                yield taken
            elif at:
                block, units = widths[at - 1]
                for times in range(left // units + 1):
                    more = [(block, times)] if times else []
                    stack.append((at - 1, left - times * units, [*taken, *more]))

    # -- what partial plans take ---------------------------------------------------------------------------------

    def _linear(self, rows: Floats) -> Floats:
        """[n, J] the functionals of rows [n, R, W]."""
        return np.asarray(np.tensordot(rows, self.functional, axes=([1, 2], [1, 2])))

    def _is_possible(self, rows: Floats, linear: Floats) -> Bools:
        """[n] whether plans with these rows [n, R, W], and at least these functionals, may be below the threshold."""
        columns, pools = self.columns, self.pools
        may = np.asarray((rows[:, columns : columns + pools] <= self.room).all(axis=(1, 2)))
        return may & (self._least_step(rows, linear) * (1 - ROUNDING) < self.target)

    def _least_step(self, rows: Floats, linear: Floats) -> Floats:
        longest = rows[:, : self.columns].max(axis=2)
        longest = np.maximum(longest, linear[:, : self.columns])
        step = np.full(len(rows), self.constant)
        for columns, least in zip(self.stage_columns, self.grain.tolist(), strict=True):
            step += longest[:, columns].max(axis=1, initial=least)
        return step

    def _may_grow(self, linear: Floats) -> Bools:
        """[...] whether functionals [..., J] leave it possible to fit and to be below the threshold."""
        columns, pools = self.columns, self.pools
        means = linear[..., :columns]
        step = np.full(linear.shape[:-1], self.constant)
        for own, least in zip(self.stage_columns, self.grain.tolist(), strict=True):
            step += means[..., own].max(axis=-1, initial=least)
        may = step * (1 - ROUNDING) < self.target
        may &= (linear[..., columns : columns + pools] <= self.total_room).all(axis=-1)
        value = linear[..., -1] + self.idle_s - self.paid + self.constant
        return np.asarray(may & (value - self.slack < self.target))

    # -- layers ---------------------------------------------------------------------------------------------------

    def run(self) -> Tried | None:
        """Layer by layer."""
        try:
            return self._run()
        except _TooMuchError:
            return None

    def _run(self) -> Tried:
        problem, nothing = self.problem, Tried(np.inf, None, 0.0)
        room = np.zeros_like(self.base)
        room[self.columns : self.columns + self.pools] = self.room
        totals = self._linear(room[None])[0]
        self.total_room, self.paid = totals[self.columns : self.columns + self.pools], float(totals[-1])
        self.slack = 0.0
        base = self._linear(self.base[None])
        if not self._is_possible(self.base[None], base).all():
            return nothing
        ways = [self._ways(table) for table in range(problem.tables)]
        known = [of_table for of_table in ways if of_table is not None]
        if len(known) < len(ways):
            return nothing
        least = [of_table.linear.min(axis=0) for of_table in known]
        self.slack = ROUNDING * (self.paid + float(base[0, -1]) + sum(float(of_table[-1]) for of_table in least))
        alone = [float(self._least_step(of.added, np.zeros((len(of.items), base.shape[1]))).min()) for of in known]
        order = sorted(range(problem.tables), key=lambda table: -alone[table])
        rows, linear = self.base[None], base
        trail: list[tuple[Ints, Ints]] = []
        for at, table in enumerate(order):
            left = self.left
            is_last = at + 1 == len(order)
            rest = np.zeros(base.shape[1]) + sum(least[later] for later in order[at + 1 :])
            earlier = [sum(before in group.tables for before in order[:at]) for group in self.groups]
            lots = self._grown(known[table], table, rows, linear, rest, earlier)
            kept = self._best(lots) if is_last else self._unlike(self._joined(lots, rows, linear))
            trail.append((kept.parent, kept.way))
            rows, linear = kept.rows, kept.linear
            if (left - self.left) * (len(order) - at - 1) * LATER_LAYERS > self.left:
                raise _TooMuchError
            if not len(rows):
                return nothing._replace(work=self.all_work - self.left)
        step, index = float(self._least_step(rows, np.zeros_like(linear))[0]), 0
        items: list[tuple[int, int]] = []
        for (parent, way), table in zip(reversed(trail), reversed(order), strict=True):
            items += known[table].items[int(way[index])]
            index = int(parent[index])
        items.sort()
        placement = Placement(np.array([b for b, _ in items]), np.array([p for _, p in items]))
        return Tried(step, placement, self.all_work - self.left)

    def _grown(
        self, ways: _Ways, table: int, rows: Floats, linear: Floats, rest: Floats, earlier: list[int]
    ) -> Iterator[_Layer]:
        """Partial plans with one more table that may stay below the threshold, lot by lot."""
        numbers = rows[0].size
        per_lot = max(1, AT_ONCE // max(len(ways.items) * linear.shape[1], 1))
        for first in range(0, len(rows), per_lot):
            some = slice(first, first + per_lot)
            grid = linear[some, None] + ways.linear + rest
            self._spend(grid.size)
            parents, chosen = np.nonzero(self._may_grow(grid) & self._keeps_company(rows[some], ways, table, earlier))
            for begin in range(0, len(parents), max(1, AT_ONCE // numbers)):
                part = slice(begin, begin + max(1, AT_ONCE // numbers))
                p, w = parents[part] + first, chosen[part]
                self._spend(len(p) * numbers)
                new, total = rows[p] + ways.added[w], linear[p] + ways.linear[w]
                kept = np.flatnonzero(self._is_possible(new, total + rest))
                if len(kept):
                    yield _Layer(p[kept], w[kept], new[kept], total[kept])

    def _joined(self, lots: Iterator[_Layer], rows: Floats, linear: Floats) -> _Layer:
        """All lots as one; empty ones are like `rows` and `linear`."""
        nothing = np.zeros(0, dtype=np.int64)
        found, size = [_Layer(nothing, nothing, rows[:0], linear[:0])], 0
        for lot in lots:
            found.append(lot)
            size += lot.rows.size
            if size > MOST_NUMBERS:
                raise _TooMuchError
        return _Layer(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _best(self, lots: Iterator[_Layer]) -> _Layer:
        """The fastest one only; with every better one the target falls."""
        nothing = np.zeros(0, dtype=np.int64)
        best = _Layer(nothing, nothing, self.base[None][:0], self._linear(self.base[None])[:0])
        for lot in lots:
            step = self._least_step(lot.rows, np.zeros_like(lot.linear))
            at = int(step.argmin())
            if step[at] < self.target:
                best = lot.only(np.array([at]))
                self.target = float(step[at]) * (1 - NEAR)
        return best

    def _spend(self, numbers: int) -> None:
        self.left -= numbers
        if self.left < 0 or self.is_over():
            raise _TooMuchError

    def _keeps_company(self, rows: Floats, ways: _Ways, table: int, earlier: list[int]) -> Bools:
        """[P, n] whether the groups of the table allow each way beside what partial plans hold."""
        may = np.ones((len(rows), len(ways.items)), dtype=bool)
        for g, group in enumerate(self.groups):
            if table not in group.tables or not earlier[g]:
                continue
            row = self.columns + self.pools + g
            on = ways.added[:, row]
            held = rows[:, row] @ on.T
            if g < len(self.problem.together):
                may &= held == earlier[g] * on.sum(axis=1)
            else:
                may &= held == 0
        return may

    def _unlike(self, layer: _Layer) -> _Layer:
        """One of each lot of partial plans that are alike but for ranks that nothing tells apart."""
        rows = layer.rows
        if not len(rows):
            return layer
        scale = np.maximum(np.abs(rows).max(axis=(0, 2)), 1e-300)[:, None] * QUANTUM
        table = np.rint(rows / scale).astype(np.int64)
        draw = np.random.default_rng(0)
        odd = draw.integers(1, 2**62, size=table.shape[1], dtype=np.int64) * 2 + 1
        mark = (table * odd[:, None]).sum(axis=1)
        mark ^= mark >> 29
        order = self.symmetry.order(mark, draw)
        places = draw.integers(1, 2**62, size=mark.shape[1], dtype=np.int64) * 2 + 1
        whole = (np.take_along_axis(mark, order, axis=1) * places).sum(axis=1)
        _, first, of = np.unique(whole, return_index=True, return_inverse=True)
        table = np.take_along_axis(table, order[:, None], axis=2)
        differs = (table != table[first[of]]).any(axis=(1, 2))
        differs[first] = True
        return layer.only(np.flatnonzero(differs))
