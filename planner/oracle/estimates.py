"""Estimates of the steps of candidates, all at once.

A plan of a candidate is taken to exceed its bound as the base plan does its own, beyond the fixed part of the step.
The bound is a greedy choice: each table takes what costs least at the multipliers of the base. Where all that does not
fit into device memory, a price of a byte is found with which it does, and the seconds that this adds come on top.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.fixed_parts import FixedParts
from planner.oracle.base import Base
from planner.oracle.profiles import ProfileCosts, summed_over_tables
from planner.problem.numbers import Bools, Floats, Ints

AT_ONCE = 40_000
"""Candidates x tables whose choices are gathered at once: what is computed then stays in a cache."""


@dataclass(frozen=True)
class MemoryCosts:
    """Of n candidates."""

    seconds: Floats
    """[n] that a step takes longer because memory is scarce."""
    fits: Bools
    """[n] whether all tables fit, in fractions of the ways to hold them."""


def fixed_steps(base: Base, fixed: FixedParts) -> Floats:
    """[n] the steps of candidates without tables."""
    constants = fixed.constants.sum(axis=1) + base.latency_s(base.plan_protocols, fixed)
    loads = base.loads(base.plan_protocols, fixed)
    return np.asarray(constants + base.stage_seconds(loads * base.ranks_of_instance))


def memory_costs(base: Base, costs: ProfileCosts, row: Ints, fixed: FixedParts) -> MemoryCosts:
    """[n] of candidates whose tables are at these rows [n, T] of the profiles."""
    hbm = base.model.memories.index("hbm")
    on_ranks = np.zeros((len(row), len(base.model.memories)))
    on_ranks[:, hbm] = fixed.base_bytes * base.formulation.problem.world
    free = base.empty_capacity[0] - on_ranks
    first = summed_over_tables(costs.stored[:, :1], row)[:, 0]
    seconds, fits = np.zeros(len(row)), np.asarray((first <= free).all(axis=1))
    over = np.flatnonzero(~fits)
    at_once = max(1, AT_ONCE // row.shape[1])
    for begin in range(0, len(over), at_once):
        some = over[begin : begin + at_once]
        loads = base.loads(base.plan_protocols, fixed)[some] * base.ranks_of_instance
        seconds[some], fits[some] = _saved(base, costs, row[some], loads, free[some])
    return MemoryCosts(seconds, fits)


def _saved(base: Base, costs: ProfileCosts, row: Ints, nothing: Floats, free: Floats) -> tuple[Floats, Bools]:
    """[n] seconds more with the least price of a byte at which tables fit, between two of those that are tried."""
    load, stored = (summed_over_tables(of, row) for of in (costs.seconds, costs.stored))
    load += nothing[:, None]
    fits: Bools = np.asarray(np.all(stored <= free[:, None], axis=2))
    level = np.where(np.any(fits, axis=1), np.argmax(fits, axis=1), fits.shape[1] - 1)
    everyone, before = np.arange(len(row)), np.maximum(level - 1, 0)
    kept, needed = stored[everyone, before], stored[everyone, level]
    over, saved = kept - free, kept - needed
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(over > 0, over / saved, 0.0).max(axis=1)
    share = np.clip(np.nan_to_num(share, nan=1.0, posinf=1.0, neginf=1.0), 0.0, 1.0)[:, None]
    mixed = load[everyone, before] * (1 - share) + load[everyone, level] * share
    return base.stage_seconds(mixed) - base.stage_seconds(load[:, 0]), np.asarray(np.any(fits, axis=1))
