"""Memory multipliers in the document's words, and the places that they are of."""

import numpy as np

from cost_models.model import CostModel
from planner.document.certificates import MemoryMultiplier
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats


def memory_multipliers(model: CostModel, problem: Problem, byte: Floats) -> tuple[MemoryMultiplier, ...]:
    """The multipliers [D, M] that are not 0, in the document's words."""
    return tuple(
        MemoryMultiplier(tier=tier, group=group, seconds_per_byte=float(byte[d, m]), ranks=ranks)
        for m, tier in enumerate(memory_names(model, len(problem.pool_capacity)))
        for d, (group, ranks) in enumerate(places_of(model, problem))
        if byte[d, m] > 0
    )


def places_of(model: CostModel, problem: Problem) -> list[tuple[str, tuple[int, ...] | None]]:
    """[D] node group and confined ranks of each district; None for all ranks of the group that tables may use."""
    groups = [group.name for group in model.topology.nodes]
    capacity_regions = problem.capacity_regions
    return [
        (groups[kind], None if d < problem.kinds else tuple(np.flatnonzero(capacity_regions.ranks[d]).tolist()))
        for d, kind in enumerate(capacity_regions.kind.tolist())
    ]
