"""From the options of a question to its plan: the one way that planning, sizing and studies take.

Search, whole tables where mixing costs more than it gains, caches in any shares, and the order of equals.
"""

import math
from dataclasses import dataclass

from cost_models.shards import MEMORY_HBM
from planner.formulation.formulation import Formulation
from planner.formulation.restrictions import restrictions
from planner.planning.cache_division import polished
from planner.planning.whole_tables import with_whole_tables
from planner.solvers.finishing import finished
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.search import solve


@dataclass(frozen=True)
class Found:
    """The outcome to be written, with what it is about."""

    formulation: Formulation
    outcome: Outcome
    best_step_s: float | None
    """Of the best placement found, of which something may be given up; None where there is none."""


def searched(formulation: Formulation, limits: SearchLimits, progress: Progress | None = None) -> Found:
    """The plan that is found within the limits."""
    clock = Clock(limits)
    formulation, outcome = solved(formulation, limits, progress)
    return completed(formulation, outcome, limits.left_of(clock))


def solved(
    formulation: Formulation, limits: SearchLimits, progress: Progress | None = None
) -> tuple[Formulation, Outcome]:
    """The outcome of a search with what it is about: every cut, where nothing fits among fewer. Only then is it true
    that nothing fits."""
    outcome = solve(formulation.problem, limits, progress, restrictions(formulation.options))
    if outcome.status == "infeasible" and not formulation.has_every_cut:
        formulation = formulation.with_every_cut()
        outcome = solve(formulation.problem, limits, progress, restrictions(formulation.options))
    return formulation, outcome


def completed(formulation: Formulation, outcome: Outcome, limits: SearchLimits, longest_s: float = math.inf) -> Found:
    """What is made of the outcome of a search; a step of at most `longest_s` stays one."""
    whole = with_whole_tables(formulation, outcome, limits)
    if whole.step_s is None or outcome.step_s is None or whole.step_s <= max(longest_s, outcome.step_s):
        outcome = whole
    formulation, outcome = polished(formulation, outcome)
    final = finished(formulation.problem, outcome, MEMORY_HBM, longest_s)
    return Found(formulation, final.outcome, final.best_step_s)
