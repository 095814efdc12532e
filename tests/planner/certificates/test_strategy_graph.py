"""Graphs of layers with strategies are checked when they are made, and price a plan by its parts."""

import numpy as np
import pytest

from planner.certificates.strategy_graph import StrategyGraph

TWO = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0, 5.0])}
BETWEEN = {("a", "b"): np.arange(6.0).reshape(2, 3)}


def test_a_plan_costs_its_layers_and_its_edges() -> None:
    """And holds what its layers hold; of a layer without memory nothing."""
    plan = StrategyGraph(TWO, BETWEEN, {"b": np.array([7.0, 8.0, 9.0])}).plan(np.array([1, 2]))
    assert plan.strategy_of == {"a": 1, "b": 2}
    assert plan.cost == 2.0 + 5.0 + 5.0
    assert plan.memory_bytes == 9.0


@pytest.mark.parametrize(
    ("costs", "edges", "held", "message"),
    [
        ({"a": np.zeros(0)}, {}, {}, "the costs of a must be numbers"),
        ({"a": np.array([np.nan])}, {}, {}, "the costs of a must be numbers"),
        (TWO, {("a", "c"): np.zeros((2, 2))}, {}, "a → c has an end without costs"),
        (TWO, {("a", "b"): np.zeros((3, 2))}, {}, r"a → b must be numbers in the shape \(2, 3\)"),
        (TWO, BETWEEN, {"a": np.zeros(3)}, "the memory of a must have a number"),
        (TWO, BETWEEN, {"a": np.array([0.5, 1.0])}, "the memory of a must be whole bytes"),
        (TWO, BETWEEN | {("b", "a"): np.zeros((3, 2))}, {}, "layers read each other in a circle"),
    ],
)
def test_what_is_wrong_is_refused_by_name(costs: dict, edges: dict, held: dict, message: str) -> None:
    """Layers, edges and memory."""
    with pytest.raises(ValueError, match=message):
        StrategyGraph(costs, edges, held)
