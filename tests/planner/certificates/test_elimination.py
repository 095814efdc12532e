"""The dynamic programme finds what trying every plan finds, and PaSE's published optima to the digit."""

import itertools
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from planner.certificates import elimination
from planner.certificates.elimination import cheapest_plan, eliminate, elimination_order
from planner.certificates.strategy_graph import StrategyGraph
from tests.oracles.pase import Network, alexnet, rnnlm
from tests.oracles.strategy_graphs import every_plan, random_graph

PASE = [
    (alexnet, 8, 97_098_296_512),
    (alexnet, 16, 70_320_712_672),
    (alexnet, 32, 53_136_349_552),
    (alexnet, 64, 41_120_456_048),
    (rnnlm, 4, 13_247_562_153_984),
    (rnnlm, 8, 7_462_723_813_376),
    (rnnlm, 16, 4_322_906_226_688),
    (rnnlm, 32, 2_625_038_401_536),
    (rnnlm, 64, 1_566_423_818_240),
]
"""What PaSE's own code finds for a batch of 128, 10 TFLOP/s and 16 GB/s."""
SPLIT_OF_32 = {
    "conv1": (32, 1, 1, 1, 1, 1, 1),
    "conv2": (32, 1, 1, 1, 1, 1, 1),
    "conv3": (32, 1, 1, 1, 1, 1, 1),
    "conv4": (16, 2, 1, 1, 1, 1, 1),
    "conv5": (16, 2, 1, 1, 1, 1, 1),
    "fc6": (1, 4, 8),
    "fc7": (1, 8, 4),
    "fc8": (1, 4, 8),
}
"""The cuts that it prints for AlexNet on 32 ranks: of batch, channels, … and of samples, outputs, inputs."""


@pytest.mark.parametrize(("network", "ranks", "cost"), PASE)
def test_the_costs_are_those_that_pase_finds(network: Callable[[int], Network], ranks: int, cost: int) -> None:
    """To the digit, in FLOPs."""
    plan = cheapest_plan(network(ranks).graph())
    assert plan is not None
    assert plan.cost == cost


def test_alexnet_is_cut_as_pase_cuts_it() -> None:
    """All layers with weights, on 32 ranks."""
    network = alexnet(32)
    plan = cheapest_plan(network.graph())
    assert plan is not None
    found = {layer: tuple(network.cuts[layer][plan.strategy_of[layer]].tolist()) for layer in SPLIT_OF_32}
    assert found == SPLIT_OF_32


def test_no_plan_is_cheaper() -> None:
    """Of all plans of 200 random graphs of up to seven layers, at prices of memory as well."""
    for graph, price in itertools.product(map(random_graph, range(200)), (0.0, 0.5, 4.0)):
        cost, held = every_plan(graph)
        plan = cheapest_plan(graph, price)
        assert plan is not None
        assert plan.cost + price * plan.memory_bytes == (cost + price * held).min()


def test_what_is_forbidden_is_not_chosen() -> None:
    """Neither strategies nor pairs of infinite cost, however cheap the rest is; without another plan there is none."""
    costs = {"a": np.array([1.0, np.inf]), "b": np.array([0.0, 9.0])}
    never = np.array([[np.inf, 0.0], [0.0, 0.0]])
    plan = cheapest_plan(StrategyGraph(costs, {("a", "b"): never}))
    assert plan is not None
    assert plan.strategy_of == {"a": 0, "b": 1}
    nothing = np.full((2, 2), np.inf)
    assert cheapest_plan(StrategyGraph(costs, {("a", "b"): nothing})) is None
    assert cheapest_plan(StrategyGraph(costs, {("a", "b"): nothing}), memory_price=1.0) is None


def test_of_equals_the_first_strategy_is_chosen() -> None:
    """So that the same graph has the same plan."""
    costs = {name: np.zeros(3) for name in "abc"}
    graph = StrategyGraph(costs, {("a", "b"): np.zeros((3, 3)), ("b", "c"): np.zeros((3, 3))})
    plan = cheapest_plan(graph)
    assert plan is not None
    assert plan.strategy_of == {"a": 0, "b": 0, "c": 0}


def test_blocks_of_strategies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is compared a few numbers at once has the same first minimum."""
    graphs = [random_graph(seed) for seed in range(20)]
    whole = [cheapest_plan(graph) for graph in graphs]
    monkeypatch.setattr(elimination, "BLOCK_ENTRIES", 2)
    assert [cheapest_plan(graph) for graph in graphs] == whole


def test_a_ladder_needs_tables_of_two_layers_alone() -> None:
    """Layers that are left have as few neighbours as the graph's treewidth allows: 1 of a chain, 2 of a ladder and of
    layers that skip one."""
    for graph, most in (
        (nx.path_graph(9), 1),
        (nx.ladder_graph(6), 2),
        (nx.Graph([(n, n + skip) for n in range(9) for skip in (1, 2)]), 2),
    ):
        costs = {str(n): np.zeros(2) for n in graph}
        edges = {(str(min(edge)), str(max(edge))): np.zeros((2, 2)) for edge in graph.edges}
        strategies = StrategyGraph(costs, edges)
        messages = eliminate(strategies, elimination_order(strategies)).messages
        assert max(len(message.scope) for message in messages) == most


def test_a_graph_of_too_many_strategies_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of the layers that meet."""
    monkeypatch.setattr(elimination, "MOST_ENTRIES", 8)
    names = "abcd"
    costs = {name: np.zeros(3) for name in names}
    edges = {(u, v): np.zeros((3, 3)) for u in names for v in names if u < v}
    with pytest.raises(ValueError, match="b, c, d have 27 strategies together; give them fewer"):
        cheapest_plan(StrategyGraph(costs, edges))
