"""A programme as a file in free MPS format, which every solver of integer programmes reads.

Numbers have all their digits: ortools' own writer of this format keeps six.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.solvers.integer.programme import Programme

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

OBJECTIVE = "step"


def mps_lines(programme: Programme) -> Iterator[str]:
    """The lines of the file. Seconds are in the programme's unit of time, bytes in parts of a capacity."""
    model = programme.model
    rows = list(model.linear_constraints())
    yield f"* Minimise {OBJECTIVE}, in units of {programme.unit_s!r} s."
    yield "NAME placement"
    yield "ROWS"
    yield f" N {OBJECTIVE}"
    for row in rows:
        yield f" {_sense(row)} {row.name}"
    yield "COLUMNS"
    variables = sorted(model.variables(), key=lambda variable: (not variable.integer, variable.id))
    integers = sum(variable.integer for variable in variables)
    cost = {term.variable: term.coefficient for term in model.objective.linear_terms()}
    for number, variable in enumerate(variables):
        if number in (0, integers):
            yield f" MARKER{number} 'MARKER' '{'INTEND' if number else 'INTORG'}'"
        if variable in cost:
            yield f" {variable.name} {OBJECTIVE} {cost[variable]!r}"
        for row in sorted(model.column_nonzeros(variable), key=lambda row: row.id):
            yield f" {variable.name} {row.name} {row.get_coefficient(variable)!r}"
    yield "RHS"
    if model.objective.offset:
        yield f" RHS {OBJECTIVE} {-model.objective.offset!r}"
    for row in rows:
        side = row.lower_bound if math.isinf(row.upper_bound) else row.upper_bound
        if side:
            yield f" RHS {row.name} {side!r}"
    yield "BOUNDS"
    for variable in variables:
        if variable.lower_bound:
            yield f" LO BOUND {variable.name} {variable.lower_bound!r}"
        if not math.isinf(variable.upper_bound):
            yield f" UP BOUND {variable.name} {variable.upper_bound!r}"
    yield "ENDATA"


def _sense(row: "mathopt.LinearConstraint") -> str:
    if row.lower_bound == row.upper_bound:
        return "E"
    return "L" if math.isinf(row.lower_bound) else "G"
