"""The fluid relaxation written out as a linear program, and instances that it fits."""

import numpy as np
from ortools.math_opt.python import mathopt

from cost_models.shards import NODE, RANK, WORLD
from planner.problem.arrays import Problem
from planner.problem.row_shares import row_shares
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.instances import tiny_instance


def roomy(seed: int) -> Problem | None:
    """The problem of a tiny instance; None where even the relaxation does not fit."""
    problem = tiny_instance(seed).problem
    return problem if shortage(Fluid(problem)) is None else None


UNIT_S = 1e-6
"""Seconds of the program's unit of time: a solver's tolerance is 1e-6 of it, whatever a step takes."""


class FluidProgram:
    """The relaxation written out: shares of options, blocks spread over kinds, one pool per kind and resource.

    The blocks of a fixed option are taken in proportion to its share. Those of a free one are taken in any amounts
    whose units add up to its share of the whole.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._model = mathopt.Model()
        self._option = [self._model.add_variable(lb=0.0, ub=1.0) for _ in problem.option_table]
        kinds = range(problem.kinds)
        self._load = [[self._base(k, c) for c in range(len(problem.stage_of_column))] for k in kinds]
        base = problem.base_bytes * problem.ranks_of_kind[:, None]
        self._size = [[mathopt.LinearExpression(float(base[k, m])) for m in range(len(base[k]))] for k in kinds]
        for table in range(problem.tables):
            own = np.flatnonzero(problem.option_table == table)
            self._model.add_linear_constraint(mathopt.fast_sum([self._option[o] for o in own]) == 1.0)
        amounts = [self._amount(block) for block in range(len(problem.block_option))]
        for block, amount in enumerate(amounts):
            self._add_block(block, amount)
        for option in np.flatnonzero(problem.option_units):
            own = np.flatnonzero(problem.block_option == option)
            units = mathopt.fast_sum([int(problem.block_units[block]) * amounts[block] for block in own])
            self._model.add_linear_constraint(units == int(problem.option_units[option]) * self._option[option])

    def optimum_s(self) -> float:
        problem = self._problem
        stages = [self._model.add_variable(lb=0.0) for _ in problem.stage_constants]
        for c, stage in enumerate(problem.stage_of_column):
            for ranks, total in self._pools_of(c):
                instances = len(np.unique(problem.resource_of_rank[c][ranks]))
                self._model.add_linear_constraint((1 / UNIT_S) * total <= instances * stages[stage])
        for k in range(problem.kinds):
            ranks = problem.kind_of_rank == k
            for m, pool in enumerate(problem.pool_of_rank):
                capacity = float(problem.pool_capacity[m][np.unique(pool[ranks])].sum())
                unit = max(capacity, 1.0)
                self._model.add_linear_constraint(self._size[k][m] * (1 / unit) <= capacity / unit)
        self._model.minimize(mathopt.fast_sum(stages))
        result = mathopt.solve(self._model, mathopt.SolverType.GLOP)
        assert result.termination.reason is mathopt.TerminationReason.OPTIMAL
        return UNIT_S * result.objective_value() + float(problem.stage_constants.sum())

    def _base(self, kind: int, column: int) -> mathopt.LinearExpression:
        seconds = float(self._problem.base_loads[kind, column] * self._problem.ranks_of_kind[kind])
        return mathopt.LinearExpression(seconds)

    def _pools_of(self, column: int) -> list[tuple[np.ndarray, mathopt.LinearExpression]]:
        """(ranks, load) of each pool: one per kind, or one in all where kinds share an instance."""
        problem, instance = self._problem, self._problem.resource_of_rank[column]
        of_kind = [problem.kind_of_rank == k for k in range(problem.kinds)]
        if sum(len(np.unique(instance[ranks])) for ranks in of_kind) > len(np.unique(instance)):
            return [(np.ones(problem.world, dtype=bool), sum(self._load[k][column] for k in range(problem.kinds)))]
        return [(ranks, self._load[k][column]) for k, ranks in enumerate(of_kind)]

    def _amount(self, block: int) -> mathopt.LinearBase:
        """How often the block is taken."""
        problem = self._problem
        if problem.option_units[problem.block_option[block]]:
            return self._model.add_variable(lb=0.0)
        return int(problem.block_count[block]) * self._option[problem.block_option[block]]

    def _add_block(self, block: int, amount: mathopt.LinearBase) -> None:
        problem = self._problem
        for k in range(problem.kinds):
            everywhere = problem.everywhere[k, block] * problem.ranks_of_kind[k]
            for c in np.flatnonzero(everywhere):
                self._load[k][c] += float(everywhere[c]) * amount
        if problem.block_extent[block] == WORLD:
            if not problem.allowed[:, block].all():
                self._model.add_linear_constraint(amount == 0.0)
            rows = int(problem.table_rows[problem.option_table[problem.block_option[block]]])
            held = np.ones(problem.world) if problem.block_replicated[block] else row_shares(rows, problem.world)
            for k in range(problem.kinds):
                of_kind = problem.kind_of_rank == k
                self._charge(block, k, amount, float(of_kind.sum()), float(held[of_kind].sum()))
            return
        parts = []
        for k in np.flatnonzero(problem.allowed[:, block]).tolist():
            part = self._model.add_variable(lb=0.0)
            parts.append(part)
            ranks = {RANK: 1, NODE: int(np.bincount(problem.node_of_rank[problem.kind_of_rank == k]).max())}[
                int(problem.block_extent[block])
            ]
            self._charge(block, k, part, float(ranks), 1.0)
        self._model.add_linear_constraint(mathopt.fast_sum(parts) == amount)

    def _charge(self, block: int, k: int, amount: mathopt.LinearBase, ranks: float, rows: float) -> None:
        problem = self._problem
        seconds = problem.fixed[k, block] * ranks + problem.by_rows[k, block] * rows
        size = problem.bytes_fixed[k, block] * ranks + problem.bytes_by_rows[k, block] * rows
        for c in np.flatnonzero(seconds):
            self._load[k][c] += float(seconds[c]) * amount
        for m in np.flatnonzero(size):
            self._size[k][m] += float(size[m]) * amount
