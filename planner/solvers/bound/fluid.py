"""The fluid relaxation: a Lagrangian bound, and the fractional choice of options that goes with it.

Placement is relaxed: the ranks of one kind that tables may use (a capacity region) share one pool for each resource and
each memory tier, and a table may take several options in fractions. Ranks to which some tables are confined are a
capacity region once more: these tables pay its multipliers on top. Its dual has few variables. Give every stage weights
over its resources that sum to one, and every memory tier of every capacity region a multiplier per byte; then

    sum over tables of its cheapest option at those weights and multipliers  -  multipliers x capacities  +  constants

is a lower bound on the step of any placement (weak duality), whatever the weights and multipliers. The best ones are
found by Kelley's cutting planes: each round prices all options with one matrix product, adds the resulting cut to
a small linear program over weights and multipliers, and solves that. The bound itself is summed up in plain arithmetic,
so an inexact solver can only make it weaker, never wrong.
"""

import copy
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.aggregates import (
    blocks_of_choices,
    capacity_of,
    instances_of,
    row_share_of_kind,
    shared_columns,
    taken_by_choices,
)

BLOCKS_AT_ONCE = 20_000
"""Block types whose costs are summed up at once."""


class Fluid:
    """The relaxation of one problem; built once, priced many times."""

    def __init__(self, problem: Problem, floors: Floats | None = None, cost: Floats | None = None) -> None:
        """`floors` [S] are seconds that each stage takes in any case, constants aside (`planner.problem.integrality`).
        `cost` is that of a problem that differs in what blocks ask everywhere, and in what no block asks, alone."""
        self.problem = problem
        self.floors = np.zeros(len(problem.stage_constants)) if floors is None else floors
        kinds, columns = problem.kinds, len(problem.stage_of_column)
        self._world = problem.is_world_wide
        self._table_peaks: dict[int, Floats] = {}
        self._largest: dict[tuple[int, int], Floats] = {}
        self._all: dict[int, Floats] = {}
        self.cost: Floats = self._costed() if cost is None else cost
        """[K, C + M, B] what one block asks of a kind in all: seconds by column, bytes by tier."""
        self._wide_columns = np.flatnonzero(problem.everywhere.any(axis=(0, 1)))
        """Columns of which blocks ask something everywhere; n of them."""
        self._everywhere: Floats = np.ascontiguousarray(problem.everywhere[..., self._wide_columns].transpose(0, 2, 1))
        """[K, n, B]"""
        self._columns = columns
        self._barred = np.flatnonzero(~problem.allowed.any(axis=0))
        self._regions = problem.capacity_regions
        self._sizes: Floats = self._regions.ranks.sum(axis=1).astype(float)
        self.instances = instances_of(problem)
        self.capacity = capacity_of(problem)
        self._counted: Bools = ~self.shared_columns | (np.arange(len(self._sizes)) < kinds)[:, None]
        """[D, C] kinds share one weight where they share a resource; parts of them are not told apart there."""
        self._base = problem.base_of_regions * self._counted
        self._set_of_block = problem.table_rank_set[problem.table_of_block]
        self._bound_sets = np.flatnonzero(self._regions.binds[:, kinds:].any(axis=1)).tolist()

    def of_part(self, problem: Problem, floors: Floats) -> "Fluid":
        """The relaxation of a problem that differs in what is allowed, and in limits on stages, alone; it shares what
        blocks cost with this one."""
        part = copy.copy(self)
        part.__dict__.pop("peaks", None)
        part.problem, part.floors, part._table_peaks = problem, floors, {}
        part._barred = np.flatnonzero(~problem.allowed.any(axis=0))
        return part

    def _costed(self) -> Floats:
        problem = self.problem
        columns, tiers = len(problem.stage_of_column), len(problem.pool_capacity)
        cost: Floats = np.zeros((problem.kinds, columns + tiers, len(problem.block_option)))
        for k in range(problem.kinds):
            self._fill_cost(cost[k], k)
        return cost

    def _fill_cost(self, cost: Floats, kind: int) -> None:
        """Some blocks at a time: what is written down between stays in a cache. Columns that nothing loads stay as they
        are, and take no memory."""
        problem = self.problem
        loaded = np.flatnonzero(problem.loaded_columns[kind])
        ranks = problem.row_shares.holders[kind].astype(float)[:, None]
        rows = np.where(self._world, row_share_of_kind(problem, kind), 1.0)[:, None]
        seconds, size = np.split(cost, [len(problem.stage_of_column)])
        for begin in range(0, len(ranks), BLOCKS_AT_ONCE):
            some = slice(begin, begin + BLOCKS_AT_ONCE)
            fixed, by_rows = problem.fixed[kind, some][:, loaded], problem.by_rows[kind, some][:, loaded]
            seconds[loaded, some] = (ranks[some] * fixed + rows[some] * by_rows).T
            stored = ranks[some] * problem.bytes_fixed[kind, some] + rows[some] * problem.bytes_by_rows[kind, some]
            size[:, some] = stored.T

    @cached_property
    def peaks(self) -> Floats:
        """[B, S] seconds that each stage takes at least under the option that a block names (see `choice_values`).

        A splittable one is taken in fractions of blocks like it; of a fixed one the longest block counts.
        """
        problem = self.problem
        peaks = problem.extremes.stage_peaks.copy()
        fixed = np.flatnonzero(problem.option_units == 0)
        peaks[problem.block_start[fixed]] = np.maximum.reduceat(peaks, problem.block_start[:-1])[fixed]
        return peaks

    def peaks_of(self, choices: Ints) -> Floats:
        """[n, S] the same of some options, each named by one of its blocks."""
        blocks, lengths = blocks_of_choices(self.problem, choices)
        peaks = self.problem.extremes.stage_peaks_of(blocks).min(axis=0)
        return np.asarray(np.maximum.reduceat(peaks, lengths.cumsum() - lengths))

    def _peaks_of_table(self, table: int) -> Floats:
        """[n, S] of all its blocks."""
        if table not in self._table_peaks:
            start = self.problem.table_block_start
            self._table_peaks[table] = self.peaks_of(np.arange(start[table], start[table + 1]))
        return self._table_peaks[table]

    def peak(self, choice: int, table: int, stage: int) -> float:
        """Seconds that the stage takes at least under the option that a block of the table names."""
        return float(self._peaks_of_table(table)[choice - self.problem.table_block_start[table], stage])

    def _largest_of_table(self, table: int, column: int) -> Floats:
        """[n] the same and the base under the option that each block of a table names, of one column."""
        if (table, column) not in self._largest:
            start = self.problem.table_block_start
            load = self.largest_loads(np.arange(start[table], start[table + 1]), np.array([column]))[:, 0]
            self._largest[table, column] = load + self.problem.extremes.base_of_instance[0, column]
        return self._largest[table, column]

    def largest_loads(self, choices: Ints, columns: Ints | slice = slice(None)) -> Floats:
        """[n, C] seconds that the largest block of each option, named by one of its blocks, loads any instance by, on
        ranks of the first kind, of all or of these `columns`; see `seconds_of_all`."""
        blocks, lengths = blocks_of_choices(self.problem, choices)
        load = self.problem.extremes.peak_load(0, blocks, columns)
        return np.asarray(np.maximum.reduceat(load, lengths.cumsum() - lengths))

    def largest(self, choice: int, table: int, column: int) -> float:
        """Seconds of the largest block and the base under the option that a block of the table names."""
        return float(self._largest_of_table(table, column)[choice - self.problem.table_block_start[table]])

    def seconds_of_all(self, choices: Ints, columns: Sequence[int] | Ints) -> Floats:
        """[n] seconds that every instance of each column's resource has under a choice of options [T]."""
        if not len(columns):
            return np.zeros(0)
        blocks, count = taken_by_choices(self.problem, choices)
        return np.array([product(self._of_all(int(each))[blocks], count) for each in columns])

    def _of_all(self, column: int) -> Floats:
        """[B] as `Extremes.of_all`, computed once."""
        if column not in self._all:
            self._all[column] = self.problem.extremes.of_all(column)
        return self._all[column]

    @cached_property
    def shared_columns(self) -> Bools:
        """[C] whether instances of the column serve ranks of several kinds, so that kinds share one weight."""
        return shared_columns(self.problem, self.instances)

    def idle_shares(self, multipliers: Multipliers) -> Floats:
        """[S] share of each stage's weight that lies on no resource and no table."""
        share = np.zeros(len(self.floors))
        np.add.at(
            share, self.problem.stage_of_column, (multipliers.weight * self.instances * self._counted).sum(axis=0)
        )
        for (_, stage), weight in multipliers.of_table.items():
            share[stage] += weight
        for (_, column), weight in multipliers.beside.items():
            share[self.problem.stage_of_column[column]] += weight
        return np.maximum(1.0 - share, 0.0)

    def no_multipliers(self) -> Multipliers:
        """All multipliers are 0."""
        return Multipliers(np.zeros_like(self.instances), np.zeros_like(self.capacity))

    @cached_property
    def _times(self) -> Floats:
        """[B] how often a block is taken by the option that it names, in fractions; by a fixed one, with its others."""
        problem = self.problem
        parts = problem.option_units[problem.block_option] / np.maximum(problem.block_units, 1)
        return np.where(problem.block_is_splittable, parts, problem.block_count)

    @cached_property
    def _manifold(self) -> Ints:
        """Fixed options of several block types."""
        problem = self.problem
        return np.flatnonzero((problem.option_units == 0) & (np.diff(problem.block_start) > 1))

    @cached_property
    def _of_manifold(self) -> Ints:
        """Their blocks."""
        return np.flatnonzero(np.isin(self.problem.block_option, self._manifold))

    @cached_property
    def _start_in_manifold(self) -> Ints:
        """Where the blocks of each begin among these."""
        lengths = np.diff(self.problem.block_start)[self._manifold]
        return lengths.cumsum() - lengths

    # -- pricing -----------------------------------------------------------------------------------------------

    def price(self, multipliers: Multipliers, usable: Bools | None = None) -> tuple[Floats, Ints]:
        """Cheapest value [T] and chosen option [T] of each table; infinite where it has none. `usable` [B] leaves
        blocks out."""
        values, chosen = self.choice_values(multipliers, usable), self.problem.table_block_start
        has_blocks = chosen[1:] > chosen[:-1]
        start = chosen[:-1][has_blocks]
        cheapest, choice = np.full(len(has_blocks), np.inf), chosen[:-1].copy()
        if len(start):
            cheapest[has_blocks] = np.minimum.reduceat(values, start)
            cheapest_choices = np.flatnonzero(values == cheapest[self.problem.table_of_block])
            choice[has_blocks] = cheapest_choices[np.searchsorted(cheapest_choices, start)]
        return cheapest, choice

    def choice_values(self, multipliers: Multipliers, usable: Bools | None = None) -> Floats:
        """[B] value of the option that each block names: of a splittable one cut into blocks like it, of a fixed one
        whole.

        A fixed option is named by its first block; its others are infinite, as are options with unusable blocks.
        """
        problem = self.problem
        value = self.block_values(multipliers)
        if usable is not None:
            value = np.where(usable, value, np.inf)
        whole = value * self._times
        values = whole
        if len(self._manifold):
            sums = np.add.reduceat(whole[self._of_manifold], self._start_in_manifold)
            values[self._of_manifold] = np.inf
            values[problem.block_start[self._manifold]] = sums
        for (table, stage), weight in multipliers.of_table.items():
            own = slice(int(problem.table_block_start[table]), int(problem.table_block_start[table + 1]))
            values[own] += weight * self._peaks_of_table(table)[:, stage]
        for (table, column), weight in multipliers.beside.items():
            own = slice(int(problem.table_block_start[table]), int(problem.table_block_start[table + 1]))
            values[own] += weight * self._largest_of_table(table, column)
        return values

    def block_values(self, multipliers: Multipliers, more: Floats | None = None) -> Floats:
        """[B] what each block costs at the multipliers, on the kind of rank where it costs least; `more` [K, B] on
        top."""
        problem = self.problem
        local = self._local_values(multipliers)
        if more is not None:
            local = local + more
        everywhere = np.zeros(local.shape[1])
        for kind, weight in enumerate(self._everywhere_weight(multipliers)[:, self._wide_columns]):
            _add_rows(everywhere, weight, self._everywhere[kind])
        for (_, column), share in multipliers.beside.items():
            everywhere += share * self._of_all(column)
        if problem.kinds == 1:
            value = local[0] + everywhere
            value[self._barred] = np.inf
            return np.asarray(value)
        placed = np.where(problem.allowed, local, np.inf).min(axis=0)
        whole_world = np.where(problem.allowed.all(axis=0), local.sum(axis=0), np.inf)
        return np.asarray(np.where(self._world, whole_world, placed) + everywhere)

    def kinds_of(self, multipliers: Multipliers, blocks: Ints, more: Floats | float = 0.0) -> Ints:
        """[n] the kind of rank on which each block costs least; `more` [K, n] on top of the multipliers."""
        if self.problem.kinds == 1:
            return np.zeros(len(blocks), dtype=np.int64)
        local = self._local_values(multipliers, blocks) + more
        return np.asarray(np.where(self.problem.allowed[:, blocks], local, np.inf).argmin(axis=0))

    def _local_values(self, multipliers: Multipliers, blocks: Ints | None = None) -> Floats:
        """[K, n] what blocks (all, where none are given) cost at the multipliers where they are placed, on each
        kind."""
        kinds = self.problem.kinds
        both = np.concatenate([multipliers.weight * self._counted, multipliers.byte], axis=1)
        both[:kinds, : self._columns] = multipliers.weight[:kinds]
        cost = self.cost if blocks is None else self.cost[:, :, blocks]
        local = np.zeros((kinds, cost.shape[2]))
        for kind in range(kinds):
            _add_rows(local[kind], both[kind], cost[kind])
        of = self._set_of_block if blocks is None else self._set_of_block[blocks]
        for number in self._bound_sets:
            mine = np.flatnonzero(of == number)
            if len(mine):
                multiplier = self._regions.of_set(both, number, kinds)
                local[:, mine] = np.stack([product(multiplier[k], cost[k][:, mine]) for k in range(kinds)])
        return local

    def _everywhere_weight(self, multipliers: Multipliers) -> Floats:
        """[K, C] what a second on every rank of a kind costs."""
        weight = multipliers.weight * self._sizes[:, None] * self._counted
        of_kind = np.zeros((self.problem.kinds, self._columns))
        np.add.at(of_kind, self._regions.kind, weight)
        return of_kind

    def usage(self, multipliers: Multipliers, choices: Ints) -> tuple[Floats, Floats]:
        """Seconds [D, C] and bytes [D, M] of a choice of options, its blocks on the kinds that the multipliers
        prefer."""
        blocks, count = taken_by_choices(self.problem, choices)
        return self.usage_of(blocks, count, self.kinds_of(multipliers, blocks))

    def usage_of(self, blocks: Ints, count: Floats, kind: Ints) -> tuple[Floats, Floats]:
        """Seconds [D, C] and bytes [D, M] of blocks [n], each taken so often and on ranks of that kind."""
        total = np.zeros((len(self._sizes), self.cost.shape[1]))
        for d, k in enumerate(self._regions.kind.tolist()):
            here = (self._world[blocks] | (kind == k)) & self._regions.binds[self._set_of_block[blocks], d]
            total[d] = product(self.cost[k][:, blocks[here]], count[here])
            total[d, self._wide_columns] += self._sizes[d] * product(self._everywhere[k][:, blocks], count)
        seconds = total[:, : self._columns] * self._counted
        return seconds + self._base, total[:, self._columns :]

    def choice_bytes(self, kind: int, tier: int) -> Floats:
        """[B] bytes of a tier that the option which each block names takes on ranks of the kind; see
        `choice_values`."""
        problem = self.problem
        size = self.cost[kind, self._columns + tier] * self._times
        fixed = np.flatnonzero(problem.option_units == 0)
        size[problem.block_start[fixed]] = np.add.reduceat(size, problem.block_start[:-1])[fixed]
        return np.asarray(size)

    def choice_totals(self, choices: Ints, multipliers: Multipliers) -> Floats:
        """[n, D x (C + M)] what each option asks of each capacity region in all, its blocks where the multipliers
        prefer them."""
        rows = [np.concatenate(self.usage(multipliers, np.array([choice])), axis=1).ravel() for choice in choices]
        base = np.concatenate([self._base, np.zeros_like(self.capacity)], axis=1).ravel()
        return np.asarray(np.stack(rows) - base)

    def bound(
        self, multipliers: Multipliers, usable: Bools | None = None, headroom: float = 1.0, floors: Floats | None = None
    ) -> tuple[float, Ints]:
        """The bound that the multipliers prove, rounded down, and the chosen options [T] that attain it.

        `floors` [S] are the seconds that stages take in any case, where others than its own are to count.
        """
        cheapest, choices = self.price(multipliers, usable)
        if np.isinf(cheapest).any():
            return np.inf, choices
        return self.total(multipliers, float(cheapest.sum()), headroom, floors), choices

    def total(
        self, multipliers: Multipliers, options_s: float, headroom: float = 1.0, floors: Floats | None = None
    ) -> float:
        """The bound where all tables' options cost so much at the multipliers, rounded down; see `bound`."""
        gain = options_s + (self._base * multipliers.weight).sum()
        gain += product(self.idle_shares(multipliers), self.floors if floors is None else floors)
        paid = headroom * (multipliers.byte * self.capacity).sum()
        value = gain - paid + self.problem.stage_constants.sum()
        hidden = max(options_s - gain, 0.0)
        return float(value - ROUNDING * (abs(gain + 2 * hidden) + abs(paid)))


def _add_rows(total: Floats, weight: Floats, rows: Floats) -> None:
    """Add the rows [n, B], each by its weight [n], to a total [B]; most multipliers are 0."""
    for n in np.flatnonzero(weight).tolist():
        total += weight[n] * rows[n]
