"""The sites of the extents that costs know, on given nodes."""

from collections.abc import Sequence

import numpy as np

from cost_models.shards import EXTENTS, ExtentRow, Ints
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools
from planner.problem.sites import Sites


def sites_on(node_of_rank: Ints, extents: Sequence[ExtentRow] = EXTENTS) -> tuple[Sites, ...]:
    """The sites of every extent, where the ranks [W] are on these nodes."""
    return tuple(Sites(extent.reach, extent.site_of_rank(node_of_rank)) for extent in extents)


def has_place(problem: Problem) -> Bools:
    """[K, B] whether the rank set of the block's table holds a whole site for it on ranks of the kind; of a part of
    rows, as many sites as there are parts."""
    is_open = np.zeros_like(problem.allowed)
    which = problem.table_rank_set[problem.table_of_block]
    parts = np.bincount(problem.block_option, weights=problem.block_count)
    needed = np.where(problem.option_apart, parts, 1.0)[problem.block_option]
    for extent, sites in enumerate(problem.sites):
        here, is_whole = problem.block_extent == extent, sites.all(problem.rank_sets)
        suffices = is_whole.sum(axis=1)[which[here]] >= needed[here]
        for k in range(problem.kinds):
            of_kind = (problem.kind_of_rank[sites.first] == k) | (sites.reach == "world")
            is_open[k, here] = np.asarray(is_whole[:, of_kind].any(axis=1))[which[here]] & suffices
    return is_open
