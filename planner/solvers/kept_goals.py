"""Goals that were pursued already, and how much of each may still be given up."""

from dataclasses import dataclass, field

from planner.problem.goals import Goal, GoalName

NEAR = 1e-9
"""Relative amount that is kept free of limits for rounding."""


@dataclass
class KeptGoals:
    """How much of each goal may not be exceeded any more."""

    best: dict[GoalName, float] = field(default_factory=dict)
    most: dict[GoalName, float] = field(default_factory=dict)

    def keep(self, goal: Goal, value: float) -> None:
        """Keep to a value that was reached, and its tolerance."""
        most = value * (1 + goal.share + NEAR)
        self.best[goal.name], self.most[goal.name] = value, min(most, self.most.get(goal.name, most))
