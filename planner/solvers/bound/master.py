"""The master program of Kelley's cutting planes: the best weights and multipliers under the cuts known so far.

Its multipliers lie in a box that grows (Marsten, Hogan & Blankenship, Oper. Res. 23(3), 1975); its dual values mix the
cuts' proposals as the Dantzig–Wolfe master does (Oper. Res. 8(1), 1960).
"""

from collections.abc import Mapping

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.programs import optimum

_FIRST_BOX = 8.0
_LARGEST_BOX = 1e7
_NO_TABLE: Mapping[tuple[int, int], float] = {}
_NO_STAGE: Mapping[int, float] = {}


class Master:
    """A linear program over stage weights (summing to one per stage) and the multiplier of each tier's whole capacity.

    Seconds are scaled by the first cut's step, so that all its numbers are near one. Prices start inside a box that
    grows while they press against it.
    """

    def __init__(self, problem: Problem, instances: Floats, shared: Bools, capacity: Floats, floors: Floats) -> None:
        """Take `instances` [D, C], columns `shared` [C] by all kinds, `capacity` [D, M] and `floors` [S] from a
        `fluid.Fluid`."""
        from ortools.math_opt.python import mathopt

        self._instances, self._shared, self._stages = instances, shared, problem.stage_of_column
        self._stage_count = len(problem.stage_constants)
        self._capacity = capacity
        self._unit_bytes: Floats = np.where(capacity > 0, capacity, 2.0**30)
        own = ~shared | (np.arange(len(instances))[:, None] == 0)
        self._weight_at = np.nonzero(own & (instances > 0))
        self._column_stage: list[int] = self._stages[self._weight_at[1]].tolist()
        """Of each weight."""
        self._scale = 0.0
        self._model: mathopt.Model = mathopt.Model()
        self._bound = self._model.add_variable(lb=-np.inf)
        self._weights = [self._model.add_variable(lb=0.0) for _ in self._weight_at[0]]
        self._multipliers = [self._model.add_variable(lb=0.0, ub=_FIRST_BOX) for _ in range(capacity.size)]
        self._model.maximize(self._bound)
        self._simplex: dict[int, mathopt.LinearConstraint] = {}
        self._idle: dict[int, tuple[mathopt.Variable, float]] = {}
        for stage in np.unique(self._stages).tolist():
            members = [weight for weight, of in zip(self._weights, self._column_stage, strict=True) if of == stage]
            if floors[stage] > 0:
                self._idle[stage] = self._model.add_variable(lb=0.0), float(floors[stage])
                members.append(self._idle[stage][0])
            self._simplex[stage] = self._model.add_linear_constraint(mathopt.fast_sum(members) == 1.0)
        self._tables: list[tuple[tuple[int, int], mathopt.Variable]] = []
        self._cuts: list[mathopt.LinearConstraint] = []
        self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)
        self._result: mathopt.SolveResult | None = None
        """The result of the last program that a solver ended."""
        self._last: Floats = np.zeros(self._stage_count)
        """[S] stage times of the last choice."""

    def start(self) -> Multipliers:
        """Equal weights within each stage, memory for nothing."""
        sizes = dict.fromkeys(self._simplex, 0)
        for stage in self._column_stage:
            sizes[stage] += 1
        weights = [1.0 / sizes[stage] for stage in self._column_stage]
        return self._as_multipliers(weights, [0.0] * len(self._multipliers))

    def add_table(self, table: int, stage: int, seconds: list[float]) -> None:
        """Give the table a weight in a stage: the stage lasts at least as long as its largest block.

        That takes so many `seconds` in each of the choices so far.
        """
        weight = self._model.add_variable(lb=0.0)
        self._tables.append(((table, stage), weight))
        self._simplex[stage].set_coefficient(weight, 1.0)
        for cut, value in zip(self._cuts, seconds, strict=True):
            cut.set_coefficient(weight, self._scale * value)

    def add_cut(self, seconds: Floats, size: Floats, of_table: list[float]) -> None:
        """Add the cut of one choice of options: its `seconds` [D, C] and bytes `size` [D, M], base included.

        `of_table` are the seconds of the largest blocks of the tables that have a weight.
        """
        mean = seconds / np.maximum(self._instances, 1.0)
        mean[:, self._shared] = mean[:, self._shared].sum(axis=0)
        self._last = np.zeros(self._stage_count)
        np.maximum.at(self._last, self._stages, mean.max(axis=0))
        if not self._scale:
            self._scale = 1.0 / max(float(self._last.sum()), 1e-12)
        excess = (size - self._capacity) / self._unit_bytes
        cut = self._model.add_linear_constraint(lb=0.0)  # not from a sum of terms, which takes far longer
        cut.set_coefficient(self._bound, -1.0)
        for weight, value in zip(self._weights, (self._scale * mean[self._weight_at]).tolist(), strict=True):
            if value:
                cut.set_coefficient(weight, value)
        for (_, weight), value in zip(self._tables, of_table, strict=True):
            cut.set_coefficient(weight, self._scale * value)
        for weight, value in self._idle.values():
            cut.set_coefficient(weight, self._scale * value)
        for multiplier, value in zip(self._multipliers, excess.ravel().tolist(), strict=True):
            if value:
                cut.set_coefficient(multiplier, value)
        self._cuts.append(cut)

    def attempt(self, most_iterations: int | None = None) -> tuple[Multipliers, float] | None:
        """The best weights and multipliers under the cuts, and the value there: no bound can be above it.

        None where no solver ends, after so many iterations if that is given.
        """
        while True:
            result = optimum(self._model, self._solver, most_iterations)
            if result is None:
                return None
            self._result, values = result, result.variable_values()
            pressed = [
                p for p in self._multipliers if p.upper_bound < _LARGEST_BOX and values[p] >= 0.999 * p.upper_bound
            ]
            for multiplier in pressed:
                multiplier.upper_bound *= 10
            if not pressed:
                break
        of_table = {pair: values[weight] for pair, weight in self._tables}
        idle = {stage: values[weight] for stage, (weight, _) in self._idle.items()}
        multipliers = self._as_multipliers(
            [values[w] for w in self._weights], [values[p] for p in self._multipliers], of_table, idle
        )
        return multipliers, values[self._bound] / self._scale

    def _as_multipliers(
        self,
        weights: list[float],
        multipliers: list[float],
        of_table: Mapping[tuple[int, int], float] = _NO_TABLE,
        idle: Mapping[int, float] = _NO_STAGE,
    ) -> Multipliers:
        weight = np.zeros_like(self._instances)
        weight[self._weight_at] = np.maximum(weights, 0.0) / self._instances[self._weight_at]
        weight[:, self._shared] = np.where(self._instances[:, self._shared] > 0, weight[0, self._shared], 0.0)
        byte = np.maximum(multipliers, 0.0).reshape(self._capacity.shape) / self._unit_bytes / (self._scale or 1.0)
        total = self._total(weight)
        for (_, stage), value in of_table.items():
            total[stage] += max(value, 0.0)
        for stage, value in idle.items():
            total[stage] += max(value, 0.0)
        weight_of_table = {
            pair: max(value, 0.0) / float(total[pair[1]]) for pair, value in of_table.items() if value > 0
        }
        return Multipliers(weight / total[self._stages], byte, weight_of_table)

    def _total(self, weight: Floats) -> Floats:
        """[S] sums of the weights: one but for the solver's tolerance, and made one exactly."""
        total = np.zeros(self._stage_count)
        own = ~self._shared | (np.arange(len(weight))[:, None] == 0)
        np.add.at(total, self._stages, (weight * self._instances * own).sum(axis=0))
        return total

    def shares(self) -> Floats:
        """[P] how the fluid optimum mixes the cuts' choices: their dual values; the last one where none is known."""
        shares = np.zeros(len(self._cuts))
        if self._result is None:
            shares[-1] = 1.0
            return shares
        duals = self._result.dual_values()
        shares[:] = np.abs([duals.get(cut, 0.0) for cut in self._cuts])
        return np.asarray(shares / shares.sum())

    def stage_seconds(self) -> Floats:
        """[S] stage times of the fluid optimum, or of the last choice; 0 for a stage without resources."""
        if self._result is None:
            return self._last
        duals = self._result.dual_values()
        seconds = np.zeros(self._stage_count)
        for stage, constraint in self._simplex.items():
            seconds[stage] = abs(duals[constraint]) / self._scale
        return seconds
