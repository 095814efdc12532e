"""Plans whose nodes all hold the same: an integer programme over tables and nodes that nothing tells apart.

Where many tables are alike and each is large for a node, what the relaxation mixes fits no node as it is: of four
tables, three may be whole in host memory, and one half there, half in HBM. No change of one table or block leads there
from a plan that has all of them in halves. If every node holds the same, and so does every rank of it, all that is to
be said is how many tables of each class take each option, and how many of each block a site holds: a few hundred
integers, that minimise the step itself, within all memories.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.problem.table_classes import are_mostly_alike
from planner.solvers.integer.node_choices import (
    NodeChoices,
    asked,
    dominant,
    node_choices,
    ranks_sharing,
    tables_of_classes,
    weighted,
)
from planner.solvers.integer.scip import FEASIBILITY, solved
from planner.solvers.limits import Clock

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

MOST_CHOICES = 60
"""Ways to hold a table of each class that are tried, the cheapest ones."""
NODES = 300
"""Branch nodes of the programme at most."""


@dataclass(frozen=True)
class _Solution:
    """What every node holds."""

    tables: Ints
    """[Q] that each choice is taken by."""
    held: Ints
    """[H] how many of each block each site of it holds."""


class UniformNodes:
    """One problem whose nodes are alike, and most of its tables."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.is_possible = bool(
            problem.kinds == 1
            and problem.nodes.count > 1
            and len(np.unique(problem.nodes.sizes)) == 1
            and problem.reach.all()
            and not problem.is_confined
            and are_mostly_alike(problem)
        )
        """Whether it is such a problem: what is single is on all nodes, or on none."""

    @cached_property
    def tables(self) -> list[Ints]:
        """The tables of each class."""
        return tables_of_classes(self._problem)

    def plan(self, value: Floats, slack_s: float, below_s: float, clock: Clock) -> tuple[Placement, float] | None:
        """Return the fastest such plan that is found in time, faster than `below_s`, and its step.

        Options cost `value` [B] at the relaxation's multipliers (`Fluid.choice_values`); those that cost more than
        `slack_s` above the cheapest one of their table are left out.
        """
        choices = node_choices(self._problem, self.tables, value, slack_s, MOST_CHOICES)
        solution = self._solution(choices, below_s, clock)
        if solution is None:
            return None
        placement = self._placement(choices, solution)
        state = load_state(self._problem, placement)
        step_s = state.step_s()
        return (placement, step_s) if step_s < below_s and state.overflow_bytes() <= 0 else None

    # -- the programme -----------------------------------------------------------------------------------------------

    def _asks(self, choices: NodeChoices) -> Floats:
        """[C + M, Q + H] seconds and bytes that an instance of each resource and each pool gives to a table of each
        choice wherever its blocks are, and to one of each block on every site."""
        of_choice, on_site = asked(self._problem, choices)
        return np.asarray(np.concatenate([of_choice, on_site]).T * ranks_sharing(self._problem)[:, None])

    def _solution(self, choices: NodeChoices, below_s: float, clock: Clock) -> _Solution | None:
        """What the solver finds; None where that is nothing."""
        from ortools.math_opt.python import mathopt

        problem = self._problem
        most = np.array([len(tables) for tables in self.tables])[choices.of_class]
        model = mathopt.Model()
        taken = _integers(model, most)
        held = _integers(model, most[choices.choice] * choices.count)
        for number, tables in enumerate(self.tables):
            own = [taken[q] for q in np.flatnonzero(choices.of_class == number).tolist()]
            model.add_linear_constraint(mathopt.fast_sum(own) == float(len(tables)))
        for number in np.flatnonzero(~problem.is_world_wide[choices.block]).tolist():
            sites, q = problem.sites_of(int(choices.block[number])).count, int(choices.choice[number])
            model.add_linear_constraint(sites * held[number] >= int(choices.count[number]) * taken[q])
        self._limit(model, choices, taken + held, below_s)
        values = solved(model, NODES, clock)
        if values is None:
            return None
        tables, blocks = (np.array([round(values[each]) for each in some], dtype=np.int64) for some in (taken, held))
        return _Solution(tables, blocks)

    def _limit(
        self, model: "mathopt.Model", choices: NodeChoices, variables: "list[mathopt.Variable]", below_s: float
    ) -> None:
        """Let stages last as long as their busiest resource, all together as little as may be, and pools hold what is
        theirs. A step is about as long as `below_s`; no limit of the programme, which would hide what leads there."""
        from ortools.math_opt.python import mathopt

        problem, asks, base = self._problem, self._asks(choices), LoadState(self._problem)
        seconds, size = np.split(asks, [len(problem.stage_of_column)])
        base_s = base.load.max(axis=1)
        moved_s = below_s - float(problem.stage_constants.sum())
        unit_s = moved_s if np.isfinite(moved_s) and moved_s > 0 else float(np.maximum(base_s, 0.0).sum()) or 1.0
        stages = [model.add_variable(lb=0.0) for _ in problem.stage_constants]
        for column in dominant(np.concatenate([seconds, base_s[:, None]], axis=1), problem.stage_of_column).tolist():
            stage = stages[int(problem.stage_of_column[column])]
            load = weighted(variables, seconds[column] / unit_s)
            model.add_linear_constraint(mathopt.fast_sum(load) + float(base_s[column]) / unit_s <= stage)
        for of_pool, free in zip(size, base.free.min(axis=1).tolist(), strict=True):
            if of_pool.any():
                unit = max(free, 1.0)
                model.add_linear_constraint(
                    mathopt.fast_sum(weighted(variables, of_pool / unit)) <= free / unit - FEASIBILITY
                )
        model.minimize(mathopt.fast_sum(stages))

    # -- placing -----------------------------------------------------------------------------------------------------

    def _placement(self, choices: NodeChoices, solution: _Solution) -> Placement:
        """The plan: the tables of a class take its choices in turn, and blocks the sites of a round after those of the
        one before, until there are no more."""
        problem, blocks, places = self._problem, list[Ints](), list[Ints]()
        tables_of = [list(tables) for tables in self.tables]
        start = problem.table_block_start
        mine = [
            np.array([tables_of[of_class].pop() for _ in range(times)], dtype=np.int64)
            for of_class, times in zip(choices.of_class.tolist(), solution.tables.tolist(), strict=True)
        ]
        for number, (block, q) in enumerate(zip(choices.block.tolist(), choices.choice.tolist(), strict=True)):
            first = int(start[self.tables[int(choices.of_class[q])][0]])
            taken = np.repeat(start[mine[q]] + block - first, int(choices.count[number]))
            sites = problem.sites_of(block)
            place = np.tile(np.arange(sites.count), int(solution.held[number]))[: len(taken)]
            blocks.append(taken)
            places.append(np.full(len(taken), NOWHERE) if sites.reach == "world" else place)
        taken, place = np.concatenate(blocks), np.concatenate(places)
        order = np.lexsort((place, taken))
        return Placement(taken[order], place[order])


def _integers(model: "mathopt.Model", most: Ints) -> "list[mathopt.Variable]":
    return [model.add_integer_variable(lb=0.0, ub=float(each)) for each in most.tolist()]
