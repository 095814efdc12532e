"""Lower bounds of candidates at fixed multipliers, by weak duality (Geoffrion, Math. Program. Study 2, 1974).

For any multipliers a step takes at least what the cheapest options of its tables cost, and its fixed part, less what
the memory is worth (`planner.certificates.lagrangian`): also the step of a model that they were not made for. The bound
is the least over all protocols, as that of a plan. Bytes that depend on a candidate as a whole, copies of vectors in
flight, lie between two numbers: what an option costs is a straight line in them, so that the least of all options is
concave, and never below what is interpolated.
"""

import numpy as np

from cost_models.fixed_parts import FixedParts
from planner.oracle.base import Base, Pair
from planner.oracle.profiles import COPIES
from planner.problem.numbers import Floats, Ints
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import LONE_TOLERANCE

SHORT_OF_OPTIMUM = LONE_TOLERANCE + 1e-5
"""Share by which bounds are rounded down. Planning anew ends up to so much short of its relaxation's optimum, so that
other multipliers may prove a little more than those that it finds."""


def lower_bounds_s(base: Base, bounds: Floats, row: Ints, fixed: FixedParts) -> Floats:
    """[n] of candidates whose tables are at these rows [n, T] of `bounds` [R, pairs, 2]."""
    low, high = np.moveaxis(bounds[row].sum(axis=1), 2, 0)
    has_option = np.isfinite(low)
    low, high = np.where(has_option, low, 0.0), np.where(has_option, high, 0.0)
    share = ((fixed.output_copies - COPIES[0]) / (COPIES[1] - COPIES[0]))[:, None]
    tables = low + share * (high - low)
    least: dict[tuple[int, ...], Floats] = {}
    for m, pair in enumerate(base.pairs):
        value = _dual_values_s(base, pair, tables[:, m], fixed)
        least[pair.protocols] = np.maximum(value, least.get(pair.protocols, value))
    lowest = np.min(list(least.values()), axis=0) * (1 - SHORT_OF_OPTIMUM)
    return np.where(has_option.all(axis=1), np.maximum(lowest, fixed.copy_s), np.inf)


def _dual_values_s(base: Base, pair: Pair, tables: Floats, fixed: FixedParts) -> Floats:
    """[n] the Lagrangian where the cheapest options of all tables cost [n] so much; see `dual_value_s`."""
    problem, multipliers = base.formulation.problem, pair.multipliers
    sizes = problem.capacity_regions.ranks.sum(axis=1).astype(float)
    loads = fixed.loads[:, 0] @ pair.of_fixed_loads(problem)
    hbm = base.model.memories.index("hbm")
    capacity = float((multipliers.byte * base.empty_capacity).sum())
    taken = fixed.base_bytes * float((multipliers.byte[:, hbm] * sizes).sum())
    constants = fixed.constants.sum(axis=1) + base.latency_s(pair.protocols)
    value = tables + loads + constants + taken - capacity
    return np.asarray(value - ROUNDING * (tables + loads + np.abs(constants) + taken + capacity))
