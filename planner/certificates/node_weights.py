"""Multipliers of a branch node: a weight for every instance of a resource, a multiplier for every memory pool."""

from typing import NamedTuple

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING


class NodeMultipliers(NamedTuple):
    """What a second and a byte are worth in a branch node."""

    weight: Floats
    """[C, W] of a second on the instance that the rank uses; over the instances of a stage at most one in all."""
    byte: Floats
    """[M, W] of a byte of the pool that the rank uses."""


class WeightRules:
    """What multipliers of the nodes of one problem must keep."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._first_rank = first_ranks(problem.resource_of_rank)
        self.first_of_instance = opens(problem.resource_of_rank)

    def evened(self, labels: Ints, multipliers: NodeMultipliers) -> NodeMultipliers:
        """The same multipliers for equal ranks: the mean of what they have. That proves no less than any other."""
        count = np.bincount(labels)
        mean = [
            np.stack([np.bincount(labels, weights=row) / count for row in table])[:, labels] for table in multipliers
        ]
        return NodeMultipliers(*mean)

    def excess_weight(self, multipliers: NodeMultipliers) -> float:
        """Return the excess over one of the weights of the worst stage; infinite for weights that are none."""
        weight = multipliers.weight
        of_instance = np.take_along_axis(weight, self._first_rank, axis=1)
        if weight.min() < 0 or multipliers.byte.min() < 0 or np.abs(weight - of_instance).max() > ROUNDING:
            return np.inf
        return float(self._shares(multipliers).max() - 1.0)

    def _shares(self, multipliers: NodeMultipliers) -> Floats:
        """[S] sums of the weights of each stage."""
        total = np.zeros(len(self.problem.stage_constants))
        np.add.at(total, self.problem.stage_of_column, (multipliers.weight * self.first_of_instance).sum(axis=1))
        return total

    def idle_shares(self, multipliers: NodeMultipliers) -> Floats:
        """[S] what the weights of each stage leave; it counts the seconds that the stage takes in any case."""
        return np.maximum(1.0 - self._shares(multipliers), 0.0)


def opens(instances: Ints) -> Bools:
    """[R, W] whether the rank is the first to use its instance."""
    return np.asarray(first_ranks(instances) == np.arange(instances.shape[1]))


def first_ranks(instances: Ints) -> Ints:
    """[R, W] the first rank that uses the instance of each rank."""
    first = np.zeros(instances.shape, dtype=np.int64)
    for own, row in zip(first, instances, strict=True):
        _, opens, which = np.unique(row, return_index=True, return_inverse=True)
        own[:] = opens[which]
    return first
