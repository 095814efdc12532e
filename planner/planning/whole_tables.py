"""Whole tables on single ranks, where several kinds of sharding cost more than they gain.

Every kind of sharding in use has exchanges of its own, and their vectors are joined. That is no sum over tables, which
the search needs; so it decides between two plans: the one found, and the best one of table_wise alone.
"""

from dataclasses import replace

import numpy as np

from cost_models.shards import TABLE_WISE
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options
from planner.problem.numbers import Ints
from planner.problem.placement import Placement
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve


def with_whole_tables(formulation: Formulation, outcome: Outcome, limits: SearchLimits) -> Outcome:
    """The outcome, or the plan of whole tables where the other's kinds of sharding cost more than the difference.

    The bound stays: it is one on all plans.
    """
    options = formulation.options
    if outcome.placement is None or outcome.bound is None or outcome.step_s is None:
        return outcome
    used = np.unique(options.block_sharding[outcome.placement.item_block])
    extra_s = formulation.model.mixing_seconds(used)
    if extra_s == 0 or not options.choices.may_at_all(TABLE_WISE).all():
        return outcome
    few = formulation.with_sharding(TABLE_WISE)
    whole = solve(few.problem, limits)
    if whole.placement is None or whole.step_s is None or whole.step_s >= outcome.step_s + extra_s:
        return outcome
    is_optimal = whole.step_s <= outcome.bound.seconds * (1 + OPTIMAL_GAP)
    block = _same_blocks(few.options, options)[whole.placement.item_block]
    return replace(
        outcome,
        status="optimal" if is_optimal else "feasible",
        placement=Placement(block, whole.placement.item_place),
        step_s=whole.step_s,
    )


def _same_blocks(few: Options, options: Options) -> Ints:
    """[b] of each block of whole tables, the same one among all options."""

    def keys(of: Options) -> list[tuple[float, ...]]:
        option = of.block_option
        columns = of.profile[option], of.tier[option], of.cache_fraction[option], of.dtype[option], of.state[option]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    whole = np.flatnonzero(options.block_sharding == TABLE_WISE)
    every = keys(options)
    place = {every[block]: block for block in whole.tolist()}
    return np.array([place[key] for key in keys(few)])
