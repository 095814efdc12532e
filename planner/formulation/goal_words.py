"""The goals of a policy as people write them: `[step, {blocks: 1%}, fullest_rank]`."""

from typing import Annotated, get_args

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from planner.problem.goals import Goal, GoalName
from topologies.errors import shown
from topologies.messages import did_you_mean
from topologies.units import parse_tolerance

GOALS: tuple[GoalName, ...] = get_args(GoalName)


def _parse(value: object) -> Goal:
    """A name, or a name with the share of its best value that may be given up."""
    if isinstance(value, Goal):
        return value
    pairs = value.items() if isinstance(value, dict) else [(value, None)]
    if len(pairs) != 1:
        raise ValueError(f"{shown(value)} must be one goal; write for example blocks, or {{blocks: 1%}}")
    ((name, share),) = pairs
    if name not in GOALS:
        raise ValueError(f"{shown(name)} is no goal{did_you_mean(str(name), GOALS)}; goals are {', '.join(GOALS)}")
    return Goal(name, None if share is None else parse_tolerance(share))


def _write(goal: Goal) -> object:
    return goal.name if goal.tolerance is None else {goal.name: goal.tolerance}


def _in_order(goals: tuple[Goal, ...]) -> tuple[Goal, ...]:
    names = [goal.name for goal in goals]
    if not names or names[0] != "step":
        raise ValueError("must begin with step: it is what plans are searched by; give it a tolerance for the others")
    if len(set(names)) < len(names):
        raise ValueError(f"name a goal twice: {', '.join(names)}")
    return goals


_SCHEMA = {
    "anyOf": [
        {"enum": list(GOALS)},
        {"type": "object", "propertyNames": {"enum": list(GOALS)}, "minProperties": 1, "maxProperties": 1},
    ],
    "examples": ["blocks", {"blocks": "1%"}],
}
GoalWords = Annotated[
    Goal, BeforeValidator(_parse), PlainSerializer(_write, return_type=object), WithJsonSchema(_SCHEMA)
]
Goals = Annotated[tuple[GoalWords, ...], AfterValidator(_in_order)]


def goals_of_flag(text: str) -> list[object]:
    """`step,blocks=1%,fullest_rank` as a policy file has it."""
    words = [word.strip().partition("=") for word in text.split(",")]
    return [{name: share} if equals else name for name, equals, share in words]
