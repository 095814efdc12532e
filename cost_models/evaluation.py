"""What a placement costs: its stages, and the ranks and resources that these wait for."""

from dataclasses import dataclass

import numpy as np

from cost_models.resources import Resource
from cost_models.shards import Floats

ROUNDING = 1e-9
"""Relative difference of two sums of the same loads in another order, at most."""


@dataclass(frozen=True)
class Evaluation:
    """What a placement costs, recomputed from its shards."""

    stage_seconds: Floats
    """[S]"""
    critical_rank: tuple[int | None, ...]
    """[S] first rank of the resource that binds the stage; None where only a constant does."""
    binding: tuple[Resource | None, ...]
    """[S] the resource that binds the stage."""
    rank_stage_seconds: Floats
    """[W, S]"""
    rank_bytes: Floats
    """[W, M] with the dense part; of a memory that ranks share: the rank's own share."""

    @property
    def step_s(self) -> float:
        """The sum of the stages."""
        return float(self.stage_seconds.sum())


def critical_rank(busy: Floats) -> int | None:
    """The first of the ranks that are the busiest, of seconds [W]; None where none is busy.

    Loads that differ by the rounding of their sums count as equal: which of them is larger depends on the machine.
    """
    return int(np.argmax(busy >= busy.max() * (1 - ROUNDING))) if busy.any() else None
