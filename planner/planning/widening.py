"""Where nothing fits among few column cuts, every cut is searched: only then is it true that nothing fits."""

from cost_models.model import CostModel
from planner.formulation.option_space import EVERY_CUT
from planner.formulation.options import Options, build_problem, enumerate_options
from planner.formulation.restrictions import restrictions
from planner.problem.arrays import Problem
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve


def with_every_cut(model: CostModel, options: Options) -> tuple[Options, Problem]:
    """The options with every column cut among them, and their problem."""
    found = enumerate_options(model, options.permits, options.fractions, EVERY_CUT)
    return found, build_problem(model, found)


def solved(
    model: CostModel, options: Options, problem: Problem, limits: SearchLimits, progress: Progress | None = None
) -> tuple[Options, Problem, Outcome]:
    """The outcome of a search with the options and the problem that it is about: those of every cut, where nothing
    fits among fewer."""
    outcome = solve(problem, limits, progress, restrictions(options))
    if outcome.status == "infeasible" and options.cuts != EVERY_CUT:
        options, problem = with_every_cut(model, options)
        outcome = solve(problem, limits, progress, restrictions(options))
    return options, problem, outcome
