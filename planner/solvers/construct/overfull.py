"""Memory that may be too full, at a penalty: a scarce tier as one more stage of the step.

Under a limit on bytes large blocks no longer fit before the memory is full. As seconds, bytes are balanced
like loads: placement and local search work as they do on any stage, and in the end all pools are full to a few parts in
ten thousand. What then fits is a placement of the problem as it was.
"""

from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid

TIGHT = 0.93
"""Share of a tier that the fluid optimum takes, above which blocks stand in each other's way there."""
ROOM = 0.1
"""Share of its capacity by which a pool may be too full at most."""
MARGIN = 1e-6
"""Share of a pool that is left free: balancing ends at its aim give or take some rounding."""


def tight_tiers(fluid: Fluid, relaxed: FluidSolution) -> Bools:
    """Return which memory tiers [M] the fluid optimum fills, or nearly so, on ranks of some kind."""
    taken = sum(
        share * fluid.usage(relaxed.multipliers, choices)[1]
        for choices, share in zip(relaxed.choices, relaxed.shares, strict=True)
    )
    return np.asarray(
        (relaxed.multipliers.byte > 0).any(axis=0)
        | ((taken > TIGHT * fluid.capacity) & (fluid.capacity > 0)).any(axis=0)
    )


def with_priced_memory(problem: Problem, seconds: Floats) -> Problem:
    """Return the problem with one more stage for each memory tier that has `seconds` [M] above 0.

    The stage takes these seconds as long as no pool of the tier is too full; where one is, longer by the share by which
    the fullest one is. Blocks are the same, so placements are, too.
    """
    kinds, blocks = problem.allowed.shape
    first = np.searchsorted(problem.kind_of_rank, np.arange(problem.kinds))
    resources, stages = [problem.resource_of_rank], [problem.stage_of_column]
    fixed, by_rows, base = [problem.fixed], [problem.by_rows], [problem.base_loads]
    capacities = list(problem.pool_capacity)
    tiers = np.flatnonzero(seconds > 0).tolist()
    for number, tier in enumerate(tiers):
        pool, capacity = problem.pool_of_rank[tier], problem.pool_capacity[tier]
        sharing = np.bincount(pool)[pool][first]
        usable = np.maximum(capacity[pool][first] * (1 - MARGIN), 1.0)
        of_byte = float(seconds[tier]) / usable
        nothing = np.zeros((kinds, blocks))
        resources.append(np.stack([pool, pool]))
        stages.append(np.full(2, len(problem.stage_constants) + number))
        fixed.append(np.stack([problem.bytes_fixed[:, :, tier] * of_byte[:, None], nothing], axis=2))
        by_rows.append(np.stack([problem.bytes_by_rows[:, :, tier] * of_byte[:, None], nothing], axis=2))
        base.append(np.stack([problem.base_bytes[tier] * of_byte, float(seconds[tier]) / sharing], axis=1))
        capacities[tier] = capacity * (1 + ROOM)
    return replace(
        problem,
        resource_of_rank=np.concatenate(resources),
        stage_of_column=np.concatenate(stages),
        stage_constants=np.concatenate([problem.stage_constants, np.zeros(len(tiers))]),
        base_loads=np.concatenate(base, axis=1),
        fixed=np.concatenate(fixed, axis=2),
        by_rows=np.concatenate(by_rows, axis=2),
        everywhere=np.concatenate([problem.everywhere, np.zeros((kinds, blocks, 2 * len(tiers)))], axis=2),
        pool_capacity=tuple(capacities),
    )
