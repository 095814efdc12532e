"""How the tables of a placement divide memory where each may take more of it and be faster: one linear program.

Options, blocks and places stay. Each table may be held at several sizes, and a convex curve may be mixed of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.programs import LinearProgram, optimum

MOST_NUMBERS = 100_000
"""Coefficients of the program up to which it is solved."""
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class MemoryDivision:
    """P parts of n tables of a placement, each of which may be held at other sizes."""

    problem: Problem
    state: LoadState
    """The loads of the placement as it is."""
    table: Ints
    """[P] which of the n tables."""
    rank: Ints
    """[P]"""
    seconds: Floats
    """[P, C] what each part asks of its rank as it is."""
    size: Floats
    """[P, M] bytes."""

    def state_with(self, seconds: Floats, size: Floats) -> LoadState:
        """Return the state with the parts at another size: seconds [P, C] and bytes [P, M]."""
        state, problem = self.state.copy(), self.problem
        for c, instance in enumerate(problem.resource_of_rank):
            state.load[c] += _summed(instance, self.rank, (seconds - self.seconds)[:, c])
        for m, pool in enumerate(problem.pool_of_rank):
            state.free[m] -= _summed(pool, self.rank, (size - self.size)[:, m])
        return state

    def best_mix(self, seconds: Floats, size: Floats) -> Floats | None:
        """Return the sizes [n, L] of which each table is mixed for the shortest step that fits.

        With each of L sizes its parts ask for `seconds` [P, L, C] and bytes `size` [P, L, M]. None where nothing fits,
        or where the program is too large.
        """
        problem, tables, levels = self.problem, int(self.table.max()) + 1, seconds.shape[1]
        columns = np.flatnonzero((np.ptp(seconds, axis=1) > NEGLIGIBLE * seconds.max(axis=1)).any(axis=0)).tolist()
        tiers = np.flatnonzero((np.ptp(size, axis=1) > 0).any(axis=0)).tolist()
        if len(self.table) * levels * (len(columns) + len(tiers)) > MOST_NUMBERS:
            return None
        scale = 1.0 / max(self.state.step_s(), 1e-12)
        program = LinearProgram(maximize=False)
        mix = np.array([program.add_variables(levels) for _ in range(tables)])
        for row in mix:
            program.add_row(row, np.ones(levels), 1.0, 1.0)
        counted = np.unique(problem.stage_of_column[columns]).tolist()
        stages = dict(zip(counted, program.add_variables(len(counted), is_counted=True), strict=True))
        nothing = self.state_with(np.zeros_like(self.seconds), np.zeros_like(self.size))
        for c, stage in enumerate(problem.stage_of_column.tolist()):
            if stage not in stages:
                continue
            load = (self.state if c not in columns else nothing).load[c]
            program.add_row([stages[stage]], [1.0], scale * float(load.max()), np.inf)
            if c in columns:
                instance = problem.resource_of_rank[c]
                for rank, total in self._totals(instance, seconds[:, :, c], tables):
                    terms = np.append(total.ravel() * scale, -1.0)
                    program.add_row([*mix.ravel(), stages[stage]], terms, -np.inf, -scale * float(load[rank]))
        for m in tiers:
            for rank, total in self._totals(problem.pool_of_rank[m], size[:, :, m], tables):
                unit, free = max(float(total.max()), 1.0), float(nothing.free[m, rank])
                program.add_row(mix.ravel(), total.ravel() / unit, -np.inf, free / unit)
        found = optimum(program)
        if found is None:
            return None
        shares = np.maximum(found.values[mix], 0.0)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _totals(self, instance: Ints, values: Floats, tables: int) -> Iterator[tuple[int, Floats]]:
        """Yield a rank of each instance that parts are on, and the sums [n, L] of these parts."""
        for number in np.unique(instance[self.rank]).tolist():
            mine = np.flatnonzero(instance[self.rank] == number)
            total = np.zeros((tables, values.shape[1]))
            np.add.at(total, self.table[mine], values[mine])
            yield int(self.rank[mine[0]]), total


def _summed(instance: Ints, rank: Ints, values: Floats) -> Floats:
    """Return the sums [W] of parts over the instance that each rank uses."""
    return np.asarray(np.bincount(instance[rank], weights=values, minlength=int(instance.max()) + 1)[instance])
