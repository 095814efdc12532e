"""Linear programs solved by the simplex method through MathOpt, whatever state a solver ends in.

They are written in MathOpt's messages: of programs of a hundred variables its modelling objects, one for each number,
take more time than the simplex.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.problem.numbers import Floats, Ints

if TYPE_CHECKING:
    from ortools.math_opt import model_pb2, model_update_pb2, sparse_containers_pb2

LEAST_ITERATIONS, ITERATIONS_PER_LINE = 5_000, 50
"""Simplex iterations at most: the former, and the latter for each variable and constraint. The programs of DLRM-DCN
v2 and Model-F on 128 ranks and `hugectr-180` on 8 end after 218 at most, and 0.4 for each variable and constraint."""


@dataclass(frozen=True)
class Optimum:
    """An optimal solution of a program."""

    values: Floats
    """[n] of its variables."""
    duals: Floats
    """[m] of its rows; the derivative of the optimum by the row's limit."""


class LinearProgram:
    """The largest, or smallest, sum of some variables, in limits of their own and those of rows. It grows between
    solves, which go on from the last optimum; variables and rows are numbered as they are added."""

    def __init__(self, *, maximize: bool) -> None:
        self._maximize = maximize
        self._objective: list[int] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._rows: list[tuple[Ints, Floats]] = []
        """The variables of each row, ascending, and their coefficients, none of them 0."""
        self._limits: list[tuple[float, float]] = []
        self._solver: Any = None
        self._sent = 0, 0
        """Variables and rows that the solver knows; of these it does not know what follows."""
        self._new_upper: dict[int, float] = {}
        self._new_entries: dict[tuple[int, int], float] = {}

    @property
    def size(self) -> int:
        """Variables and rows together."""
        return len(self._lower) + len(self._rows)

    def add_variables(
        self, count: int, lower: float = 0.0, upper: float = np.inf, *, is_counted: bool = False
    ) -> list[int]:
        """Add variables between limits, part of the objective where they are counted; return their numbers."""
        numbers = list(range(len(self._lower), len(self._lower) + count))
        self._lower += [lower] * count
        self._upper += [upper] * count
        if is_counted:
            self._objective += numbers
        return numbers

    def add_row(
        self, variables: Sequence[int] | Ints, coefficients: Sequence[float] | Floats, lower: float, upper: float
    ) -> int:
        """Keep the sum of different variables, each times its coefficient, between limits; return the row's number."""
        at, values = np.asarray(variables, dtype=np.int64), np.asarray(coefficients, dtype=np.float64)
        counts = np.flatnonzero(values)
        counts = counts[np.argsort(at[counts], kind="stable")]
        self._rows.append((at[counts], values[counts]))
        self._limits.append((lower, upper))
        return len(self._rows) - 1

    def append(self, row: int, variable: int, coefficient: float) -> None:
        """Take a variable, newer than all others of it, into a row."""
        if not coefficient:
            return
        at, values = self._rows[row]
        self._rows[row] = np.append(at, variable), np.append(values, coefficient)
        if row < self._sent[1]:
            self._new_entries[row, variable] = coefficient

    def upper_of(self, variable: int) -> float:
        """Return the upper limit of a variable."""
        return self._upper[variable]

    def limit(self, variable: int, upper: float) -> None:
        """Set the upper limit of a variable."""
        self._upper[variable] = upper
        if variable < self._sent[0]:
            self._new_upper[variable] = upper

    def solve_on(self, most_iterations: int) -> Optimum | None:
        """Solve by GLOP from the last optimum; None where it ends otherwise, or breaks down."""
        from ortools.math_opt import parameters_pb2
        from ortools.math_opt.core.python import solver

        def solved() -> Any:
            if self._solver is None or not self._solver.update(self._update()):
                self._solver = solver.new(parameters_pb2.SOLVER_TYPE_GLOP, self._message(), _nothing())
            self._sent = len(self._lower), len(self._rows)
            self._new_upper, self._new_entries = {}, {}
            return self._solver.solve(*_limits(most_iterations))

        return self._read(solved)

    def solve_afresh(self, solver_type: int, most_iterations: int) -> Optimum | None:
        """Solve by a solver that knows nothing yet; None where it ends otherwise, or breaks down."""
        from ortools.math_opt.core.python import solver

        return self._read(lambda: solver.solve(self._message(), solver_type, _nothing(), *_limits(most_iterations)))

    def _read(self, solved: Callable[[], Any]) -> Optimum | None:
        from ortools.math_opt import result_pb2
        from ortools.math_opt.core.python.solver import Solver  # noqa: F401  registers the exception
        from pybind11_abseil.status import StatusNotOk

        try:
            result = solved()
        except (StatusNotOk, AttributeError, RuntimeError, ValueError):  # AttributeError: or-tools issue 4606
            return None
        if result.termination.reason != result_pb2.TERMINATION_REASON_OPTIMAL or not result.solutions:
            return None
        best = result.solutions[0]
        if not best.HasField("primal_solution") or not best.HasField("dual_solution"):
            return None
        return Optimum(
            _dense(best.primal_solution.variable_values, len(self._lower)),
            _dense(best.dual_solution.dual_values, len(self._rows)),
        )

    def _message(self) -> "model_pb2.ModelProto":
        """The whole program."""
        from ortools.math_opt import model_pb2

        return model_pb2.ModelProto(
            variables=self._variables(0),
            objective=model_pb2.ObjectiveProto(maximize=self._maximize, linear_coefficients=self._counted(0)),
            linear_constraints=self._constraints(0),
            linear_constraint_matrix=self._matrix(0, []),
        )

    def _update(self) -> "model_update_pb2.ModelUpdateProto":
        """What the solver does not know yet."""
        from ortools.math_opt import model_update_pb2, sparse_containers_pb2

        variables, rows = self._sent
        upper = sparse_containers_pb2.SparseDoubleVectorProto(
            ids=sorted(self._new_upper), values=[self._new_upper[at] for at in sorted(self._new_upper)]
        )
        entries = [(*at, value) for at, value in sorted(self._new_entries.items())]
        return model_update_pb2.ModelUpdateProto(
            variable_updates=model_update_pb2.VariableUpdatesProto(upper_bounds=upper),
            new_variables=self._variables(variables),
            objective_updates=model_update_pb2.ObjectiveUpdatesProto(linear_coefficients=self._counted(variables)),
            new_linear_constraints=self._constraints(rows),
            linear_constraint_matrix_updates=self._matrix(rows, entries),
        )

    def _variables(self, first: int) -> "model_pb2.VariablesProto":
        from ortools.math_opt import model_pb2

        ids = range(first, len(self._lower))
        return model_pb2.VariablesProto(
            ids=ids, lower_bounds=self._lower[first:], upper_bounds=self._upper[first:], integers=[False] * len(ids)
        )

    def _counted(self, first: int) -> "sparse_containers_pb2.SparseDoubleVectorProto":
        """Variables of the objective from the first one on."""
        from ortools.math_opt import sparse_containers_pb2

        ids = [variable for variable in self._objective if variable >= first]
        return sparse_containers_pb2.SparseDoubleVectorProto(ids=ids, values=[1.0] * len(ids))

    def _constraints(self, first: int) -> "model_pb2.LinearConstraintsProto":
        from ortools.math_opt import model_pb2

        limits = self._limits[first:]
        return model_pb2.LinearConstraintsProto(
            ids=range(first, len(self._limits)),
            lower_bounds=[lower for lower, _ in limits],
            upper_bounds=[upper for _, upper in limits],
        )

    def _matrix(
        self, first: int, entries: Sequence[tuple[int, int, float]]
    ) -> "sparse_containers_pb2.SparseDoubleMatrixProto":
        """Entries (row, variable, coefficient) of earlier rows, and then the rows from the first one on."""
        from ortools.math_opt import sparse_containers_pb2

        rows, columns, values = ([entry[part] for entry in entries] for part in range(3))
        for number, (at, coefficients) in enumerate(self._rows[first:], start=first):
            rows += [number] * len(at)
            columns += at.tolist()
            values += coefficients.tolist()
        return sparse_containers_pb2.SparseDoubleMatrixProto(row_ids=rows, column_ids=columns, coefficients=values)


