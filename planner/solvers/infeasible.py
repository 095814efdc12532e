"""Proofs that nothing fits: prices per byte at which even the cheapest options cost more than all memory is worth."""

from dataclasses import dataclass

import numpy as np

from planner.problem import Bools, Floats, Ints
from planner.solvers.fluid import Fluid
from planner.solvers.prices import Prices


@dataclass(frozen=True)
class Shortage:
    """Why no placement exists.

    Either some tables have no option that fits even on empty hardware (`homeless`), or at the prices `byte` [K, M]
    the cheapest options of all tables need more than the capacity. `bytes_short` [M] says for each tier how much
    more of it alone, everything else as it is, would let the fluid problem fit; NaN where no amount would.
    """

    homeless: Ints
    byte: Floats
    bytes_short: Floats


def shortage(fluid: Fluid, usable: Bools | None = None, headroom: float = 1.0) -> Shortage | None:
    """A proof that the fluid problem does not fit into `headroom` of the memory; None when it does."""
    problem = fluid.problem
    free = Prices(np.zeros((problem.kinds, len(problem.stage_of_column))), np.zeros_like(fluid.capacity))
    cheapest, _ = fluid.price(free, usable)
    homeless = np.flatnonzero(np.isinf(cheapest))
    nothing = np.full(fluid.capacity.shape[1], np.nan)
    if len(homeless):
        return Shortage(homeless, free.byte, nothing)
    capacity = fluid.capacity * headroom
    excess, byte = _largest_excess(fluid, capacity, usable)
    if excess <= 0:
        return None
    growth = nothing.copy()
    if usable is None:
        for tier in range(len(growth)):
            growth[tier] = _growth_of_tier(fluid, capacity, tier)
    return Shortage(homeless, byte, growth)


def _largest_excess(fluid: Fluid, capacity: Floats, usable: Bools | None) -> tuple[float, Floats]:
    """The largest priced need beyond the priced capacity, over prices that sum to one per capacity; and the prices.

    Cutting planes in the few prices; stops at the first round that decides the sign.
    """
    from ortools.math_opt.python import mathopt

    unit = np.where(capacity > 0, capacity, 2.0**30)
    model = mathopt.Model()
    bound = model.add_variable(lb=-np.inf)
    prices = [model.add_variable(lb=0.0, ub=1.0) for _ in range(capacity.size)]
    model.add_linear_constraint(mathopt.fast_sum(prices) == 1.0)
    model.maximize(bound)
    solver = mathopt.IncrementalSolver(model, mathopt.SolverType.GLOP)
    weight = np.zeros((fluid.problem.kinds, len(fluid.problem.stage_of_column)))
    price = np.full(capacity.size, 1.0 / capacity.size)
    best, best_byte = -np.inf, np.zeros_like(capacity)
    for _ in range(200):
        byte = (price / unit.ravel()).reshape(capacity.shape)
        cheapest, picks = fluid.price(Prices(weight, byte), usable)
        paid = (byte * capacity).sum()
        value = float(cheapest.sum() - paid)
        rounding = 1e-9 * (float(cheapest.sum()) + abs(float(paid)))
        if value > best:
            best, best_byte = value, byte
        if best > rounding:
            return best - rounding, best_byte
        _, size = fluid.usage(Prices(weight, byte), picks)
        excess = ((size - capacity) / unit).ravel()
        terms = [float(value) * variable for value, variable in zip(excess, prices, strict=True)]
        model.add_linear_constraint(mathopt.fast_sum(terms) - bound >= 0.0)
        result = solver.solve()
        if result.objective_value() <= 1e-9:
            return min(best, 0.0), best_byte
        values = result.variable_values()
        price = np.array([max(values[variable], 0.0) for variable in prices])
        price /= price.sum()
    return best, best_byte


def _growth_of_tier(fluid: Fluid, capacity: Floats, tier: int) -> float:
    """Bytes by which one tier must grow, over all kinds alike, for the fluid problem to fit; NaN if none suffice."""
    grown = capacity.copy()
    most = float(
        fluid.price(Prices(np.zeros((fluid.problem.kinds, len(fluid.problem.stage_of_column))), grown * 0))[0].sum()
    )
    low, high = 0.0, max(float(capacity.sum()), 2.0**40) * 64 + most
    weights = capacity[:, tier] / capacity[:, tier].sum() if capacity[:, tier].sum() > 0 else None
    if weights is None or not _fits(fluid, capacity, tier, weights * high):
        return float("nan")
    for _ in range(40):
        middle = (low + high) / 2
        if _fits(fluid, capacity, tier, weights * middle):
            high = middle
        else:
            low = middle
    return high


def _fits(fluid: Fluid, capacity: Floats, tier: int, extra: Floats) -> bool:
    grown = capacity.copy()
    grown[:, tier] += extra
    return _largest_excess(fluid, grown, None)[0] <= 0
