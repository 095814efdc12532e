"""Surrogate resources of the fluid relaxation: what the ranks of a region have together (Glover, Oper. Res. 16(4),
1968)."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints


def instances_of(problem: Problem) -> Floats:
    """[D, C] instances of a column's resource that the ranks of a capacity region use; where kinds share some, all for
    each kind and 0 for the parts of kinds."""
    capacity_regions = problem.capacity_regions
    instances = np.stack([_distinct(problem, ranks) for ranks in capacity_regions.ranks])
    everyone = _distinct(problem, problem.reach)
    of_kind = np.arange(len(instances)) < problem.kinds
    is_shared = instances[of_kind].sum(axis=0) > everyone
    return np.where(is_shared, np.where(of_kind[:, None], everyone, 0.0), instances)


def _distinct(problem: Problem, ranks: Bools) -> Floats:
    """[C] how many instances of each column's resource some ranks use."""
    instance = np.sort(problem.resource_of_rank[:, ranks], axis=1)
    return np.asarray((instance[:, 1:] != instance[:, :-1]).sum(axis=1) + float(ranks.any()))


def capacity_of(problem: Problem) -> Floats:
    """[D, M] bytes that tables may use in the pools of each capacity region together."""
    capacity_of_region = np.zeros((len(problem.capacity_regions.kind), len(problem.pool_capacity)))
    for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
        for d, ranks in enumerate(problem.capacity_regions.ranks):
            capacity_of_region[d, m] = capacity[np.unique(pool[ranks])].sum() - ranks.sum() * problem.base_bytes[m]
    return capacity_of_region


def row_share_of_kind(problem: Problem, kind: int) -> Floats:
    """[B] share of the table's rows that the ranks of a kind hold of a world-wide block (ranks, if replicated)."""
    world = problem.is_world_wide
    share = np.zeros(len(problem.block_option))
    of_kind = problem.kind_of_rank == kind
    if of_kind.all():
        share[world] = 1.0
    else:
        for block in np.flatnonzero(world & ~problem.block_replicated).tolist():
            share[block] = problem.row_shares.on_site(block, problem.world)[of_kind].sum()
    share[world & problem.block_replicated] = of_kind.sum()
    return share


def blocks_of_choices(problem: Problem, choices: Ints) -> tuple[Ints, Ints]:
    """Block types of the options that `choices` [n] name, one option after the other, and how many [n] each has.

    A splittable option counts as the block that names it, a fixed one as all of its blocks.
    """
    option = problem.block_option[choices]
    free = problem.block_units[choices] > 0
    starts = np.where(free, choices, problem.block_start[option])
    lengths = np.where(free, 1, problem.block_start[option + 1] - starts)
    first = lengths.cumsum() - lengths
    return np.repeat(starts - first, lengths) + np.arange(lengths.sum()), lengths


def taken_by_choices(problem: Problem, choices: Ints) -> tuple[Ints, Floats]:
    """Blocks of the chosen options and how often each is taken (in fractions, for a splittable option)."""
    blocks, lengths = blocks_of_choices(problem, choices)
    units = problem.block_units[choices]
    fraction = problem.option_units[problem.block_option[choices]] / np.maximum(units, 1)
    free = np.repeat(units > 0, lengths)
    return blocks, np.where(free, np.repeat(fraction, lengths), problem.block_count[blocks])


def shared_columns(problem: Problem, instances: Floats) -> Bools:
    """[C] whether some of the `instances` [D, C] of a column serve ranks of several kinds."""
    if problem.kinds == 1:
        return np.zeros(len(problem.stage_of_column), dtype=bool)
    return np.asarray(instances[: problem.kinds].sum(axis=0) > _distinct(problem, problem.reach))
