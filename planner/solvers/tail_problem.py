"""The mean step of several scenarios as one problem, which the search of steps improves as it is.

Every scenario has stages and columns of its own, at its share of their seconds; bytes, sites and options are the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats


def mean_problem(problem: Problem, scenarios: Sequence[Problem]) -> Problem:
    """The problem whose step is the mean over `scenarios`, which have the same blocks and other seconds."""
    count, stages = len(scenarios), [len(each.stage_constants) for each in scenarios]
    firsts = np.cumsum(stages) - stages  # a scenario may have a stage that no block loads, such as the floor

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(each, name) for each in scenarios], axis=-1) / count

    return replace(
        problem,
        stage_of_column=np.concatenate(
            [each.stage_of_column + first for each, first in zip(scenarios, firsts.tolist(), strict=True)]
        ),
        resource_of_rank=np.concatenate([each.resource_of_rank for each in scenarios]),
        stage_constants=joined("stage_constants"),
        base_loads=joined("base_loads"),
        fixed=joined("fixed"),
        by_rows=joined("by_rows"),
        everywhere=joined("everywhere"),
    )
