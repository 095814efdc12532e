"""What plans are told apart by, in an order of preference with a tolerance each (lexicographic optimization; in the
words of Gurobi and CPLEX, objectives with a priority and a relative tolerance).
"""

from dataclasses import dataclass
from typing import Literal

GoalName = Literal["step", "crowded_ranks", "blocks", "fullest_rank", "moved_bytes", "largest_stash"]
GIVE = 1e-3
"""Share of the best step that may be given up where nobody says how much."""
CROWDED = 0.9
"""Share of a rank's usable memory above which it is crowded: what a run needs beyond the estimate finds no room."""


@dataclass(frozen=True)
class Goal:
    """Something that is to be small."""

    name: GoalName
    tolerance: float | None = None
    """Share of its best value that may be given up for the goals after it; None: what is usual."""

    @property
    def share(self) -> float:
        """That share: `GIVE` of the step and nothing of the others where nobody says how much."""
        return (GIVE if self.name == "step" else 0.0) if self.tolerance is None else self.tolerance


@dataclass(frozen=True)
class HbmMemories:
    """The memories of a problem that are HBM."""

    moments: tuple[int, ...] = (0,)
    """Those that a rank fills, one for each moment at which it may be fullest."""
    stash: int | None = None
    """What a rank stashes of it; None where nothing may be."""


@dataclass(frozen=True)
class Reached:
    """How far a goal was reached."""

    goal: Goal
    best: float
    """The least that was found while those before it were kept."""
    value: float
    """What is left of it once those after it were pursued."""


USUAL = (Goal("step"), Goal("crowded_ranks"), Goal("blocks"), Goal("fullest_rank"))
USUAL_OF_STASH = (Goal("step"), Goal("crowded_ranks"), Goal("largest_stash"), Goal("blocks"), Goal("fullest_rank"))
"""Those of a plan that may stash tables."""
USUAL_OF_MOVES = (Goal("step"), Goal("moved_bytes"))
"""Those of a plan that follows another."""
