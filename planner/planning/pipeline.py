"""From the options of a question to its plan: the one way that planning, sizing and studies take.

Search, whole tables where mixing costs more than it gains, caches in any shares, and the order of equals.
"""

import math
from dataclasses import dataclass

from cost_models.model import CostModel
from cost_models.shards import MEMORY_HBM
from planner.formulation.options import Options
from planner.planning.cache_division import polished
from planner.planning.whole_tables import with_whole_tables
from planner.planning.widening import solved
from planner.problem.arrays import Problem
from planner.solvers.finishing import finished
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import Clock, SearchLimits


@dataclass(frozen=True)
class Found:
    """The outcome to be written, with the options and the problem that it is about."""

    options: Options
    problem: Problem
    outcome: Outcome
    best_step_s: float | None
    """Of the best placement found, of which something may be given up; None where there is none."""


def searched(
    model: CostModel, options: Options, problem: Problem, limits: SearchLimits, progress: Progress | None = None
) -> Found:
    """The plan that is found within the limits."""
    clock = Clock(limits)
    options, problem, outcome = solved(model, options, problem, limits, progress)
    return completed(model, options, problem, outcome, limits.left_of(clock))


def completed(
    model: CostModel,
    options: Options,
    problem: Problem,
    outcome: Outcome,
    limits: SearchLimits,
    longest_s: float = math.inf,
) -> Found:
    """What is made of the outcome of a search; a step of at most `longest_s` stays one."""
    whole = with_whole_tables(model, options, outcome, limits)
    if whole.step_s is None or outcome.step_s is None or whole.step_s <= max(longest_s, outcome.step_s):
        outcome = whole
    options, problem, outcome = polished(model, options, problem, outcome)
    final = finished(problem, outcome, MEMORY_HBM, longest_s)
    return Found(options, problem, final.outcome, final.best_step_s)
