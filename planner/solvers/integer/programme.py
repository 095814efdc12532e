"""The whole planning problem as one mixed-integer linear programme.

Each table takes one option, and the blocks of an option are counted at the sites where they may be: the counts are
integers, so that equal blocks, and the ways to tile a table's columns, are not told apart. The step is the constants
and the stages' seconds, each at least the load of every instance of the stage's resources. Base loads that nothing adds
to are bounds on these seconds.

Ranks and nodes that nothing tells apart may change places in any solution. No constraint says which comes first:
solvers of integer programmes find such symmetries themselves, in the columns of what is written here.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats
from planner.problem.placement import Placement
from planner.solvers.integer.constraints import CONSTRAINTS, Rows
from planner.solvers.integer.variables import Choices, Labels, Variables

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt


@dataclass(frozen=True)
class Programme:
    """A model, its variables and its unit of time."""

    model: "mathopt.Model"
    variables: Variables
    unit_s: float
    """Seconds of one unit of the objective."""

    @classmethod
    def of(
        cls, problem: Problem, unit_s: float, longest_s: float = math.inf, labels: Labels | None = None
    ) -> "Programme":
        """The programme of a problem, for placements whose step is at most `longest_s`.

        See `power_of_two` for a unit of time that changes no digit.
        """
        from ortools.math_opt.python import mathopt

        named = labels or Labels.numbered(problem)
        model = mathopt.Model(name="placement")
        variables = Variables.of(model, Choices.of(problem), named)
        rows = Rows(model, variables, named, unit_s)
        for add_constraints in CONSTRAINTS:
            add_constraints(rows)
        constant = float(problem.stage_constants.sum()) / unit_s
        if math.isfinite(longest_s):
            rows.add("step", [(stage, 1.0) for stage in variables.stage], most=longest_s / unit_s - constant)
        model.minimize(mathopt.fast_sum(variables.stage) + constant)
        return cls(model, variables, unit_s)

    def hint(self, placement: Placement) -> "mathopt.SolutionHint":
        """A placement as values of the variables; those of groups and shared loads follow from them."""
        from ortools.math_opt.python import mathopt

        choices = self.variables.choices
        problem = choices.problem
        taken = set(placement.option_of_table(problem).tolist())
        values = {variable: float(option in taken) for option, variable in self.variables.option.items()}
        number = {pair: i for i, pair in enumerate(zip(choices.block.tolist(), choices.place.tolist(), strict=True))}
        count = np.zeros(len(choices.block))
        for pair in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
            count[number[pair]] += 1
        values |= dict(zip(self.variables.count, count.tolist(), strict=True))
        seconds = load_state(problem, placement).stage_seconds() - problem.stage_constants
        values |= {v: float(s) / self.unit_s for v, s in zip(self.variables.stage, seconds, strict=True)}
        return mathopt.SolutionHint(variable_values=values)

    def placement(self, count: Floats) -> Placement:
        """The placement with so many [V] of each block at each site."""
        choices = self.variables.choices
        times = np.rint(count).astype(np.int64)
        return Placement(np.repeat(choices.block, times), np.repeat(choices.place, times))
