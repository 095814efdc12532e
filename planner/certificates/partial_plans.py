"""Partial plans as rows of numbers, and the bounds by which an exhaustive search prunes them.

A partial plan places some tables. Its rows are the C loads, the M memories in use, and a mark for each affinity or
anti-affinity group, each on all W ranks: R = C + M + groups. J functionals of the rows add up over tables: the mean
load of each column, the bytes in use of each tier, and the Lagrangian at given multipliers. Since every table adds a
known least amount to each of them, they bound whatever a partial plan may grow into.
"""

from typing import NamedTuple

import numpy as np

from planner.certificates.node_weights import opens
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING

BYTES, RELATIVE_BYTES = 1e-3, 1e-13
"""Bytes, and share of its capacity, that a memory may seem over-full: its use is a sum of doubles."""


class PartialPlans(NamedTuple):
    """The partial plans of one layer of the search. n of them."""

    parent: Ints
    """[n] position in the layer before."""
    choice: Ints
    """[n] position among the placements of the last table."""
    rows: Floats
    """[n, R, W]"""
    linear: Floats
    """[n, J]"""

    def only(self, which: Ints) -> "PartialPlans":
        """The partial plans at these positions."""
        return PartialPlans(self.parent[which], self.choice[which], self.rows[which], self.linear[which])


class PartialPlanBounds:
    """The rows of partial plans of one problem, and whether plans below a target may still grow out of them."""

    def __init__(self, problem: Problem, target_s: float, weight: Floats | None, byte: Floats | None) -> None:
        self.target_s = target_s
        """Only plans faster than this are of interest."""
        self.columns, self.pools = len(problem.stage_of_column), len(problem.pool_capacity)
        self.groups = [*problem.affinity_groups, *problem.anti_affinity_groups]
        self.blank = LoadState(problem)
        of_tier = zip(problem.pool_capacity, problem.pool_of_rank, strict=True)
        capacity = np.stack([of_pool[pool] for of_pool, pool in of_tier])
        self.base = np.concatenate(
            [self.blank.load, capacity - self.blank.free, np.zeros((len(self.groups), problem.world))]
        )
        """[R, W] of the plan that places nothing."""
        self._room = capacity + BYTES + RELATIVE_BYTES * np.abs(capacity)
        self._least_s = integrality_floors(problem)
        self._idle_s = 0.0
        """What the share of the weights that lies on nothing adds to the value at the multipliers."""
        self._functional = self._functionals(problem, weight, byte)
        self._stage_columns = [
            np.flatnonzero(problem.stage_of_column == s) for s in range(len(problem.stage_constants))
        ]
        self._constant = float(problem.stage_constants.sum())
        room = np.zeros_like(self.base)
        room[self.columns : self.columns + self.pools] = self._room
        totals = self.linear(room[None])[0]
        self._total_room, self._paid = totals[self.columns : self.columns + self.pools], float(totals[-1])
        self._slack = 0.0

    def _functionals(self, problem: Problem, weight: Floats | None, byte: Floats | None) -> Floats:
        """[J, R, W] mean of each column's instances, total of each tier's pools, and the value at the multipliers."""
        world = problem.world
        instances = np.concatenate([problem.resource_of_rank, problem.pool_of_rank])
        is_first = opens(instances)
        functional = np.zeros((len(instances) + 1, len(self.base), world))
        for row, first in enumerate(is_first):
            functional[row, row, first] = 1.0 / first.sum() if row < self.columns else 1.0
        if weight is not None and byte is not None:
            kind = problem.kind_of_rank
            both = np.concatenate([weight[kind].T, byte[kind].T])
            for row, instance in enumerate(instances):
                within = np.isin(instance, np.unique(instance[problem.reach]))
                both[row] = np.where(is_first[row] & within, np.maximum(both[row], 0.0), 0.0)
            for stage in range(len(problem.stage_constants)):
                own = np.flatnonzero(problem.stage_of_column == stage)
                both[own] /= max(1.0, float(both[own].sum()))
                self._idle_s += max(0.0, 1.0 - float(both[own].sum())) * float(self._least_s[stage])
            functional[-1, : len(instances)] = both
        return functional

    def linear(self, rows: Floats) -> Floats:
        """[n, J] the functionals of rows [n, R, W]."""
        return np.asarray(np.einsum("nrw,jrw->nj", rows, self._functional))

    def allow_for_rounding(self, least: list[Floats]) -> None:
        """Widen the bound at the multipliers by what sums of the base and these [J] of every table may be off."""
        base = self.linear(self.base[None])
        self._slack = ROUNDING * (self._paid + abs(float(base[0, -1])) + sum(float(of_table[-1]) for of_table in least))

    def is_possible(self, rows: Floats, linear: Floats) -> Bools:
        """[n] whether plans with these rows [n, R, W], and at least these functionals, may be below the target."""
        columns, pools = self.columns, self.pools
        possible = np.asarray((rows[:, columns : columns + pools] <= self._room).all(axis=(1, 2)))
        return possible & (self.least_step(rows, linear) * (1 - ROUNDING) < self.target_s)

    def least_step(self, rows: Floats, linear: Floats) -> Floats:
        """[n] seconds that plans with these rows take, and at least these functionals."""
        longest = rows[:, : self.columns].max(axis=2)
        longest = np.maximum(longest, linear[:, : self.columns])
        step = np.full(len(rows), self._constant)
        for columns, least in zip(self._stage_columns, self._least_s.tolist(), strict=True):
            step += longest[:, columns].max(axis=1, initial=least)
        return step

    def may_grow(self, linear: Floats) -> Bools:
        """[...] whether functionals [..., J] leave it possible to fit and to be below the target."""
        columns, pools = self.columns, self.pools
        means = linear[..., :columns]
        step = np.full(linear.shape[:-1], self._constant)
        for own, least in zip(self._stage_columns, self._least_s.tolist(), strict=True):
            step += means[..., own].max(axis=-1, initial=least)
        possible = step * (1 - ROUNDING) < self.target_s
        possible &= (linear[..., columns : columns + pools] <= self._total_room).all(axis=-1)
        value = linear[..., -1] + self._idle_s - self._paid + self._constant
        return np.asarray(possible & (value - self._slack < self.target_s))
