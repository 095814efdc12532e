"""The master program of Kelley's cutting planes: the best weights and multipliers under the cuts known so far.

Its multipliers lie in a box that grows (Marsten, Hogan & Blankenship, Oper. Res. 23(3), 1975); its dual values mix the
cuts' proposals as the Dantzig–Wolfe master does (Oper. Res. 8(1), 1960).
"""

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.bound.programs import LinearProgram, Optimum, optimum

_FIRST_BOX = 8.0
_LARGEST_BOX = 1e7


class Master:
    """A linear program over stage weights (summing to one per stage) and the multiplier of each tier's whole capacity.

    Seconds are scaled by the first cut's step, so that all its numbers are near one. Prices start inside a box that
    grows while they press against it.
    """

    def __init__(self, problem: Problem, instances: Floats, shared: Bools, capacity: Floats, floors: Floats) -> None:
        """Take `instances` [D, C], columns `shared` [C] by all kinds, `capacity` [D, M] and `floors` [S] from a
        `fluid.Fluid`."""
        self._instances, self._shared, self._stages = instances, shared, problem.stage_of_column
        self._stage_count = len(problem.stage_constants)
        self._capacity = capacity
        self._unit_bytes: Floats = np.where(capacity > 0, capacity, 2.0**30)
        self._own: Bools = ~shared | (np.arange(len(instances))[:, None] == 0)
        self._weight_at = np.nonzero(self._own & (instances > 0))
        self._column_stage: Ints = self._stages[self._weight_at[1]]
        """Of each weight."""
        self._scale = 0.0
        self._program = LinearProgram(maximize=True)
        self._bound = self._program.add_variables(1, lower=-np.inf, is_counted=True)
        self._weights = self._program.add_variables(len(self._column_stage))
        self._multipliers = self._program.add_variables(capacity.size, upper=_FIRST_BOX)
        self._simplex: dict[int, int] = {}
        """The row of each stage."""
        self._idle: list[int] = []
        idle_stages = []
        for stage in np.unique(self._stages).tolist():
            members = [self._weights[at] for at in np.flatnonzero(self._column_stage == stage).tolist()]
            if floors[stage] > 0:
                idle_stages.append(stage)
                self._idle += self._program.add_variables(1)
                members.append(self._idle[-1])
            self._simplex[stage] = self._program.add_row(members, np.ones(len(members)), 1.0, 1.0)
        self._idle_stages: Ints = np.array(idle_stages, dtype=np.int64)
        self._floors: Floats = floors[self._idle_stages]
        self._tables: list[tuple[int, int, int | None]] = []
        """Tables that have a weight in a stage; with a column, where it counts what is beside their largest block."""
        self._of_table: list[int] = []
        """Their variables."""
        self._cuts: list[int] = []
        self._last_optimum: Optimum | None = None
        """Of the last program that a solver ended."""
        self._last: Floats = np.zeros(self._stage_count)
        """[S] stage times of the last choice."""

    def start(self) -> Multipliers:
        """Equal weights within each stage, memory for nothing."""
        sizes = np.bincount(self._column_stage, minlength=self._stage_count)
        nothing = (np.zeros(len(some)) for some in (self._multipliers, self._of_table, self._idle))
        return self._as_multipliers(1.0 / sizes[self._column_stage], *nothing)

    def add_table(self, table: int, stage: int, seconds: list[float], column: int | None = None) -> None:
        """Give the table a weight in a stage: the stage lasts at least as long as its largest block; with what is
        beside that, where a column is given.

        That takes so many `seconds` in each of the choices so far.
        """
        (weight,) = self._program.add_variables(1)
        self._tables.append((table, stage, column))
        self._of_table.append(weight)
        self._program.append(self._simplex[stage], weight, 1.0)
        for cut, value in zip(self._cuts, seconds, strict=True):
            self._program.append(cut, weight, self._scale * value)

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
        terms = (
            (self._bound, np.array([-1.0])),
            (self._weights, self._scale * mean[self._weight_at]),
            (self._multipliers, excess.ravel()),
            (self._idle, self._scale * self._floors),
            (self._of_table, self._scale * np.array(of_table)),
        )
        variables = [variable for some, _ in terms for variable in some]
        self._cuts.append(self._program.add_row(variables, np.concatenate([of for _, of in terms]), 0.0, np.inf))

    def attempt(self, most_iterations: int | None = None) -> tuple[Multipliers, float] | None:
        """The best weights and multipliers under the cuts, and the value there: no bound can be above it.

        None where no solver ends, after so many iterations if that is given.
        """
        program = self._program
        while True:
            found = optimum(program, most_iterations)
            if found is None:
                return None
            self._last_optimum, values = found, found.values
            pressed = [
                price
                for price in self._multipliers
                if program.upper_of(price) < _LARGEST_BOX and values[price] >= 0.999 * program.upper_of(price)
            ]
            for price in pressed:
                program.limit(price, program.upper_of(price) * 10)
            if not pressed:
                break
        parts = (values[some] for some in (self._weights, self._multipliers, self._of_table, self._idle))
        return self._as_multipliers(*parts), float(values[self._bound[0]]) / self._scale

    def _as_multipliers(
        self, weights: Floats, multipliers: Floats, weights_of_tables: Floats, idle: Floats
    ) -> Multipliers:
        weight = np.zeros_like(self._instances)
        weight[self._weight_at] = np.maximum(weights, 0.0) / self._instances[self._weight_at]
        weight[:, self._shared] = np.where(self._instances[:, self._shared] > 0, weight[0, self._shared], 0.0)
        byte = np.maximum(multipliers, 0.0).reshape(self._capacity.shape) / self._unit_bytes / (self._scale or 1.0)
        total = self._total(weight)
        valued = [
            (key, value) for key, value in zip(self._tables, weights_of_tables.tolist(), strict=True) if value > 0
        ]
        for (_, stage, _), value in valued:
            total[stage] += value
        total[self._idle_stages] += np.maximum(idle, 0.0)
        shares = [(*key, value / float(total[key[1]])) for key, value in valued]
        of_table = {(table, stage): share for table, stage, column, share in shares if column is None}
        beside = {(table, column): share for table, _, column, share in shares if column is not None}
        return Multipliers(weight / total[self._stages], byte, of_table, beside)

    def _total(self, weight: Floats) -> Floats:
        """[S] sums of the weights: one but for the solver's tolerance, and made one exactly."""
        total = np.zeros(self._stage_count)
        np.add.at(total, self._stages, (weight * self._instances * self._own).sum(axis=0))
        return total

    def shares(self) -> Floats:
        """[P] how the fluid optimum mixes the cuts' choices: their dual values; the last one where none is known."""
        shares = np.zeros(len(self._cuts))
        if self._last_optimum is None:
            shares[-1] = 1.0
            return shares
        known = [cut for cut in self._cuts if cut < len(self._last_optimum.duals)]
        shares[: len(known)] = np.abs(self._last_optimum.duals[known])
        return np.asarray(shares / shares.sum())

    def stage_seconds(self) -> Floats:
        """[S] stage times of the fluid optimum, or of the last choice; 0 for a stage without resources."""
        if self._last_optimum is None:
            return self._last
        seconds = np.zeros(self._stage_count)
        for stage, row in self._simplex.items():
            seconds[stage] = abs(self._last_optimum.duals[row]) / self._scale
        return seconds
