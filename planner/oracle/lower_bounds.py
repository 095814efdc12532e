"""Lower bounds of candidates at fixed multipliers, by weak duality (Geoffrion, Math. Program. Study 2, 1974).

For any multipliers a step takes at least what the cheapest options of its tables cost, and its fixed part, less what
the memory is worth (`planner.certificates.lagrangian`): also the step of a model that they were not made for. The bound
is the least over all protocols, as that of a plan. Bytes that depend on a candidate as a whole, copies of vectors in
flight, lie between two numbers: what an option costs is a straight line in them, so that the least of all options is
concave, and never below what is interpolated.
"""

import numpy as np

from cost_models.fixed_parts import FixedParts
from planner.oracle.base import Base
from planner.oracle.pairs import Pair
from planner.oracle.profiles import COPIES, summed_over_tables
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import LONE_TOLERANCE

SHORT_OF_OPTIMUM = LONE_TOLERANCE + 1e-5
"""Share by which bounds are rounded down. Planning anew ends up to so much short of its relaxation's optimum, so that
other multipliers may prove a little more than those that it finds."""


def rounded_down(relaxed_s: Floats, fixed: FixedParts) -> Floats:
    """[n] the bounds that are told, of those that relaxations prove; no step is below its floor."""
    return np.maximum(relaxed_s * (1 - SHORT_OF_OPTIMUM), fixed.floor_s)


def relaxed_steps(base: Base, bounds: Floats, row: Ints, fixed: FixedParts, held: Ints) -> Floats:
    """[n] bounds, neither rounded nor held up by floors, of candidates whose tables are at these rows [n, T] of
    `ProfileCosts.bounds`, and have so many bytes with their state."""
    summed = summed_over_tables(bounds, row)
    has_option = np.isfinite(summed[..., 0])
    low, high = (np.where(has_option, summed[..., n], 0.0) for n in (0, -1))
    share = ((fixed.output_copies - COPIES[0]) / (COPIES[1] - COPIES[0]))[:, None]
    tables = low + share * (high - low)
    least: dict[tuple[int, ...], Floats] = {}
    for m, pair in enumerate(base.pairs):
        value = _dual_values_s(base, pair, tables[:, m], fixed, row > 0)
        least[pair.protocols] = np.maximum(value, least.get(pair.protocols, value))
    for protocols in filter(base.are_of_nothing, least):
        least[protocols] = np.where(base.may_replicate(held), least[protocols], np.inf)
    lowest = np.min(list(least.values()), axis=0)
    return np.where(np.all(has_option, axis=1), lowest, np.inf)


def _dual_values_s(base: Base, pair: Pair, tables: Floats, fixed: FixedParts, has_table: Bools) -> Floats:
    """[n] the Lagrangian where the cheapest options of the tables that there are [n, T] cost [n] so much; see
    `dual_value_s`."""
    problem, multipliers = base.formulation.problem, pair.multipliers
    sizes = problem.capacity_regions.ranks.sum(axis=1).astype(float)
    of_rank = base.loads(pair.protocols, fixed)
    loads = of_rank @ (multipliers.weight * sizes[:, None]).sum(axis=0)
    loads += np.minimum(of_rank, 0.0) @ (multipliers.weight * problem.ranks_beside.sum(axis=2)).sum(axis=0)
    loads += pair.of_other_loads(base.least_of_instances(of_rank), has_table)
    hbm = base.model.memories.index("hbm")
    capacity = float((multipliers.byte * base.empty_capacity).sum())
    taken = fixed.base_bytes * float((multipliers.byte[:, hbm] * sizes).sum())
    constants = fixed.constants.sum(axis=1) + base.latency_s(pair.protocols, fixed)
    value = tables + loads + constants + taken - capacity
    return np.asarray(value - ROUNDING * (tables + np.abs(loads) + np.abs(constants) + taken + capacity))
