"""Limits on how long stages last: the plans of a problem divided into boxes by the time of a stage.

A plan whose stage lasts at least a time is held to that time by it; a plan whose stage is shorter holds no block that
alone makes the stage so long. Each half of the plans is a problem of its own, and none is in neither.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Floats
from planner.problem.rounding import ROUNDING

if TYPE_CHECKING:
    from planner.problem.arrays import Problem


@dataclass(frozen=True)
class StageLimits:
    """What the stages of the plans in question last, constants aside."""

    floors: Floats
    """[S] seconds that each stage lasts at least."""
    roofs: Floats
    """[S] seconds that each stage is shorter than; infinite for any."""


def divided(problem: "Problem", stage: int, seconds: float) -> tuple["Problem", "Problem"]:
    """The problem of the plans whose stage is shorter than so many seconds, constant aside, and that of all others."""
    count = len(problem.stage_constants)
    limits = problem.stage_limits or StageLimits(np.zeros(count), np.full(count, np.inf))
    roofs, floors = limits.roofs.copy(), limits.floors.copy()
    roofs[stage] = min(roofs[stage], seconds)
    floors[stage] = max(floors[stage], seconds)
    too_long = problem.extremes.stage_peaks_of_kind[:, :, stage] * (1 - ROUNDING) >= seconds
    below = replace(problem, allowed=problem.allowed & ~too_long, stage_limits=StageLimits(limits.floors, roofs))
    return _barred(below), replace(problem, stage_limits=StageLimits(floors, limits.roofs))


def _barred(problem: "Problem") -> "Problem":
    """The problem without blocks that are too long beside what every rank holds, again as long as that leaves out
    more."""
    limits = problem.stage_limits
    while limits is not None and problem.extremes.company.any():
        peaks = problem.extremes.stage_peaks_of_kind * (1 - ROUNDING)
        too_long = problem.allowed & (peaks >= limits.roofs).any(axis=-1)
        if not too_long.any():
            break
        problem = replace(problem, allowed=problem.allowed & ~too_long)
    return problem
