"""How often each pattern of blocks is used, in whole numbers: an integer programme with a variable for each pattern.

That is the programme of Gilmore and Gomory (Oper. Res. 9, 1961) over all patterns instead of fractions of a few, with a
choice of options for each table. Sites may hold more of a table than there is: what is too much is left out afterwards.

SCIP solves it, on one thread and for so many branch nodes, so that it repeats. What has no solution it mostly refutes
at the root, where CP-SAT tries on for a second.
"""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Ints

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

NODES = 200
"""Branch nodes of one programme at most."""
HALF = 0.5


@dataclass(frozen=True)
class BlockTypes:
    """Types of blocks that tables may be made of. G of them."""

    count: Ints
    """[G] how often a table in the type's option has it."""
    option: Ints
    """[G]"""
    table: Ints
    """[G]"""


@dataclass(frozen=True)
class SiteCounts:
    """What the sites hold."""

    options: Ints
    """One of each table, ascending."""
    sites: Ints
    """[P] that hold each pattern."""


def site_counts(sites: int, types: BlockTypes, patterns: Ints) -> SiteCounts | None:
    """How so many sites hold all tables, each in one option, by patterns [P, G] of how often a site holds each type;
    None where the solver finds no way."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    counts = [model.add_integer_variable(lb=0.0, ub=float(sites)) for _ in patterns]
    model.add_linear_constraint(mathopt.fast_sum(counts) <= float(sites))
    chosen = {option: model.add_binary_variable() for option in np.unique(types.option).tolist()}
    for table in np.unique(types.table).tolist():
        own = [chosen[option] for option in np.unique(types.option[types.table == table]).tolist()]
        model.add_linear_constraint(mathopt.fast_sum(own) == 1.0)
    for of_type, count, option in zip(patterns.T, types.count.tolist(), types.option.tolist(), strict=True):
        held = [int(of_type[at]) * counts[at] for at in np.flatnonzero(of_type).tolist()]
        model.add_linear_constraint(mathopt.fast_sum(held) >= count * chosen[option])
    values = _values(model)
    if values is None:
        return None
    options = [option for option, variable in chosen.items() if values[variable] > HALF]
    return SiteCounts(np.array(options), np.array([round(values[variable]) for variable in counts], dtype=np.int64))


def _values(model: "mathopt.Model") -> "dict[mathopt.Variable, float] | None":
    """The first solution that is found; None where there is none, or none after so many branch nodes."""
    from ortools.math_opt.python import mathopt

    parameters = mathopt.SolveParameters(threads=1, random_seed=0, node_limit=NODES, solution_limit=1)
    # MathOpt turns a status that is not OK into an AttributeError, or an error of its own (or-tools issue 4606)
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        result = mathopt.solve(model, mathopt.SolverType.GSCIP, params=parameters)
        if result.has_primal_feasible_solution():
            return dict(result.variable_values())
    return None
