"""Sites as bins: where blocks are cut over many groups of ranks that share nothing, a group counts as one machine."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Ints
from planner.problem.sites import Sites

MANY = 32
"""Sites of an extent from which they are bins: with fewer, ranks are looked at one by one in as little time."""


def site_bins(problem: Problem, blocks: Ints) -> Sites | None:
    """Return the sites of blocks that are cut over groups of ranks, all of one extent, where these are many runs and
    none shares a resource or a memory with another; else None."""
    extents = np.unique(problem.block_extent[blocks])
    if len(extents) != 1:
        return None
    sites = problem.sites[int(extents[0])]
    if sites.reach != "group" or sites.count < MANY or not sites.are_runs:
        return None
    instances = (*problem.resource_of_rank, *problem.pool_of_rank)
    return sites if all(_is_apart(of, sites) for of in instances) else None


def _is_apart(instance: Ints, sites: Sites) -> bool:
    """Whether no two sites use the same instance [W] of a resource or a memory."""
    site_of = np.zeros(int(instance.max()) + 1, dtype=np.int64)
    site_of[instance] = sites.of_rank
    return bool((site_of[instance] == sites.of_rank).all())
