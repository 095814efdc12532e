"""What ranks ask for when they exchange, before it is laid over links."""

from dataclasses import dataclass
from typing import Literal

from cost_models.resources import Way
from cost_models.shards import Floats
from cost_models.simulator.process_groups import ProcessGroups

Operation = Literal["all-to-all", "reduce-scatter", "all-gather", "all-reduce"]


@dataclass(frozen=True, eq=False)
class CollectiveCall:
    """One collective of the ranks of each group."""

    operation: Operation
    groups: ProcessGroups
    size: Floats
    """[W] bytes: of an all-to-all what a rank sends to (`way` out) or gets from (in) each other rank, else those of its
    whole sums."""
    way: Way = "out"
    beyond: ProcessGroups | None = None
    """Smaller groups, within each of which an all-to-all moves nothing."""
