"""The price of memory: the best plan at each price, and what it proves of plans within a capacity.

At a price of a byte, the least of cost and priced memory together, less the price of the capacity, is a lower bound of
every plan that fits (weak duality: Geoffrion, Math. Program. Study 2, 1974). The best such bound is where the lower
convex hull of (memory, cost) of all plans crosses the capacity. Chords find it: the price at which two plans are
even is tried next, until no plan is below their line (Handler and Zang, Networks 10, 1980).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.certificates.elimination import eliminate, elimination_order
from planner.certificates.strategy_graph import StrategyGraph, StrategyPlan
from planner.problem.rounding import ROUNDING


@dataclass(frozen=True)
class ConstrainedPlan:
    """The best plan that is known within a capacity, and what is proven of all of them."""

    status: Literal["optimal", "feasible", "infeasible"]
    plan: StrategyPlan | None
    """It fits; None where none does."""
    lower_bound: float
    """No plan that fits costs less; infinite where none does."""
    memory_price: float = 0.0
    """The price of a byte with which the bound was proven first."""


def price_memory(graph: StrategyGraph, capacity_bytes: float, order: Sequence[int] | None = None) -> ConstrainedPlan:
    """The price at which the Lagrangian bound is best, and the cheapest plan that fits of those met on the way.

    The plan is optimal where it costs no more than the bound, but for the rounding of sums. An order of elimination may
    be given.
    """
    pricing = _Pricing(graph, order)
    if (over := pricing.best_at(0.0)) is None or (within := pricing.leanest()).memory_bytes > capacity_bytes:
        return ConstrainedPlan("infeasible", None, math.inf)
    bound = _Bound(over.cost, 0.0, ROUNDING * abs(over.cost))
    if over.memory_bytes <= capacity_bytes:
        return bound.of(over)
    while within.cost > over.cost:
        price = (within.cost - over.cost) / (over.memory_bytes - within.memory_bytes)
        if (met := pricing.best_at(price)) is None:
            break
        worth = price * capacity_bytes
        tried = _Bound(_priced(met, price) - worth, price, ROUNDING * (abs(_priced(met, price)) + worth))
        bound = max(bound, tried, key=lambda each: each.value)
        if not _is_below(met, over, price):
            break
        over, within = (over, met) if met.memory_bytes <= capacity_bytes else (met, within)
    return bound.of(within)


@dataclass(frozen=True)
class _Bound:
    """A value of the Lagrangian, at a price, and how far the rounding of sums may have moved it."""

    value: float
    price: float
    rounding: float

    def of(self, plan: StrategyPlan) -> ConstrainedPlan:
        """Return it as what is proven of a plan that fits."""
        is_met = plan.cost <= self.value + self.rounding
        return ConstrainedPlan("optimal" if is_met else "feasible", plan, self.value - self.rounding, self.price)


class _Pricing:
    """Best plans of a graph, all with the same order of elimination."""

    def __init__(self, graph: StrategyGraph, order: Sequence[int] | None) -> None:
        self._graph, self._order = graph, elimination_order(graph) if order is None else order

    def best_at(self, price: float) -> StrategyPlan | None:
        """Return the best plan at a price of a byte."""
        found = eliminate(self._graph, self._order, byte_weight=price)
        return self._graph.plan(found.chosen()) if found.least < math.inf else None

    def leanest(self) -> StrategyPlan:
        """Return the plan of the least memory, of a graph that has plans."""
        return self._graph.plan(eliminate(self._graph, self._order, cost_weight=0.0, byte_weight=1.0).chosen())


def _priced(plan: StrategyPlan, price: float) -> float:
    return plan.cost + price * plan.memory_bytes


def _is_below(plan: StrategyPlan, other: StrategyPlan, price: float) -> bool:
    """Whether a plan is better than another at a price, by more than the rounding of sums."""
    return _priced(plan, price) < _priced(other, price) - ROUNDING * abs(_priced(other, price))
