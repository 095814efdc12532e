"""Blocks at places, one by one: what each costs at multipliers, for comparison with what is priced all at once."""

import numpy as np

from cost_models.shards import NODE, RANK
from planner.certificates.node_weights import NodeMultipliers
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from planner.problem.numbers import Floats, Ints


def random_multipliers(problem: Problem, random: np.random.Generator, labels: Ints) -> NodeMultipliers:
    """Draw multipliers that are equal on ranks of one label [W]; the weights of a stage sum to at most one."""
    weight = random.random((len(problem.stage_of_column), problem.world))
    byte = random.random((len(problem.pool_capacity), problem.world)) * 1e-9
    for rows, instances in ((weight, problem.resource_of_rank), (byte, problem.pool_of_rank)):
        for row, instance in zip(rows, instances, strict=True):
            alike: dict[bytes, float] = {}
            for own in np.unique(instance):
                ranks = instance == own
                row[ranks] = alike.setdefault(np.sort(labels[ranks]).tobytes(), float(row[ranks][0]))
    for stage in np.unique(problem.stage_of_column):
        columns = problem.stage_of_column == stage
        own = [
            row[np.unique(i, return_index=True)[1]].sum()
            for row, i in zip(weight, problem.resource_of_rank, strict=True)
        ]
        weight[columns] /= np.array(own)[columns].sum()
    return NodeMultipliers(weight, byte)


def worth(problem: Problem, seconds: Floats, size: Floats, multipliers: NodeMultipliers) -> float:
    """Return what loads [C, W] and bytes [M, W] of instances are worth, each instance counted once."""
    total = 0.0
    for values, rows, instances in (
        (seconds, multipliers.weight, problem.resource_of_rank),
        (size, multipliers.byte, problem.pool_of_rank),
    ):
        for value, row, instance in zip(values, rows, instances, strict=True):
            first = np.unique(instance, return_index=True)[1]
            total += float((value * row)[first].sum())
    return total


def places(problem: Problem, block: int) -> list[int]:
    """Return the places of a block whose kinds of rank allow it."""
    allowed = problem.allowed[problem.kind_of_rank, block]
    if problem.block_extent[block] == RANK:
        return np.flatnonzero(allowed).tolist()
    if problem.block_extent[block] == NODE:
        return [n for n, first in enumerate(problem.node_start[:-1].tolist()) if allowed[first]]
    return [-1] if allowed.all() else []


def cost_at(problem: Problem, block: int, place: int, multipliers: NodeMultipliers) -> float:
    """Return what a block is worth at a place; infinite where it does not fit there on empty ranks."""
    before, after = LoadState(problem), LoadState(problem)
    place_block(problem, after, block, place)
    after.add_everywhere(problem.everywhere[:, block])
    if after.free.min() < -1.0:
        return np.inf
    return worth(problem, after.load - before.load, before.free - after.free, multipliers)
