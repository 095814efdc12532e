"""The fluid relaxation: a lower bound by prices, and the fractional choice of options that goes with it.

Placement is relaxed: the ranks of one kind share one pool for each resource and each memory tier, and a table may
take several options in fractions. Its dual has few variables. Give every stage weights over its resources that sum
to one, and every memory tier of every kind of rank a price per byte; then

    sum over tables of its cheapest option at those weights and prices  -  prices x capacities  +  constants

is a lower bound on the step of any placement (weak duality), whatever the weights and prices. The best ones are
found by Kelley's cutting planes: each round prices all options with one matrix product, adds the resulting cut to
a small linear program over weights and prices, and solves that. The bound itself is summed up in plain arithmetic,
so an inexact solver can only make it weaker, never wrong.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem import NODE, RANK, WORLD, Bools, Floats, Ints, Problem, row_shares
from planner.solvers.master import Master
from planner.solvers.prices import Prices

SAFETY = 1e-9
"""Relative amount by which a bound is rounded down: above the rounding of sums of 10^5 doubles."""


@dataclass(frozen=True)
class FluidSolution:
    """The best prices found, the bound they prove, and the fractional choices behind it."""

    bound_s: float
    prices: Prices
    stage_seconds: Floats
    """[S] stage times of the fluid optimum."""
    options: Ints
    """[P, T] option of each table in each of P proposals."""
    shares: Floats
    """[P] how the fluid optimum mixes the proposals; sums to 1."""


class Fluid:
    """The relaxation of one problem; built once, priced many times."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        kinds, columns = problem.kinds, len(problem.stage_of_column)
        counts = problem.ranks_of_kind.astype(float)
        extent = problem.block_extent
        self._world = extent == WORLD
        totals, sizes = [], []
        for k in range(kinds):
            fixed_ranks = np.select(
                [extent == RANK, extent == NODE], [1.0, float(problem.node_ranks_of_kind[k])], counts[k]
            )[:, None]
            row_share = np.where(self._world, self._row_share_of_kind(k), 1.0)[:, None]
            totals.append(fixed_ranks * problem.fixed[k] + row_share * problem.by_rows[k])
            sizes.append(fixed_ranks * problem.bytes_fixed[k] + row_share * problem.bytes_by_rows[k])
        self._cost = np.concatenate([np.stack(totals), np.stack(sizes)], axis=2)
        """[K, B, C + M] what one block asks of a kind in all: seconds by column, bytes by tier."""
        self._everywhere = problem.everywhere * counts[:, None, None]
        self._columns = columns
        self.instances = self._count_instances()
        self.capacity = self._capacity_of_kind()
        base = problem.base_loads * counts[:, None]
        self._base = base

    def _row_share_of_kind(self, kind: int) -> Floats:
        """[B] share of the table's rows that the ranks of a kind hold of a WORLD block (ranks, if replicated)."""
        problem = self.problem
        share = np.zeros(len(problem.block_option))
        of_kind = problem.kind_of_rank == kind
        if of_kind.all():
            share[self._world] = 1.0
        else:
            table = problem.option_table[problem.block_option]
            for block in np.flatnonzero(self._world & ~problem.block_replicated):
                share[block] = row_shares(int(problem.table_rows[table[block]]), problem.world)[of_kind].sum()
        share[self._world & problem.block_replicated] = of_kind.sum()
        return share

    def _count_instances(self) -> Floats:
        """[K, C] instances of a column's resource among the ranks of a kind; all of them where kinds share one."""
        problem = self.problem
        found = np.zeros((problem.kinds, len(problem.stage_of_column)))
        for c, instance in enumerate(problem.resource_of_rank):
            sets = [set(instance[problem.kind_of_rank == k].tolist()) for k in range(problem.kinds)]
            everyone = set().union(*sets)
            shared = sum(map(len, sets)) > len(everyone)
            for k, members in enumerate(sets):
                found[k, c] = len(everyone) if shared else len(members)
        return found

    @property
    def shared_columns(self) -> Bools:
        """[C] whether instances of the column serve ranks of several kinds, so that kinds share one weight."""
        problem = self.problem
        if problem.kinds == 1:
            return np.zeros(self._columns, dtype=bool)
        total = np.array([len(np.unique(instance)) for instance in problem.resource_of_rank])
        return np.asarray(self.instances.sum(axis=0) > total)

    def _capacity_of_kind(self) -> Floats:
        """[K, M] bytes that tables may use in the pools of each kind together."""
        problem = self.problem
        found = np.zeros((problem.kinds, len(problem.pool_capacity)))
        for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
            for k in range(problem.kinds):
                ranks = np.flatnonzero(problem.kind_of_rank == k)
                found[k, m] = capacity[np.unique(pool[ranks])].sum() - len(ranks) * problem.base_bytes[m]
        return found

    # -- pricing -----------------------------------------------------------------------------------------------

    def price(self, prices: Prices, usable: Bools | None = None) -> tuple[Floats, Ints]:
        """Cheapest value [T] and option [T] of each table; infinite where it has none. `usable` [O] leaves some out."""
        values, _ = self.option_values(prices)
        if usable is not None:
            values = np.where(usable, values, np.inf)
        start, table = self.problem.option_start, self.problem.option_table
        has_options = start[1:] > start[:-1]
        cheapest, option = np.full(len(has_options), np.inf), start[:-1].copy()
        if has_options.any():
            cheapest[has_options] = np.minimum.reduceat(values, start[:-1][has_options])
            first = np.where(values == cheapest[table], np.arange(len(values)), len(values))
            option[has_options] = np.minimum.reduceat(first, start[:-1][has_options])
        return cheapest, option

    def option_values(self, prices: Prices) -> tuple[Floats, Ints]:
        """Value [O] of each option, and the kind [B] that holds each block at that value."""
        problem = self.problem
        local = np.stack(
            [cost @ np.concatenate(pair) for cost, *pair in zip(self._cost, prices.weight, prices.byte, strict=True)]
        )
        placed = np.where(problem.allowed, local, np.inf)
        everywhere = np.einsum("kbc,kc->b", self._everywhere, prices.weight, optimize=True)
        whole_world = np.where(problem.allowed.all(axis=0), local.sum(axis=0), np.inf)
        value = np.where(self._world, whole_world, placed.min(axis=0)) + everywhere
        return np.add.reduceat(problem.block_count * value, problem.block_start[:-1]), placed.argmin(axis=0)

    def usage(self, prices: Prices, option_of_table: Ints) -> tuple[Floats, Floats]:
        """Seconds [K, C] and bytes [K, M] of a choice of options, its blocks on the kinds that the prices prefer."""
        problem = self.problem
        starts, stops = problem.block_start[option_of_table], problem.block_start[option_of_table + 1]
        lengths = stops - starts
        blocks = np.repeat(starts, lengths) + np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        count = problem.block_count[blocks].astype(float)
        total = np.zeros((problem.kinds, self._cost.shape[2]))
        local = np.stack(
            [
                np.where(problem.allowed[k, blocks], self._cost[k, blocks] @ np.concatenate(pair), np.inf)
                for k, pair in enumerate(zip(prices.weight, prices.byte, strict=True))
            ]
        )
        kind = local.argmin(axis=0)
        for k in range(problem.kinds):
            here = self._world[blocks] | (kind == k)
            total[k] = count[here] @ self._cost[k, blocks[here]]
            total[k, : self._columns] += count @ self._everywhere[k, blocks]
        return total[:, : self._columns] + self._base, total[:, self._columns :]

    def option_totals(self, options: Ints, prices: Prices) -> Floats:
        """[n, K x (C + M)] what each option asks of each kind in all, its blocks where the prices prefer them."""
        rows = [np.concatenate(self.usage(prices, np.array([option])), axis=1).ravel() for option in options]
        base = np.concatenate([self._base, np.zeros_like(self.capacity)], axis=1).ravel()
        return np.asarray(np.stack(rows) - base)

    def bound(self, prices: Prices, usable: Bools | None = None, headroom: float = 1.0) -> tuple[float, Ints]:
        """The bound that the prices prove, rounded down, and the options that attain it."""
        cheapest, options = self.price(prices, usable)
        gain = cheapest.sum() + (self._base * prices.weight).sum()
        paid = headroom * (prices.byte * self.capacity).sum()
        value = gain - paid + self.problem.stage_constants.sum()
        return float(value - SAFETY * (abs(gain) + abs(paid))), options

    # -- the best prices ---------------------------------------------------------------------------------------

    def solve(
        self,
        *,
        usable: Bools | None = None,
        headroom: float = 1.0,
        rounds: int = 400,
        tolerance: float = 1e-5,
    ) -> FluidSolution:
        """Kelley's cutting planes until bound and relaxation differ by `tolerance`, relatively.

        `usable` [O] leaves options out and `headroom` below 1 leaves memory free: the result is then no bound of
        the whole problem, but a choice of options that is easier to place.
        """
        master = Master(self.problem, self.instances, self.shared_columns, self.capacity * headroom)
        prices = master.start()
        best_bound, best = -np.inf, prices
        proposals: list[Ints] = []
        ceiling = np.inf
        for _ in range(rounds):
            value, options = self.bound(prices, usable, headroom)
            if value > best_bound:
                best_bound, best = value, prices
            proposals.append(options)
            master.add_cut(*self.usage(prices, options))
            prices, ceiling = master.solve()
            ceiling += float(self.problem.stage_constants.sum())
            if ceiling - best_bound <= tolerance * abs(best_bound):
                break
        shares = master.shares()
        mixed = np.flatnonzero(shares > 1e-9)
        return FluidSolution(
            best_bound,
            best,
            master.stage_seconds() + self.problem.stage_constants,
            np.stack([proposals[p] for p in mixed]),
            shares[mixed] / shares[mixed].sum(),
        )
