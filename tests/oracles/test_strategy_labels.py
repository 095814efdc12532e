"""The cheapest plan that fits is that of trying every plan."""

import itertools

import numpy as np
import pytest

from planner.certificates.strategy_graph import StrategyGraph
from tests.oracles.strategy_graphs import every_plan, random_graph
from tests.oracles.strategy_labels import constrained_optimum


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)])
def test_the_plan_is_the_cheapest_that_fits(seeds: range) -> None:
    """Of all plans of 200 random graphs of up to seven layers, for capacities that are scarce, tight and ample."""
    for seed in seeds:
        expect_the_cheapest_that_fits(random_graph(seed))


def test_forbidden_pairs_are_never_chosen() -> None:
    """Of 60 random graphs, in which a third of all pairs of neighbours' strategies is forbidden."""
    for seed in range(60):
        expect_the_cheapest_that_fits(random_graph(seed, forbidden=1 / 3))


def expect_the_cheapest_that_fits(graph: StrategyGraph) -> None:
    """Compare with all plans."""
    cost, held = every_plan(graph)
    for capacity in (held.min() - 1, held.min(), *np.quantile(held, [0.02, 0.2, 0.5]), held.max()):
        found = constrained_optimum(graph, float(capacity))
        fits = (held <= capacity) & np.isfinite(cost)
        if not fits.any():
            assert found.status == "infeasible"
            continue
        assert found.status == "optimal"
        assert found.plan is not None
        assert found.plan.memory_bytes <= capacity
        assert found.plan.cost == cost[fits].min()
        assert found.lower_bound <= found.plan.cost
        assert found.lower_bound == pytest.approx(found.plan.cost, rel=1e-6, abs=1e-6)


def test_thirty_equal_layers_of_which_half_must_be_lean() -> None:
    """150 million plans cost the same; those with the same memory and neighbours are one label."""
    names = [f"layer{n}" for n in range(30)]
    costs = {name: np.array([1.0, 2.5]) for name in names}
    held = {name: np.array([10.0, 1.0]) for name in names}
    edges = {(u, v): np.array([[0.0, 0.25], [0.25, 0.0]]) for u, v in itertools.pairwise(names)}
    found = constrained_optimum(StrategyGraph(costs, edges, held), 15 * 10 + 15 * 1 + 4)
    assert found.status == "optimal"
    assert found.plan is not None
    assert found.plan.cost == 15 * 1.0 + 15 * 2.5 + 0.25
    assert found.plan.memory_bytes == 15 * 10 + 15


def test_too_many_labels_leave_a_plan_and_a_bound() -> None:
    """The best that prices of memory find, which is not said to be optimal."""
    graph = next(
        graph
        for graph in map(random_graph, range(100))
        if constrained_optimum(graph, np.median(every_plan(graph)[1]), 1).status == "feasible"
    )
    cost, held = every_plan(graph)
    capacity = float(np.median(held))
    found = constrained_optimum(graph, capacity, most_labels=1)
    assert found.plan is not None
    assert found.lower_bound <= cost[held <= capacity].min() <= found.plan.cost
