"""Prices of memory: a bound of what fits that no plan is below."""

import math

import numpy as np
import pytest

from planner.certificates.strategy_graph import StrategyGraph
from tests.oracles.memory_price import price_memory
from tests.oracles.strategy_graphs import every_plan, random_graph


def test_the_bound_is_the_best_of_any_price_and_below_every_plan_that_fits() -> None:
    """Of 60 random graphs, against the dual over all prices at which two plans are even, and all plans."""
    for seed in range(60):
        expect_the_best_bound(random_graph(seed, most_layers=5))


def expect_the_best_bound(graph: StrategyGraph) -> None:
    """Compare with all prices and plans."""
    cost, held = every_plan(graph)
    for capacity in np.quantile(held, [0.0, 0.2, 0.5, 1.0]):
        found = price_memory(graph, float(capacity))
        best = cost[held <= capacity].min()
        corners = np.unique(np.stack([cost, held]), axis=1)
        gaps = np.subtract.outer(corners[1], corners[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            prices = np.unique(np.subtract.outer(corners[0], corners[0]) / -gaps)
        prices = np.append(prices[np.isfinite(prices) & (prices >= 0)], 0.0)
        dual = (corners[0] + prices[:, None] * (corners[1] - capacity)).min(axis=1).max()
        assert found.lower_bound == pytest.approx(dual, rel=1e-6, abs=1e-6)
        assert found.lower_bound <= best
        assert found.plan is not None
        assert found.plan.memory_bytes <= capacity
        assert found.plan.cost >= best
        assert (found.status == "optimal") <= (found.plan.cost == best)


def test_where_nothing_fits_it_says_so() -> None:
    """With no plan and a bound that no cost meets, also where there is no plan at all."""
    layer = {"a": np.array([1.0, 2.0])}
    for graph in (
        StrategyGraph(layer, {}, {"a": np.array([9.0, 8.0])}),
        StrategyGraph({"a": np.array([np.inf])}, {}, {"a": np.array([1.0])}),
    ):
        found = price_memory(graph, 7.0)
        assert (found.status, found.plan, found.lower_bound) == ("infeasible", None, math.inf)
