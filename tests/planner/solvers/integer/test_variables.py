"""The variables of the integer programme: their number is known before any is made."""

from planner.solvers.integer.programme import Programme
from planner.solvers.integer.variables import Choices
from tests.oracles.packings import known_optima


def test_variables_are_counted_without_being_written_down() -> None:
    """As many as the programme then has, options and blocks at sites."""
    for each in known_optima():
        problem = each.instance.problem
        made = Programme.of(problem, 1.0).variables
        assert Choices.size_of(problem) == len(made.option) + len(made.count), each.instance.description