def optimum(program: LinearProgram, most_iterations: int | None = None) -> Optimum | None:
    """Solve on from the last optimum; afresh, by one solver and then another, where that ends in an imprecise answer.

    None where all of them give up, each after `most_iterations`, or as many as no program that ends has been seen to
    take: GLOP cycles now and then.
    """
    from ortools.math_opt import parameters_pb2

    if most_iterations is None:
        most_iterations = LEAST_ITERATIONS + ITERATIONS_PER_LINE * program.size
    found = program.solve_on(most_iterations)
    for solver_type in (parameters_pb2.SOLVER_TYPE_GLOP, parameters_pb2.SOLVER_TYPE_HIGHS):
        if found is not None:
            break
        found = program.solve_afresh(solver_type, most_iterations)
    return found


def _limits(most_iterations: int) -> tuple[Any, ...]:
    """What a solver is given beside a program: iterations, that nobody reads reduced costs, and no callbacks."""
    from ortools.math_opt import callback_pb2, model_parameters_pb2, parameters_pb2, sparse_containers_pb2

    nothing = sparse_containers_pb2.SparseVectorFilterProto(filter_by_ids=True)
    return (
        parameters_pb2.SolveParametersProto(iteration_limit=most_iterations),
        model_parameters_pb2.ModelSolveParametersProto(reduced_costs_filter=nothing),
        None,
        callback_pb2.CallbackRegistrationProto(),
        None,
        None,
    )


def _nothing() -> Any:
    from ortools.math_opt import parameters_pb2

    return parameters_pb2.SolverInitializerProto()


def _dense(vector: Any, size: int) -> Floats:
    values = np.zeros(size)
    values[vector.ids[:]] = vector.values[:]
    return values
